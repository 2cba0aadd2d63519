"""Measures of features: how far two models' differ, and how well groups of samples separate."""

from __future__ import annotations

import torch
from torch import Tensor

from ..core.method import cosine


def cosine_shift(before: Tensor, after: Tensor) -> float | None:
    """Return one minus the mean cosine of each sample's two features, [n, d] each.

    Features that are all zero have no direction: two of them are the same, one beside another is
    at right angles. None if there is no sample.

    >>> cosine_shift(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 2.0]]))
    1.0
    """
    if not len(before):
        return None
    before, after = before.double(), after.double()
    both_zero = ~before.any(dim=1) & ~after.any(dim=1)
    return float(1 - torch.where(both_zero, 1.0, cosine(before, after)).mean())


def linear_cka(a: Tensor, b: Tensor) -> float | None:
    """Return the linear CKA (Kornblith et al., 2019) of two features of the same samples.

    1: the same up to rotation and scale; 0: nothing in common; None where one is constant.

    >>> x = torch.tensor([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    >>> round(linear_cka(x, 3 * x.flip(1) + 1), 6)
    1.0
    """
    centred_a, centred_b = _centre(a), _centre(b)
    if centred_a is None or centred_b is None:
        return None
    a, b = centred_a, centred_b
    own = torch.linalg.matrix_norm(a.T @ a) * torch.linalg.matrix_norm(b.T @ b)
    return float(torch.linalg.matrix_norm(a.T @ b) ** 2 / own)


def _centre(features: Tensor) -> Tensor | None:
    """Take the mean away and scale to length 1; None for features that are constant."""
    features = features.double()
    centred = features - features.mean(dim=0)
    if float(centred.norm()) <= 1e-8 * float(features.norm()):
        return None
    scaled: Tensor = centred / centred.norm()
    return scaled


def silhouette(features: Tensor, groups: Tensor) -> float | None:
    """Return how well groups are separated: from -1 over 0 (mixed) to 1.

    None unless there are at least two groups, and fewer than samples.

    >>> silhouette(torch.tensor([[0.0], [0.0], [9.0], [9.0]]), torch.tensor([0, 0, 1, 1]))
    1.0
    """
    from sklearn.metrics import silhouette_score

    if not 1 < len(set(groups.tolist())) < len(groups):
        return None
    return float(silhouette_score(features.double().numpy(), groups.numpy()))


def centroid_accuracy(features: Tensor, groups: Tensor) -> float | None:
    """Return the share of samples that are nearest to the mean of their own group.

    Each group counts the same, and a sample is left out of the mean that it is compared with.
    None if there are no two groups, or one has less than two samples.

    >>> centroid_accuracy(torch.tensor([[0.0], [1.0], [9.0], [8.0]]), torch.tensor([0, 0, 1, 1]))
    1.0
    """
    _, group = torch.unique(groups, return_inverse=True)
    sizes = torch.bincount(group)
    if len(sizes) < 2 or int(sizes.min()) < 2:
        return None
    features = features.double()
    sums = torch.zeros(len(sizes), features.shape[1], dtype=torch.float64)
    sums.index_add_(0, group, features)
    distance = torch.cdist(features, sums / sizes[:, None])
    mean_of_others = (sums[group] - features) / (sizes[group] - 1)[:, None]
    distance[torch.arange(len(group)), group] = (features - mean_of_others).norm(dim=1)
    is_nearest = (distance.argmin(dim=1) == group).double()
    by_group = torch.zeros(len(sizes), dtype=torch.float64).index_add_(0, group, is_nearest)
    return float((by_group / sizes).mean())
