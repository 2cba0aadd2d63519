"""MOON a second time: the contrast to the received model and to the client's own model of its last
participation.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any

import pytest
import torch
from in_package import (
    assert_fedavg,
    assert_same,
    final,
    run_with_added,
)
from torch import Tensor
from world import (
    BATCH,
    CLASSES,
    FEATURES,
    IMAGE,
    INPUTS,
    ROUNDS,
    TOLERANCE,
    Weights,
    batches,
    cosine,
    cross_entropy,
    descend,
    distance,
    federate,
    fresh_linears,
    participants,
    plain_fedavg,
    start_weights,
    world,
)

import fedbr

DEFAULTS: dict[str, Any] = {"weight": 1.0, "tau": 0.5, "hidden": 7, "width": 3, "head": True}


def start(s: dict[str, Any]) -> Weights:
    """Encoder, head, and a new classifier; or the model as it is."""
    if not s["head"]:
        return start_weights()
    sizes = [(FEATURES, s["hidden"]), (s["hidden"], s["width"]), (s["width"], CLASSES)]
    return start_weights()[:2] + fresh_linears("moon/rebuild", *sizes)


def represent(w: Weights, x: Tensor) -> Tensor:
    z = torch.tanh(x @ w[0].T + w[1])
    if len(w) == 8:
        z = torch.relu(z @ w[2].T + w[3]) @ w[4].T + w[5]
    return z


def moon_loss(
    w: Weights, w_global: Weights, w_previous: Weights | None, x: Tensor, y: Tensor, s: Any
) -> Tensor:
    z = represent(w, x)
    loss = cross_entropy(z @ w[-2].T + w[-1], y)
    if w_previous is None:
        return loss
    near = torch.exp(cosine(z, represent(w_global, x)) / s["tau"])
    far = torch.exp(cosine(z, represent(w_previous, x)) / s["tau"])
    weight: float = s["weight"]
    return loss - weight * torch.log(near / (near + far)).mean()


@functools.cache
def by_hand(memory: str = "own", batch: int = BATCH, **changes: Any) -> Weights:
    """All rounds. Any `memory` but "own" is a mistake that one could make."""
    s = DEFAULTS | changes
    before: dict[int, Weights] = {}

    def train_client(client: int, r: int, w_global: Weights) -> Weights:
        slot = participants(r).index(client)
        previous = {
            "own": before.get(client),
            "own, or at first the initial model": before.get(client, start(s)),
            "the slot's": before.get(slot),
            "the first one": before.get(client),
            "the initial model": start(s),
            "nobody's": None,
        }[memory]
        w = w_global
        for x, y in batches(client, r, batch):
            w = descend(
                w,
                functools.partial(moon_loss, w_global=w_global, w_previous=previous, x=x, y=y, s=s),
            )
        if memory == "the first one":
            before.setdefault(client, w)
        else:
            before[slot if memory == "the slot's" else client] = w
        return w

    return federate(start(s), train_client)


CASES: dict[str, dict[str, Any]] = {
    "defaults": {},
    "small weight": {"weight": 0.1},
    "large weight": {"weight": 5.0},
    "cold": {"tau": 0.1},
    "hot": {"tau": 2.0},
    "other head": {"hidden": 4, "width": 6},
    "no head": {"head": False},
    "no head, small weight": {"head": False, "weight": 0.3},
    "no head, cold": {"head": False, "tau": 0.2, "weight": 3.0},
}


def test_the_history_has_what_these_tests_need() -> None:
    """A newcomer beside one who returns, one who returns to another slot, and one who returns after
    a pause.
    """
    history = [participants(r) for r in range(1, ROUNDS + 1)]
    assert history == [[0, 2], [2, 3], [2, 3], [0, 1], [1, 3]]


@pytest.mark.parametrize("changes", CASES.values(), ids=CASES.keys())
def test_final_weights_are_those_of_the_second_implementation(changes: dict[str, Any]) -> None:
    assert_same(by_hand(**changes), [fedbr.Moon(**(DEFAULTS | changes))])


def test_images() -> None:
    assert_same(by_hand(), [fedbr.Moon(**DEFAULTS)], shape=IMAGE)


def test_every_case_is_far_from_every_other() -> None:
    ends = {name: by_hand(**changes) for name, changes in CASES.items()}
    for (a, one), (b, two) in itertools.combinations(ends.items(), 2):
        if [w.shape for w in one] == [w.shape for w in two]:
            assert distance(one, two) > 1e4 * TOLERANCE, f"{a} and {b}"


@pytest.mark.parametrize("head", [True, False])
@pytest.mark.parametrize(
    "memory",
    [
        "own, or at first the initial model",
        "the slot's",
        "the first one",
        "the initial model",
        "nobody's",
    ],
)
def test_the_negative_is_the_clients_own_last_model(memory: str, head: bool) -> None:
    """Any other memory ends elsewhere, so the equality above tells them apart."""
    assert distance(by_hand(head=head), by_hand(memory=memory, head=head)) > 1e4 * TOLERANCE
    run, _ = run_with_added([fedbr.Moon(**(DEFAULTS | {"head": head}))], clients_at_once=2)
    assert distance(by_hand(memory=memory, head=head), final(run)) > 1e4 * TOLERANCE


def test_a_first_participation_has_no_term() -> None:
    """One round of newcomers, and the weight does not matter; two rounds, and it does."""
    for rounds, same in ((1, True), (2, False)):
        runs = [
            run_with_added([fedbr.Moon(head=False, weight=w)], rounds=rounds)[0]
            for w in (1.0, 50.0)
        ]
        fedavg, _ = run_with_added([], rounds=rounds)
        assert (distance(final(runs[0]), final(runs[1])) < 1e-14) is same
        assert (distance(final(runs[0]), final(fedavg)) < 1e-14) is same


def test_the_head_is_in_the_encoder_of_the_final_model() -> None:
    run, added = run_with_added([fedbr.Moon(**DEFAULTS)])
    x = world()[0][0]
    w = by_hand()
    assert not added
    assert run.model.num_features == DEFAULTS["width"]
    with torch.no_grad():
        out = run.model(x)
        assert torch.equal(run.model.encoder(x), out.features)
    assert out.features.shape == (len(x), DEFAULTS["width"])
    assert float((out.features - represent(w, x)).abs().max()) < TOLERANCE
    assert float((out.logits - (represent(w, x) @ w[-2].T + w[-1])).abs().max()) < TOLERANCE
    assert run.model.predict(x).shape == (len(x),)


def test_default_head() -> None:
    run, _ = run_with_added([fedbr.Moon()], rounds=1)
    assert [tuple(w.shape) for w in final(run)] == [
        (FEATURES, INPUTS),
        (FEATURES,),
        (256, FEATURES),
        (256,),
        (128, 256),
        (128,),
        (CLASSES, 128),
        (CLASSES,),
    ]


def test_the_models_of_the_negatives_are_in_eval_mode() -> None:
    """With dropout that drops nearly all in training, two identical frozen models still agree: the
    term is log 2.
    """

    def trained(weight: float) -> Weights:
        encoder = torch.nn.Sequential(
            torch.nn.Linear(INPUTS, FEATURES), torch.nn.Tanh(), torch.nn.Dropout(0.5)
        )
        model = fedbr.FedModel(encoder, FEATURES, CLASSES).double()
        with torch.no_grad():
            for p, w in zip(model.parameters(), start_weights(), strict=True):
                p.copy_(w)
        # One client alone: what it receives is what it sent, so near = far whatever z is, if both
        # are in eval mode.
        method = fedbr.Moon(head=False, weight=weight)
        return final(
            run_with_added([method], clients=world()[:1], model=model, local_steps=1, rounds=3)[0]
        )

    assert distance(trained(1.0), trained(100.0)) < 1e-12


def test_without_weight_it_is_fedavg_to_the_bit() -> None:
    for head in (True, False):
        assert_fedavg(fedbr.Moon(weight=0.0, head=head))
    assert distance(plain_fedavg(), final(run_with_added([fedbr.Moon(weight=0.0)])[0])) < TOLERANCE


def test_batch_of_one() -> None:
    assert_same(by_hand(batch=1), [fedbr.Moon(**DEFAULTS)], batch_size=1)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("weight", -1.0),
        ("weight", float("nan")),
        ("tau", 0.0),
        ("tau", -0.5),
        ("hidden", 0),
        ("width", 0),
        ("head", "perhaps"),
        ("mu", 1.0),
    ],
)
def test_bad_parameters_are_refused(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=field):
        fedbr.Moon(**{field: value})
