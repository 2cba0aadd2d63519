"""The numbers of features against cases worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch

from fedbr.bias.features import centroid_accuracy, cosine_shift, linear_cka, silhouette


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
