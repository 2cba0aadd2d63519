"""The numbers of local learning bias: features that move, classifiers that lean, updates that
disagree.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ..core.method import cosine
from ..core.records import Drift
from ..core.wire import State

CHUNK = (
    1 << 18
)  # weights that are compared at once: the updates of many clients need not fit in memory twice


def cosine_shift(before: Tensor, after: Tensor) -> float | None:
    """Return one minus the mean cosine of each sample's two features, [n, d] each; None if there is
    no sample.

    Features that are all zero have no direction: two of them are the same, one beside another is at
    right angles.
    """
    if not len(before):
        return None
    before, after = before.double(), after.double()
    nothing = ~before.any(dim=1) & ~after.any(dim=1)
    return float(1 - torch.where(nothing, 1.0, cosine(before, after)).mean())


def linear_cka(a: Tensor, b: Tensor) -> float | None:
    """Return the linear CKA (Kornblith et al., 2019) of two features of the same samples; None
    where one is constant.

    1: the same up to rotation and scale; 0: nothing in common.
    """
    sizes = [float(t.double().norm()) for t in (a, b)]
    a, b = (t.double() - t.double().mean(dim=0) for t in (a, b))
    if any(float(t.norm()) <= 1e-8 * size for t, size in zip((a, b), sizes, strict=True)):
        return None
    a, b = a / a.norm(), b / b.norm()
    own = torch.linalg.matrix_norm(a.T @ a) * torch.linalg.matrix_norm(b.T @ b)
    return float(torch.linalg.matrix_norm(a.T @ b) ** 2 / own)


def silhouette(features: Tensor, groups: Tensor) -> float | None:
    """Return how well groups lie apart: from -1 over 0 (mixed) to 1; None unless there are two
    groups to tell apart.
    """
    from sklearn.metrics import silhouette_score

    if not 1 < len(set(groups.tolist())) < len(groups):
        return None
    return float(silhouette_score(features.double().numpy(), groups.numpy()))


def centroid_accuracy(features: Tensor, groups: Tensor) -> float | None:
    """Return the share of samples that are nearest to the mean of their own group; each group
    counts the same.

    A sample is left out of the mean that it is compared with; None if a group has less than two.
    """
    _, place = torch.unique(groups, return_inverse=True)
    sizes = torch.bincount(place)
    if len(sizes) < 2 or int(sizes.min()) < 2:
        return None
    features = features.double()
    sums = torch.zeros(len(sizes), features.shape[1], dtype=torch.float64).index_add_(
        0, place, features
    )
    distance = torch.cdist(features, sums / sizes[:, None])
    without = (sums[place] - features) / (sizes[place] - 1)[:, None]
    own = torch.arange(len(place)), place
    distance[own] = (features - without).norm(dim=1)
    right = (distance.argmin(dim=1) == place).double()
    return float(
        (torch.zeros(len(sizes), dtype=torch.float64).index_add_(0, place, right) / sizes).mean()
    )


def confusion(truth: Tensor, guesses: Tensor) -> Tensor:
    """Add up what was guessed, [n, K] (probabilities, or one-hot), by true class: [K, K]."""
    size = guesses.shape[1]
    return torch.zeros(size, size, dtype=torch.float64).index_add_(0, truth, guesses.double())


def distribution(table: Tensor, classes: Sequence[int] | None = None) -> Tensor | None:
    """Return the share of each class among the guesses of a confusion table, every true class
    counting the same.

    ``classes``: only samples of these. None if there is no sample.
    """
    rows = table.double() if classes is None else table.double()[list(classes)]
    rows = rows[rows.sum(dim=1) > 0]
    return (rows / rows.sum(dim=1, keepdim=True)).mean(dim=0) if len(rows) else None


def share_on(shares: Tensor | None, classes: Sequence[int]) -> float | None:
    """Return what part of a distribution falls on some classes."""
    return None if shares is None else float(shares[list(classes)].sum())


def entropy(shares: Tensor | None) -> float | None:
    """Return the entropy of a distribution as a part of the largest possible: 0 is one class, 1 all
    alike.
    """
    if shares is None:
        return None
    return (
        float(torch.special.entr(shares.double()).sum() / math.log(len(shares)))
        if len(shares) > 1
        else 0.0
    )


def accuracy(table: Tensor, classes: Sequence[int] | None = None) -> float | None:
    """Return the share of right guesses in a confusion table, every true class (of ``classes``)
    counting the same.
    """
    rows = range(len(table)) if classes is None else classes
    right = [float(table[c, c] / table[c].sum()) for c in rows if float(table[c].sum()) > 0]
    return sum(right) / len(right) if right else None


def gram(start: State, models: Sequence[State], name: str) -> Tensor:
    """Return the products of the models' updates of one weight, each with each: [models, models]."""
    total = torch.zeros(len(models), len(models), dtype=torch.float64)
    first = start[name].flatten()
    for begin in range(0, len(first), CHUNK):
        piece = slice(begin, begin + CHUNK)
        moved = torch.stack(
            [model[name].flatten()[piece] - first[piece] for model in models]
        ).double()
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
