"""DANN a second time: a federated discriminator tells clients by their features, the model works
against it.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np
import pytest
import torch
from in_package import (
    assert_fedavg,
    assert_same,
    final,
    run_with_added,
)
from torch import Tensor, nn
from world import (
    CLASSES,
    FEATURES,
    IMAGE,
    INPUTS,
    SIZES,
    TOLERANCE,
    Clients,
    Weights,
    batches,
    descend,
    distance,
    features,
    federate,
    fresh_linears,
    plain_fedavg,
    plain_loss,
    start_weights,
)

import fedbr

DEFAULTS: dict[str, Any] = {"weight": 0.5, "width": 7, "mode": "reversal"}
MODES = ["reversal", "alternate"]


def discriminate(d: Weights, z: Tensor) -> Tensor:
    h = torch.relu(z @ d[0].T + d[1])
    h = torch.relu(h @ d[2].T + d[3])
    return h @ d[4].T + d[5]


def client_loss(d: Weights, z: Tensor, client: int) -> Tensor:
    """L_D: the mean over the batch of -log p(this client)."""
    scores = discriminate(d, z)
    return -torch.log(scores[:, client].exp() / scores.exp().sum(1)).mean()


@functools.cache
def by_hand(slots: bool = False, **changes: Any) -> Weights:
    """All rounds: encoder, classifier, discriminator. With `slots`, a mistake: clients are told by
    their order.
    """
    s = DEFAULTS | changes
    weight: float = s["weight"]
    width: int = s["width"]

    def train_client(client: int, r: int, weights: Weights) -> Weights:
        w, d = weights[:4], weights[4:]
        who = client % 2 if slots else client
        for x, y in batches(client, r):
            z = features(w, x)
            stronger = descend(d, functools.partial(client_loss, z=z, client=who))
            judge = stronger if s["mode"] == "alternate" else d

            def loss(
                leaves: Weights, x: Tensor = x, y: Tensor = y, judge: Weights = judge
            ) -> Tensor:
                return plain_loss(leaves, x, y) - weight * client_loss(
                    judge, features(leaves, x), who
                )

            w, d = descend(w, loss), stronger
        return w + d

    sizes = [(FEATURES, width), (width, width), (width, len(SIZES))]
    return federate(start_weights() + fresh_linears("dann", *sizes), train_client)


SETTINGS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "small weight": {"weight": 0.05},
    "large weight": {"weight": 2.0},
    "width 3": {"width": 3},
    "width 12": {"width": 12},
}
CASES = {
    f"{name}, {mode}": changes | {"mode": mode}
    for mode in MODES
    for name, changes in SETTINGS.items()
}


@pytest.mark.parametrize("changes", CASES.values(), ids=CASES.keys())
def test_final_weights_are_those_of_the_second_implementation(changes: dict[str, Any]) -> None:
    """The discriminator's too."""
    assert_same(by_hand(**changes), [fedbr.DANN(**(DEFAULTS | changes))])


@pytest.mark.parametrize("mode", MODES)
def test_images(mode: str) -> None:
    assert_same(by_hand(mode=mode), [fedbr.DANN(**(DEFAULTS | {"mode": mode}))], shape=IMAGE)


def test_every_case_is_far_from_every_other() -> None:
    ends = {name: by_hand(**changes) for name, changes in CASES.items()} | {
        "by slot": by_hand(slots=True)
    }
    for (a, one), (b, two) in itertools.combinations(ends.items(), 2):
        assert distance(one[:4], two[:4]) > 1e4 * TOLERANCE, f"{a} and {b}"


def test_the_final_model_has_no_discriminator() -> None:
    run, added = run_with_added([fedbr.DANN()])
    assert len(added) == 6
    assert [tuple(w.shape) for w in added[::2]] == [(256, FEATURES), (256, 256), (len(SIZES), 256)]
    assert len(final(run)) == 4


class Halve(fedbr.Method):
    """Halves every gradient it is shown."""

    name = "halve"

    def on_grad(self, ctx: fedbr.ClientContext, params: dict[str, Tensor]) -> None:
        for p in params.values():
            assert p.grad is not None
            p.grad *= 0.5


