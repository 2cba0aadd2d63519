"""The numbers of local learning bias that rounds and diagnoses share.

Of classifiers that lean to some classes: tables of how often which class (rows) was taken for
which (columns). Of updates that disagree: their products, each with each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ..core.records import Drift
from ..core.wire import State

CHUNK = 1 << 18  # weights compared at once: all updates need not fit in memory a second time


def confusion(truth: Tensor, guesses: Tensor) -> Tensor:
    """Add up what was guessed, [n, K] (probabilities, or one-hot), by true class: [K, K]."""
    size = guesses.shape[1]
    return torch.zeros(size, size, dtype=torch.float64).index_add_(0, truth, guesses.double())


def distribution(table: Tensor, classes: Sequence[int] | None = None) -> Tensor | None:
    """Return the share of each class among the guesses, every true class counting the same.

    classes: only samples of these. None if there is no sample.

    >>> distribution(torch.tensor([[3, 1], [0, 8]]))
    tensor([0.3750, 0.6250], dtype=torch.float64)
    """
    rows = table.double() if classes is None else table.double()[list(classes)]
    rows = rows[rows.sum(dim=1) > 0]
    if not len(rows):
        return None
    return (rows / rows.sum(dim=1, keepdim=True)).mean(dim=0)


def share_on(shares: Tensor | None, classes: Sequence[int]) -> float | None:
    """Return what part of a distribution falls on some classes."""
    return None if shares is None else float(shares[list(classes)].sum())


def entropy(shares: Tensor | None) -> float | None:
    """Return the entropy of a distribution as a part of the largest possible one.

    0: all on one class; 1: all classes alike.
    """
    if shares is None:
        return None
    if len(shares) < 2:
        return 0.0
    return float(torch.special.entr(shares.double()).sum() / math.log(len(shares)))


def accuracy(table: Tensor, classes: Sequence[int] | None = None) -> float | None:
    """Return the share of right guesses, every true class counting the same.

    classes: only samples of these. None if there is no sample.
    """
    shares = []
    for c in range(len(table)) if classes is None else classes:
        total = table[c].sum()
        if float(total) > 0:
            shares.append(float(table[c, c] / total))
    return sum(shares) / len(shares) if shares else None


def gram(start: State, models: Sequence[State], name: str) -> Tensor:
    """Return the products of the models' updates of one weight: [models, models]."""
    total = torch.zeros(len(models), len(models), dtype=torch.float64)
    first = start[name].flatten()
    for begin in range(0, len(first), CHUNK):
        piece = slice(begin, begin + CHUNK)
        updates = [model[name].flatten()[piece] - first[piece] for model in models]
        moved = torch.stack(updates).double()
        total += moved @ moved.T
    return total


def drift(products: Tensor) -> Drift:
    """Compare updates by their products, each with each.

    Returns their mean length, their distance to their mean (as a part of that length), and the
    mean cosine between two of them.
    """
    count = len(products)
    squares = products.diagonal()
    lengths = squares.sqrt()
    apart = (squares - 2 * products.mean(dim=1) + products.mean()).clamp(min=0).sqrt()
    between = None
    if count > 1:
        cosines = products / (lengths[:, None] * lengths).clamp(min=1e-24)
        first, second = torch.triu_indices(count, count, offset=1)
        between = float(cosines[first, second].mean())
    length = float(lengths.mean())
    distance = float(apart.mean()) / length if length > 0 else 0.0
    return Drift(length, distance, between)
