"""The numbers of classifiers and updates against cases worked out by hand."""

from __future__ import annotations

import math
from dataclasses import asdict

import pytest
import torch

from fedbr.metrics.bias import (
    accuracy,
    confusion,
    distribution,
    drift,
    entropy,
    gram,
    share_on,
)


def some(rows: int = 20, columns: int = 5, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))


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


def compared(*updates: list[float]) -> dict[str, float | None]:
    return asdict(drift(moved(*updates)))


def test_clients_that_agree_do_not_drift() -> None:
    agreed = compared([3, 4], [3, 4])
    assert agreed == pytest.approx({"length": 5, "distance": 0, "cosine": 1})


def test_clients_that_pull_apart() -> None:
    opposite = compared([2, 0], [-2, 0])
    assert opposite == pytest.approx({"length": 2, "distance": 1, "cosine": -1})
    right_angle = compared([2, 0], [0, 2])  # their mean is (1, 1): sqrt(2) from each
    expected = {"length": 2, "distance": math.sqrt(2) / 2, "cosine": 0}
    assert right_angle == pytest.approx(expected, abs=1e-12)


def test_one_client_and_no_update() -> None:
    assert compared([3, 4]) == {"length": 5, "distance": 0, "cosine": None}
    assert compared([0, 0], [0, 0]) == {"length": 0, "distance": 0, "cosine": 0}


def test_large_weights_are_compared_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    start, ends = {"w": some(7, 3)}, [{"w": some(7, 3, s)} for s in (1, 2, 3)]
    whole = gram(start, ends, "w")
    monkeypatch.setattr("fedbr.metrics.bias.CHUNK", 4)
    torch.testing.assert_close(gram(start, ends, "w"), whole)