@pytest.mark.parametrize("mode", MODES)
def test_other_methods_do_not_touch_the_discriminators_gradient(mode: str) -> None:
    """In one step from a common start, the discriminator ends the same whatever happens to the
    model's gradient.
    """
    dann = fedbr.DANN(**(DEFAULTS | {"mode": mode}))
    ends = [
        run_with_added(methods, rounds=1, local_steps=1) for methods in ([dann], [dann, Halve()])
    ]
    (alone, one), (halved, two) = ends
    assert distance(one, two) == 0
    assert distance(final(alone), final(halved)) > 1e-3


# --------------------------------------------------------------------------------------------------
# what it is for


def told_apart() -> Clients:
    """Three clients: the first half of the inputs says which class it is, the second half who it
    is.
    """
    rng = np.random.default_rng(8)
    clients = []
    for client in range(3):
        y = np.arange(60) % 3
        x = 1.5 * np.concatenate([np.eye(3)[y], np.tile(np.eye(3)[client], (60, 1))], axis=1)
        clients.append(
            (torch.from_numpy(x + rng.normal(scale=0.3, size=x.shape)), torch.from_numpy(y))
        )
    return clients


def open_model() -> fedbr.FedModel:
    """Return a model that passes its inputs on: nothing but the method takes the client's mark
    away.
    """
    model = fedbr.FedModel(nn.Linear(INPUTS, INPUTS), INPUTS, CLASSES).double()
    with torch.no_grad():
        for p, w in zip(model.parameters(), (torch.eye(INPUTS), 0, 0, 0), strict=True):
            p.copy_(torch.as_tensor(w).expand(p.shape))
    return model


def best_discriminator_loss(run: fedbr.Run, clients: Clients) -> float:
    """Train a linear discriminator on the features of all clients, from zero."""
    with torch.no_grad():
        z = run.model.encoder(torch.cat([x for x, _ in clients]))
    who = torch.cat([torch.full_like(y, client) for client, (_, y) in enumerate(clients)])
    judge = [z.new_zeros(len(clients), INPUTS), z.new_zeros(len(clients))]

    def loss(d: Weights) -> Tensor:
        return nn.functional.cross_entropy(z @ d[0].T + d[1], who)

    for _ in range(100):
        judge = descend(judge, loss, 0.5)
    return float(loss(judge))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", [0, 1])
def test_the_features_tell_less_about_the_client(mode: str, seed: int) -> None:
    """With one local step a round; with many, a client's own discriminator forgets that there are
    others.
    """
    clients = told_apart()
    settings: dict[str, Any] = {
        "rounds": 100,
        "local_steps": 1,
        "batch_size": 16,
        "lr": 0.1,
        "seed": seed,
    }
    losses, right = [], []
    for weight in (0.0, 1.0):
        method = fedbr.DANN(weight=weight, width=16, mode=mode)
        run, _ = run_with_added([method], clients, open_model(), **settings)
        losses.append(best_discriminator_loss(run, clients))
        right += [float((run.model.predict(x) == y).double().mean()) for x, y in clients]
    assert losses[1] > 1.5 * losses[0]
    assert min(right) > 0.95  # and yet the classes are known


# --------------------------------------------------------------------------------------------------
# the rest


@pytest.mark.parametrize("mode", MODES)
def test_without_weight_it_is_fedavg_to_the_bit(mode: str) -> None:
    assert_fedavg(fedbr.DANN(**(DEFAULTS | {"weight": 0.0, "mode": mode})))
    run, _ = run_with_added([fedbr.DANN(weight=0.0)])
    assert distance(plain_fedavg(), final(run)) < TOLERANCE


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("weight", -0.1),
        ("weight", float("inf")),
        ("width", 0),
        ("width", -3),
        ("mode", "other"),
        ("lam", 1.0),
    ],
)
def test_bad_parameters_are_refused(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=field):
        fedbr.DANN(**{field: value})
