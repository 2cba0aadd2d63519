"""The numbers of local learning bias that rounds and diagnoses share.

That classifiers lean to some classes is measured by confusion matrices: rows are true classes,
columns are predicted ones. That updates disagree is measured by their products with each other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ..core.records import Drift
from ..core.wire import State

CHUNK = 1 << 18  # weights that are compared at once, so that no second copy of all is needed


def confusion(truth: Tensor, guesses: Tensor) -> Tensor:
    """Add up predictions, [n, K] (probabilities, or one-hot), by true class: [K, K].

    >>> confusion(torch.tensor([0, 0, 1]), torch.tensor([[1, 0], [0, 1], [0, 1]]))
    tensor([[1., 1.],
            [0., 1.]], dtype=torch.float64)
    """
    size = guesses.shape[1]
    table = torch.zeros(size, size, dtype=torch.float64)
    return table.index_add_(0, truth, guesses.double())


def distribution(table: Tensor, classes: Sequence[int] | None = None) -> Tensor | None:
    """Return the share of each class among the predictions, every true class counting the same.

    Args:
        table: a confusion matrix.
        classes: only samples of these; None: all.

    Returns:
        None if there is no sample.

    >>> distribution(torch.tensor([[3, 1], [0, 8]]))
    tensor([0.3750, 0.6250], dtype=torch.float64)
    """
    rows = table.double() if classes is None else table.double()[list(classes)]
    rows = rows[rows.sum(dim=1) > 0]
    if not len(rows):
        return None
    return (rows / rows.sum(dim=1, keepdim=True)).mean(dim=0)


def share_on(shares: Tensor | None, classes: Sequence[int]) -> float | None:
    """Return the part of a distribution that falls on some classes; None if there is none."""
    return None if shares is None else float(shares[list(classes)].sum())


def entropy(shares: Tensor | None) -> float | None:
    """Return the entropy of a distribution, divided by the largest possible one.

    It is 0 if all is on one class, and 1 if all classes are alike.

    >>> entropy(torch.tensor([0.5, 0.5])), entropy(torch.tensor([1.0, 0.0]))
    (1.0, 0.0)
    """
    if shares is None:
        return None
    if len(shares) < 2:
        return 0.0
    return float(torch.special.entr(shares.double()).sum() / math.log(len(shares)))


def accuracy(table: Tensor, classes: Sequence[int] | None = None) -> float | None:
    """Return the share of right predictions, every true class counting the same.

    Args:
        table: a confusion matrix.
        classes: only samples of these; None: all.

    Returns:
        None if there is no sample.

    >>> accuracy(torch.tensor([[3, 1], [0, 8]]))
    0.875
    """
    shares = []
    for true_class in range(len(table)) if classes is None else classes:
        total = table[true_class].sum()
        if float(total) > 0:
            shares.append(float(table[true_class, true_class] / total))
    return sum(shares) / len(shares) if shares else None


def gram(start: State, models: Sequence[State], name: str) -> Tensor:
    """Return the inner products of the models' updates of one weight: [models, models].

    Args:
        start: the weights that all models began with.
        models: the weights after training.
        name: the weight.
    """
    total = torch.zeros(len(models), len(models), dtype=torch.float64)
    first = start[name].flatten()
    for begin in range(0, len(first), CHUNK):
        piece = slice(begin, begin + CHUNK)
        updates = [model[name].flatten()[piece] - first[piece] for model in models]
        matrix = torch.stack(updates).double()
        total += matrix @ matrix.T
    return total


def drift(products: Tensor) -> Drift:
    """Compare updates by their inner products with each other.

    Returns:
        Their mean length, their distance to their mean (divided by that length), and the mean
        cosine between two of them.
    """
    count = len(products)
    squares = products.diagonal()
    lengths = squares.sqrt()
    squared_distances = squares - 2 * products.mean(dim=1) + products.mean()
    distances = squared_distances.clamp(min=0).sqrt()
    cosine = None
    if count > 1:
        cosines = products / (lengths[:, None] * lengths).clamp(min=1e-24)
        first, second = torch.triu_indices(count, count, offset=1)
        cosine = float(cosines[first, second].mean())
    length = float(lengths.mean())
    distance = float(distances.mean()) / length if length > 0 else 0.0
    return Drift(length, distance, cosine)
