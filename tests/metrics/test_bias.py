"""The numbers of bias against cases worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch

from fedbr.metrics.bias import (
    accuracy,
    centroid_accuracy,
    confusion,
    cosine_shift,
    distribution,
    drift,
    entropy,
    gram,
    linear_cka,
    share_on,
    silhouette,
)


def some(rows: int = 20, columns: int = 5, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))


def test_features_that_stay_have_not_shifted() -> None:
    a = some()
    assert cosine_shift(a, a) == pytest.approx(0, abs=1e-12)
    assert cosine_shift(a, 3 * a) == pytest.approx(0, abs=1e-12)  # a direction has no length
    assert cosine_shift(a, -a) == pytest.approx(2)
    east, north = torch.tensor([[1.0, 0]]), torch.tensor([[0, 1.0]])
    assert cosine_shift(east, north) == pytest.approx(1)
    assert cosine_shift(torch.cat([east, east]), torch.cat([east, north])) == pytest.approx(0.5)
    assert cosine_shift(a[:0], a[:0]) is None


def test_features_that_are_zero_have_not_shifted() -> None:
    dead, east = torch.zeros(1, 2), torch.tensor([[1.0, 0]])
    assert cosine_shift(dead, dead) == 0
    assert cosine_shift(dead, east) == 1
    assert cosine_shift(torch.cat([dead, dead]), torch.cat([dead, east])) == 0.5


def test_cka_does_not_mind_rotation_scale_and_place() -> None:
    a = some()
    turned, _ = torch.linalg.qr(some(5, 5, 1))
    assert linear_cka(a, a) == pytest.approx(1)
    assert linear_cka(a, 2 * a @ turned + 7) == pytest.approx(1, abs=1e-6)
    left, right = torch.tensor([[1.0], [-1], [1], [-1]]), torch.tensor([[1.0], [1], [-1], [-1]])
    assert linear_cka(left, right) == pytest.approx(0, abs=1e-12)
    both = torch.cat([left, right], dim=1)  # shares one of two equal directions: 1 / sqrt(2)
    assert linear_cka(left, both) == pytest.approx(1 / math.sqrt(2))
    assert linear_cka(a, torch.ones(20, 3)) is None
    assert linear_cka(1e-9 * a, 1e9 * a) == pytest.approx(
        1
    )  # what is constant is so beside its own size
    assert linear_cka(a, torch.full((20, 3), 1e9) / 3) is None
    assert linear_cka(a[:0], a[:0]) is None


def test_silhouette_of_four_points_on_a_line() -> None:
    x, groups = torch.tensor([[0.0], [1], [10], [11]]), torch.tensor([0, 0, 1, 1])
    expected = ((10.5 - 1) / 10.5 + (9.5 - 1) / 9.5) / 2
    assert silhouette(x, groups) == pytest.approx(expected)
    assert silhouette(x, torch.zeros(4, dtype=torch.long)) is None
    assert silhouette(x[:2], torch.tensor([0, 1])) is None  # nothing inside a group to compare with


def test_nearest_centroid_leaves_the_sample_out() -> None:
    x, groups = torch.tensor([[0.0], [1], [10], [11]]), torch.tensor([3, 3, 8, 8])
    assert centroid_accuracy(x, groups) == 1
    mixed = torch.tensor([[0.0], [10], [1], [11]])
    assert centroid_accuracy(mixed, groups) == 0  # its own mean without it is the other end
    assert centroid_accuracy(x[:3], groups[:3]) is None
    large = torch.tensor(
        [[0.0], [0], [0], [0], [9], [0.1]]
    )  # one of the second group is lost: 1 and 1/2, not 5/6
    assert centroid_accuracy(large, torch.tensor([0, 0, 0, 0, 1, 1])) == pytest.approx(3 / 4)


def test_a_classifier_that_predicts_one_class() -> None:
    truth = torch.tensor([0, 1, 2, 2])
    table = confusion(truth, torch.eye(3)[torch.tensor([1, 1, 1, 1])])
    shares = distribution(table)
    assert shares is not None
    assert shares.tolist() == [0, 1, 0]
    assert entropy(shares) == 0
    assert (share_on(shares, [1]), share_on(shares, [0, 2])) == (1, 0)
    assert accuracy(table) == pytest.approx(1 / 3)
    assert accuracy(table, [0, 2]) == 0


def test_every_true_class_counts_the_same() -> None:
    truth = torch.tensor([0] * 9 + [1])
    table = confusion(truth, torch.eye(2)[truth])
    shares = distribution(table)
    assert shares is not None
    assert shares.tolist() == [0.5, 0.5]
    assert entropy(shares) == pytest.approx(1)
    only = distribution(table, [1])
    assert only is not None
    assert only.tolist() == [0, 1]
    assert distribution(table, []) is None
    assert (entropy(None), share_on(None, [0]), accuracy(table[:0])) == (None, None, None)


def test_probabilities_are_added_like_guesses() -> None:
    table = confusion(torch.tensor([1, 1]), torch.tensor([[0.9, 0.1], [0.7, 0.3]]))
    shares = distribution(table, [1])
    assert shares is not None
    assert shares.tolist() == pytest.approx([0.8, 0.2])


def moved(*updates: list[float]) -> torch.Tensor:
    start = {"w": torch.tensor([[5.0, 6.0]])}
    return gram(start, [{"w": start["w"] + torch.tensor([u])} for u in updates], "w")


def test_clients_that_agree_do_not_drift() -> None:
    assert drift(moved([3, 4], [3, 4])) == pytest.approx({"length": 5, "distance": 0, "cosine": 1})


def test_clients_that_pull_apart() -> None:
    assert drift(moved([2, 0], [-2, 0])) == pytest.approx(
        {"length": 2, "distance": 1, "cosine": -1}
    )
    right_angle = drift(moved([2, 0], [0, 2]))  # their mean is (1, 1): sqrt(2) from each
    assert right_angle == pytest.approx(
        {"length": 2, "distance": math.sqrt(2) / 2, "cosine": 0}, abs=1e-12
    )


def test_one_client_and_no_update() -> None:
    assert drift(moved([3, 4])) == {"length": 5, "distance": 0, "cosine": None}
    assert drift(moved([0, 0], [0, 0])) == {"length": 0, "distance": 0, "cosine": 0}


def test_large_weights_are_compared_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    start, ends = {"w": some(7, 3)}, [{"w": some(7, 3, s)} for s in (1, 2, 3)]
    whole = gram(start, ends, "w")
    monkeypatch.setattr("fedbr.metrics.bias.CHUNK", 4)
    torch.testing.assert_close(gram(start, ends, "w"), whole)
