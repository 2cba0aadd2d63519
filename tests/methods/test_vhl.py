"""VHL a second time: shared virtual samples are learned too, and real features are drawn to those
of their class.
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
from torch import Tensor, nn
from world import (
    BATCH,
    CLASSES,
    IMAGE,
    INPUTS,
    SEED,
    TOLERANCE,
    Weights,
    batches,
    descend,
    distance,
    features,
    federate,
    one_hot,
    plain_fedavg,
    plain_loss,
    start_weights,
)

import fedbr
from conftest import blobs
from fedbr.core.rng import stream
from fedbr.methods.pseudo.virtual import virtual_samples

DEFAULTS: dict[str, Any] = {
    "alpha": 1.0,
    "align": 1.0,
    "contrast": 0.1,
    "tau": 0.07,
    "size": 40,
    "per_step": None,
}


def supcon(z: Tensor, classes: list[int], tau: float) -> Tensor:
    """Khosla et al.: the mean over anchors of -mean over positives of log p(positive | anchor)."""
    rows = [row / (row * row).sum().sqrt() for row in z]
    total = z.new_zeros(())
    for i, anchor in enumerate(rows):
        others = [a for a in range(len(rows)) if a != i]
        positives = [p for p in others if classes[p] == classes[i]]
        if not positives:
            continue
        scores = {a: (anchor * rows[a]).sum() / tau for a in others}
        bottom = torch.stack([score.exp() for score in scores.values()]).sum()
        total = total - sum((scores[p].exp() / bottom).log() for p in positives) / len(positives)
    return total / len(rows)


def vhl_terms(
    w: Weights, x: Tensor, y: Tensor, v: Tensor, y_v: list[int], s: dict[str, Any]
) -> Tensor:
    real, virtual = features(w, x), features(w, v)
    learn = plain_loss(w, v, one_hot(torch.tensor(y_v)))
    align = supcon(torch.cat([real, virtual.detach()]), y.argmax(1).tolist() + y_v, s["tau"])
    contrast = supcon(virtual, y_v, s["tau"])
    whole: Tensor = s["alpha"] * learn + s["align"] * align + s["contrast"] * contrast
    return whole


@functools.cache
def by_hand(batch: int = BATCH, shape: tuple[int, ...] = (INPUTS,), **changes: Any) -> Weights:
    s = DEFAULTS | changes
    xs_v, ys_v = virtual_samples(s["size"], CLASSES, shape, stream(SEED, "vhl", "share", 0))
    xs_v, ys_v = torch.as_tensor(xs_v).double().reshape(-1, INPUTS), torch.as_tensor(ys_v)

    def train_client(client: int, r: int, w: Weights) -> Weights:
        own = stream(SEED, "vhl", r, client)
        for x, y in batches(client, r, batch):
            index = own.integers(s["size"], size=s["per_step"] or batch)
            v, y_v = xs_v[index], ys_v[index].tolist()

            def loss(
                leaves: Weights, x: Tensor = x, y: Tensor = y, v: Tensor = v, y_v: Any = y_v
            ) -> Tensor:
                return plain_loss(leaves, x, y) + vhl_terms(leaves, x, y, v, y_v, s)

            w = descend(w, loss)
        return w

    return federate(start_weights(), train_client)


CASES: dict[str, dict[str, Any]] = {
    "defaults": {},
    "learn only": {"align": 0.0, "contrast": 0.0},
    "align only": {"alpha": 0.0, "contrast": 0.0},
    "contrast only": {"alpha": 0.0, "align": 0.0},
    "no align": {"align": 0.0},
    "no contrast": {"contrast": 0.0},
    "no learning": {"alpha": 0.0},
    "all different": {"alpha": 0.3, "align": 0.2, "contrast": 0.6, "tau": 0.5},
    "hot": {"tau": 2.0},
    "one virtual sample": {"size": 1},
    "few virtual samples": {"size": 7},
    "one a step": {"per_step": 1},
    "three a step": {"per_step": 3},
    "many a step": {"per_step": 9, "tau": 0.3},
}


@pytest.mark.parametrize("changes", CASES.values(), ids=CASES.keys())
def test_final_weights_are_those_of_the_second_implementation(changes: dict[str, Any]) -> None:
    assert_same(by_hand(**changes), [fedbr.VHL(**(DEFAULTS | changes))])


def test_defaults() -> None:
    assert_same(by_hand(size=2000), [fedbr.VHL()])


@pytest.mark.parametrize("batch", [1, 9])
def test_batches_of_any_size(batch: int) -> None:
    assert_same(by_hand(batch=batch), [fedbr.VHL(**DEFAULTS)], batch_size=batch)


def test_images() -> None:
    assert_same(by_hand(shape=IMAGE), [fedbr.VHL(**DEFAULTS)], shape=IMAGE)


def test_every_case_is_far_from_every_other() -> None:
    ends = {name: by_hand(**changes) for name, changes in CASES.items()} | {
        "FedAvg": plain_fedavg()
    }
    for (a, one), (b, two) in itertools.combinations(ends.items(), 2):
        assert distance(one, two) > 1e4 * TOLERANCE, f"{a} and {b}"


def test_supcon_of_two_pairs_by_hand() -> None:
    """Two classes at right angles: of three others, one is like the anchor. A lone fifth anchor
    counts 0.
    """
    z = torch.tensor(
        [[2.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 3.0, 0.0], [0.0, 1.0, 0.0]], dtype=torch.float64
    )
    expected = math.log(math.exp(1 / 0.5) + 2) - 1 / 0.5
    assert math.isclose(float(supcon(z, [0, 0, 1, 1], 0.5)), expected)
    five = torch.cat([z, torch.tensor([[0.0, 0.0, 1.0]], dtype=torch.float64)])
    assert math.isclose(
        float(supcon(five, [0, 0, 1, 1, 2], 0.5)), 0.8 * (math.log(math.exp(1 / 0.5) + 3) - 1 / 0.5)
    )


# --------------------------------------------------------------------------------------------------
# what it is for


def pull(run: fedbr.Run, x: Tensor, y: Tensor, seed: int) -> float:
    """How much more alike a class's real features are to virtual ones of it than to those of other
    classes.
    """
    v, y_v = virtual_samples(400, CLASSES, tuple(x.shape[1:]), stream(seed, "vhl", "share", 0))
    with torch.no_grad():
        real, virtual = run.model.encoder(x), run.model.encoder(torch.as_tensor(v).double())
    alike = nn.functional.normalize(real, dim=1) @ nn.functional.normalize(virtual, dim=1).T
    own = y[:, None] == torch.as_tensor(y_v)[None, :]
    return float(alike[own].mean() - alike[~own].mean())


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_features_are_drawn_to_the_virtual_ones_of_their_class(seed: int) -> None:
    """In many dimensions, where real and virtual classes begin at about right angles."""
    many = 24
    x, y = (torch.from_numpy(a) for a in blobs(classes=CLASSES, features=many))
    clients = [(x[i::2], y[i::2]) for i in (0, 1)]
    settings = {"rounds": 6, "local_steps": 20, "batch_size": 16, "lr": 0.1, "seed": seed}
    torch.manual_seed(seed)
    model = fedbr.FedModel(nn.Sequential(nn.Linear(many, 32), nn.Tanh()), 32, CLASSES).double()
    pulls = []
    for align in (0.0, 1.0):
        method = fedbr.VHL(alpha=0.0, align=align, contrast=0.0, tau=0.2, size=400)
        run, _ = run_with_added([method], clients, model, (many,), **settings)
        pulls.append(pull(run, x, y, seed))
    assert pulls[1] > pulls[0] + 0.2


# ---------------------------------------------------------------------------------------------- the
# virtual samples

SHAPES = [(1, 8, 8), (3, 32, 32), (6,)]


def make(size: int, classes: int, shape: tuple[int, ...], seed: int = 0) -> tuple[Tensor, Tensor]:
    x, y = virtual_samples(size, classes, shape, stream(seed, "vhl", "share", 0))
    return torch.as_tensor(x), torch.as_tensor(y)


@pytest.mark.parametrize(
    ("size", "shape"),
    [(1, s) for s in SHAPES] + [(7, s) for s in SHAPES] + [(2000, (1, 8, 8)), (2000, (6,))],
)
def test_any_size(size: int, shape: tuple[int, ...]) -> None:
    x, y = make(size, 10, shape)
    assert x.shape == (size, *shape)
    assert y.shape == (size,)
    assert bool(x.isfinite().all())
    assert 0 <= int(y.min()) <= int(y.max()) < 10
    line = torch.from_numpy(np.random.default_rng(0).normal(size=math.prod(shape)))
    assert len(set((x.double().flatten(1) @ line).tolist())) == size  # no two are the same


@pytest.mark.parametrize("classes", [2, 3, 7, 10])
@pytest.mark.parametrize("size", [10, 13, 2000])
def test_labels_are_even(size: int, classes: int) -> None:
    _, y = make(size, classes, (6,))
    counts = np.bincount(y.numpy(), minlength=classes)
    assert counts.min() >= 1
    assert counts.max() - counts.min() <= 1


@pytest.mark.parametrize("shape", SHAPES)
def test_the_stream_decides(shape: tuple[int, ...]) -> None:
    (x, y), (again, y_again), (other, _) = (make(30, 10, shape, seed) for seed in (4, 4, 5))
    assert torch.equal(x, again)
    assert torch.equal(y, y_again)
    assert float((x - other).abs().mean()) > 0.1 * float(x.std())


@pytest.mark.parametrize("classes", [2, 10])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_classes_can_be_told_apart(shape: tuple[int, ...], classes: int, seed: int) -> None:
    """The nearest class mean knows the class of samples that it was not made from."""
    x, y = make(400, classes, shape, seed)
    x = x.double().flatten(1)
    half = torch.from_numpy(np.random.default_rng(0).permutation(400))
    seen, held = half[:200], half[200:]
    means = torch.stack([x[seen][y[seen] == c].mean(0) for c in range(classes)])
    right = torch.cdist(x[held], means).argmin(1) == y[held]
    assert float(right.double().mean()) > 0.9


# --------------------------------------------------------------------------------------------------
# the rest


def test_virtual_samples_are_sent_once_and_nothing_goes_up() -> None:
    clients = [(torch.randn(9, INPUTS).double(), torch.arange(9) % CLASSES) for _ in range(2)]
    run, _ = run_with_added([fedbr.VHL(**DEFAULTS)], clients)
    plain, _ = run_with_added([], clients)
    (up, down), *later = [
        (a - c, b - d) for (a, b), (c, d) in zip(run.bytes, plain.bytes, strict=True)
    ]
    assert up == 0
    assert down >= 2 * 40 * INPUTS  # at the least a byte per value
    assert later == [(0, 0)] * len(later)


@pytest.mark.parametrize("per_step", [None, 3])
def test_without_weight_it_is_fedavg_to_the_bit(per_step: int | None) -> None:
    neutral = fedbr.VHL(alpha=0.0, align=0.0, contrast=0.0, size=40, per_step=per_step)
    assert_fedavg(neutral)
    assert distance(plain_fedavg(), final(run_with_added([neutral])[0])) < TOLERANCE


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("alpha", -1.0),
        ("align", -0.1),
        ("contrast", -0.1),
        ("contrast", float("nan")),
        ("tau", 0.0),
        ("tau", -1.0),
        ("size", 0),
        ("size", -5),
        ("per_step", 0),
        ("lam", 1.0),
    ],
)
def test_bad_parameters_are_refused(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=field):
        fedbr.VHL(**{field: value})
