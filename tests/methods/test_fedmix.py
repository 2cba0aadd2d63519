"""NaiveMix and FedMix a second time: means of samples are shared once, and mixed into batches or
into the loss.
"""

from __future__ import annotations

import functools
import itertools
import math
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
from torch import Tensor
from world import (
    BATCH,
    CLASSES,
    IMAGE,
    INPUTS,
    SEED,
    SIZES,
    TOLERANCE,
    Clients,
    Weights,
    batches,
    classify,
    cross_entropy,
    descend,
    distance,
    features,
    federate,
    one_hot,
    plain_fedavg,
    plain_loss,
    softmax,
    start_weights,
    world,
)

import fedbr
from fedbr.core.rng import stream

METHODS = {"naivemix": "NaiveMix", "fedmix": "FedMix"}
DEFAULTS: dict[str, Any] = {"lam": 0.2, "mean_of": 3, "size": None}


def make(name: str, **options: Any) -> fedbr.Method:
    method: fedbr.Method = getattr(fedbr, METHODS[name])(**options)
    return method


def client_means(name: str, client: int, count: int, mean_of: int) -> list[tuple[Tensor, Tensor]]:
    """What a client sends: each the mean of samples that differ from each other, and of their
    one-hot labels.
    """
    xs, ys = world()[client]
    rng = stream(SEED, name, "contribute", 0, client)
    sent = []
    for _ in range(count):
        picked: list[int] = []
        for i in rng.permutation(len(xs)).tolist():
            if len(picked) < mean_of and not any(torch.equal(xs[i], xs[j]) for j in picked):
                picked.append(i)
        if len(picked) < mean_of:  # too few to hide in
            return []
        sent.append(
            (sum(xs[i] for i in picked) / mean_of, sum(one_hot(ys[i]) for i in picked) / mean_of)
        )
    return sent  # type: ignore[return-value]


def shared_means(name: str, mean_of: int, size: int | None, batch: int) -> tuple[Tensor, Tensor]:
    size = batch if size is None else size
    pool = []
    for client in range(len(SIZES)):
        pool += client_means(name, client, math.ceil(size / len(SIZES)), mean_of)
    kept = [pool[i] for i in stream(SEED, name, "share", 0).permutation(len(pool))[:size]]
    return torch.stack([x for x, _ in kept]), torch.stack([y for _, y in kept])


def naivemix_loss(
    w: Weights, x: Tensor, y: Tensor, x_bar: Tensor, y_bar: Tensor, lam: float
) -> Tensor:
    return plain_loss(w, (1 - lam) * x + lam * x_bar, (1 - lam) * y + lam * y_bar)


def slope_of_the_input(w: Weights, x: Tensor, y: Tensor) -> Tensor:
    """dCE/dx of each sample, by the chain rule on paper; the labels sum to 1."""
    h = features(w, x)
    return ((softmax(classify(w, h)) - y) @ w[2] * (1 - h * h)) @ w[0]


def fedmix_loss(
    w: Weights, x: Tensor, y: Tensor, x_bar: Tensor, y_bar: Tensor, lam: float
) -> Tensor:
    logits = classify(w, features(w, (1 - lam) * x))
    inner = (slope_of_the_input(w, (1 - lam) * x, y) * x_bar).sum(1)
    return (
        (1 - lam) * cross_entropy(logits, y)
        + lam * cross_entropy(logits, y_bar)
        + lam * inner.mean()
    )


LOSSES = {"naivemix": naivemix_loss, "fedmix": fedmix_loss}


@functools.cache
def by_hand(name: str, batch: int = BATCH, **changes: Any) -> Weights:
    s = DEFAULTS | changes
    xs_bar, ys_bar = shared_means(name, s["mean_of"], s["size"], batch)

    def train_client(client: int, r: int, w: Weights) -> Weights:
        own = stream(SEED, name, r, client)
        for x, y in batches(client, r, batch):
            index = own.integers(len(xs_bar), size=batch)
            mix = {"x": x, "y": y, "x_bar": xs_bar[index], "y_bar": ys_bar[index], "lam": s["lam"]}
            w = descend(w, functools.partial(LOSSES[name], **mix))
        return w

    return federate(start_weights(), train_client)


CASES: dict[str, dict[str, Any]] = {
    "defaults": {},
    "small lam": {"lam": 0.05},
    "large lam": {"lam": 0.7},
    "means of two": {"mean_of": 2},
    "means of many": {"mean_of": 9},
    "means of more than some clients have": {"mean_of": 13},
    "size 1": {"size": 1},
    "size above the batch": {"size": 7},
    "size of many": {"size": 40, "mean_of": 5},
}
both = pytest.mark.parametrize("name", METHODS)


@both
@pytest.mark.parametrize("changes", CASES.values(), ids=CASES.keys())
def test_final_weights_are_those_of_the_second_implementation(
    name: str, changes: dict[str, Any]
) -> None:
    assert_same(by_hand(name, **changes), [make(name, **(DEFAULTS | changes))])


