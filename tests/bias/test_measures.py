"""What is measured of one local model, from outputs made by hand that are all different."""

from __future__ import annotations

import math

import pytest
import torch

from fedbr.bias.features import centroid_accuracy, linear_cka, silhouette
from fedbr.bias.measures import measure, measure_all
from fedbr.bias.sample import Probe
from fedbr.core.model import Output
from fedbr.metrics.local import Classes, split_classes

OWN = Classes([0, 1], [2, 3], False)
Y = torch.tensor([0, 0, 1, 1, 2, 2, 3, 3])
PROBE = Probe(torch.zeros(8, 1), Y, 8)
BEFORE = torch.tensor([0.0, 10, 90, 100, 180, 190, 270, 280])  # directions of features, in degrees
MOVED = torch.tensor([10.0, 10, 20, 30, 60, 60, 90, 100])
GUESS = torch.tensor([0, 0, 1, 1, 0, 1, 3, 0])


def towards(degrees: torch.Tensor, length: torch.Tensor) -> torch.Tensor:
    radians = degrees * math.pi / 180
    return torch.stack([radians.cos(), radians.sin()], dim=1) * length[:, None]


def output(degrees: torch.Tensor, guess: torch.Tensor) -> Output:
    chances = torch.full((8, 4), 0.1).scatter(1, guess[:, None], 0.7)
    return Output(towards(degrees, torch.arange(1.0, 9)), chances.log())  # lengths do not count


def cosines(degrees: torch.Tensor) -> float:
    return float((degrees * math.pi / 180).cos().mean())


def test_every_number_of_a_local_model() -> None:
    before, after = output(BEFORE, Y), output(BEFORE + MOVED, GUESS)
    measured = measure(OWN, PROBE, before, after)
    old, new = (towards(d, torch.ones(8)) for d in (BEFORE, BEFORE + MOVED))
    groups = (Y > 1).long()
    shares = torch.tensor([4, 3, 1]) / 8  # of predictions: 0, 1 and 3
    expected = {
        "accuracy": 0.625,
        "accuracy_seen": 1,
        "accuracy_unseen": 0.25,
        "share_present": 7 / 8,
        "share_present_unseen": 3 / 4,
        "entropy": float(-(shares * shares.log()).sum()) / math.log(4),
        "mass_present": (7 * 0.8 + 0.2) / 8,
        "mass_present_unseen": (3 * 0.8 + 0.2) / 4,
        "shift": 1 - cosines(MOVED),
        "shift_seen": 1 - cosines(MOVED[:4]),
        "shift_unseen": 1 - cosines(MOVED[4:]),
        "cka": linear_cka(old, new),
        "cka_seen": linear_cka(old[:4], new[:4]),
        "cka_unseen": linear_cka(old[4:], new[4:]),
        "silhouette": silhouette(new, groups),
        "centroid_groups": centroid_accuracy(new, groups),
        "centroid_classes": centroid_accuracy(new, Y),
    }
    assert measured.to_json() == pytest.approx(expected, abs=1e-6)
    assert len({round(v, 4) for k, v in expected.items() if k[:8] != "centroid"}) == 15
    glob = [silhouette(old, groups), centroid_accuracy(old, groups), centroid_accuracy(old, Y)]
    assert all(a != b for a, b in zip(glob, list(expected.values())[-3:], strict=True))
    (model,) = measure_all({0: OWN}, PROBE, before, [after]).clients
    assert model.measures == measured
    assert model.predicted == [0.5, 0.375, 0, 0.125]
    assert model.predicted_unseen == [0.5, 0.25, 0, 0.25]


def test_the_mean_is_over_clients() -> None:
    one, two = output(BEFORE, Y), output(BEFORE, GUESS)
    models = measure_all({4: OWN, 7: OWN}, PROBE, one, [one, two])
    assert [model.client for model in models.clients] == [4, 7]
    assert [model.measures.accuracy for model in models.clients] == [1, 0.625]
    assert models.mean.accuracy == 0.8125


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ([[10, 0], [0, 10]], [([0], [1], False), ([1], [0], False)]),
        (
            [[21, 19], [19, 21]],
            [([0, 1], [], False), ([0, 1], [], False)],
        ),  # dealt evenly, but for rounding
        ([[30, 10], [10, 30]], [([0, 1], [], False), ([0, 1], [], False)]),  # half of the average
        ([[31, 9], [9, 31]], [([0], [1], True), ([1], [0], True)]),
        (
            [[10, 0, 0], [5, 5, 0]],
            [([0], [1], False), ([0, 1], [], False)],
        ),  # the last class is nobody's
    ],
)
def test_seen_and_unseen(
    counts: list[list[int]], expected: list[tuple[list[int], list[int], bool]]
) -> None:
    table = torch.tensor(counts)
    sizes = table.sum(dim=1)
    assert split_classes(table / sizes[:, None], sizes.tolist(), [0, 1]) == expected
    assert split_classes(table / sizes[:, None], sizes.tolist(), [1]) == expected[1:]