@both
@pytest.mark.parametrize("batch", [1, 2, 9])
def test_batches_of_any_size(name: str, batch: int) -> None:
    """FedMix's third term is a mean over the batch, once."""
    assert_same(by_hand(name, batch=batch), [make(name, **DEFAULTS)], batch_size=batch)


@both
def test_images(name: str) -> None:
    """The inner product sums over all pixels."""
    assert_same(by_hand(name), [make(name, **DEFAULTS)], shape=IMAGE)


@both
def test_every_case_is_far_from_every_other(name: str) -> None:
    ends = {case: by_hand(name, **changes) for case, changes in CASES.items()} | {
        "FedAvg": plain_fedavg()
    }
    for (a, one), (b, two) in itertools.combinations(ends.items(), 2):
        assert distance(one, two) > 1e4 * TOLERANCE, f"{a} and {b}"


@both
def test_defaults(name: str) -> None:
    assert make(name).model_dump() == {"lam": 0.1, "mean_of": 10, "size": None}


# ------------------------------------------------------------------------------------------ how far
# the two differ


def alike(clients: int, n: int = 12) -> Clients:
    """Clients with the same samples in another order. A mean of all n is then the same whatever was
    drawn.
    """
    rng = np.random.default_rng(9)
    x, y = (
        torch.from_numpy(rng.normal(size=(n, INPUTS))),
        torch.from_numpy(rng.integers(CLASSES, size=n)),
    )
    orders = [torch.from_numpy(rng.permutation(n)) for _ in range(clients)]
    return [(x[order], y[order]) for order in orders]


def one_step(name: str, lam: float, clients: int, batch: int, shape: tuple[int, ...]) -> Weights:
    method = make(name, lam=lam, mean_of=12)
    run, _ = run_with_added(
        [method], alike(clients), shape=shape, rounds=1, local_steps=1, batch_size=batch
    )
    return final(run)


@pytest.mark.parametrize("lam", [0.02, 0.01])
@pytest.mark.parametrize(
    ("clients", "batch", "shape"), [(1, 4, (INPUTS,)), (1, 32, IMAGE), (3, 6, (INPUTS,))]
)
def test_they_differ_in_the_second_order(
    lam: float, clients: int, batch: int, shape: tuple[int, ...]
) -> None:
    """With half the lam a quarter of the difference stays.

    With a third term of another scale half of it would stay.
    """
    gaps = []
    for one in (lam, lam / 2):
        naive, taylor = (one_step(name, one, clients, batch, shape) for name in METHODS)
        gaps.append(
            math.sqrt(sum(float(((a - b) ** 2).sum()) for a, b in zip(naive, taylor, strict=True)))
        )
    assert gaps[1] > 1e-9  # they are not the same, either
    assert 3.4 < gaps[0] / gaps[1] < 4.6


def test_the_losses_differ_in_the_second_order() -> None:
    """The same of the formulas above, so that the hand-written third term is known to be the
    derivative.
    """
    (x, y), rng = world()[0], np.random.default_rng(1)
    x_bar, y_bar = (
        torch.from_numpy(rng.normal(size=x.shape)),
        one_hot(torch.from_numpy(rng.integers(4, size=len(x)))),
    )
    gaps = []
    for lam in (0.01, 0.005):
        naive, taylor = (
            f(start_weights(), x, one_hot(y), x_bar, y_bar, lam) for f in LOSSES.values()
        )
        gaps.append(abs(float(naive - taylor)))
    assert 3.4 < gaps[0] / gaps[1] < 4.6


# --------------------------------------------------------------------------------------------------
# the rest


@both
def test_what_is_shared_is_sent_once(name: str) -> None:
    """Means go up before the first round only, and down to each client when it first takes part."""
    clients = world()[:2]
    mixed, _ = run_with_added([make(name, **DEFAULTS)], clients)
    plain, _ = run_with_added([], clients)
    (up, down), *later = [
        (a - c, b - d) for (a, b), (c, d) in zip(mixed.bytes, plain.bytes, strict=True)
    ]
    assert later == [(0, 0)] * len(later)
    wanted = 8 * BATCH * (INPUTS + CLASSES)
    assert wanted <= up < 2 * wanted
    assert 2 * wanted <= down < 4 * wanted


@both
def test_without_weight_it_is_fedavg_to_the_bit(name: str) -> None:
    assert_fedavg(make(name, lam=0.0, mean_of=3))
    run, _ = run_with_added([make(name, lam=0.0, mean_of=3)])
    assert distance(plain_fedavg(), final(run)) < TOLERANCE


@both
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("lam", 1.0),
        ("lam", 1.5),
        ("lam", -0.1),
        ("lam", float("nan")),
        ("mean_of", 0),
        ("mean_of", 1),
        ("size", 0),
        ("size", -1),
        ("alpha", 0.2),
    ],
)
def test_bad_parameters_are_refused(name: str, field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=field):
        make(name, **{field: value})


@both
def test_means_of_more_than_anybody_has_are_refused(name: str) -> None:
    with pytest.raises(fedbr.InputError, match="mean_of"):
        run_with_added([make(name, mean_of=max(SIZES) + 1)])
