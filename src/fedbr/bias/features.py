"""How features move and mix: numbers of one model's features, beside another's or by groups."""

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
    nothing = ~before.any(dim=1) & ~after.any(dim=1)
    return float(1 - torch.where(nothing, 1.0, cosine(before, after)).mean())


def linear_cka(a: Tensor, b: Tensor) -> float | None:
    """Return the linear CKA (Kornblith et al., 2019) of two features of the same samples.

    1: the same up to rotation and scale; 0: nothing in common; None where one is constant.
    """
    sizes = [float(t.double().norm()) for t in (a, b)]
    a, b = (t.double() - t.double().mean(dim=0) for t in (a, b))
    if any(float(t.norm()) <= 1e-8 * size for t, size in zip((a, b), sizes, strict=True)):
        return None
    a, b = a / a.norm(), b / b.norm()
    own = torch.linalg.matrix_norm(a.T @ a) * torch.linalg.matrix_norm(b.T @ b)
    return float(torch.linalg.matrix_norm(a.T @ b) ** 2 / own)


def silhouette(features: Tensor, groups: Tensor) -> float | None:
    """Return how well groups lie apart: from -1 over 0 (mixed) to 1.

    None unless there are two groups to tell apart.
    """
    from sklearn.metrics import silhouette_score

    if not 1 < len(set(groups.tolist())) < len(groups):
        return None
    return float(silhouette_score(features.double().numpy(), groups.numpy()))


def centroid_accuracy(features: Tensor, groups: Tensor) -> float | None:
    """Return the share of samples that are nearest to the mean of their own group.

    Each group counts the same, and a sample is left out of the mean that it is compared with.
    None if there are no two groups, or one has less than two samples.
    """
    _, place = torch.unique(groups, return_inverse=True)
    sizes = torch.bincount(place)
    if len(sizes) < 2 or int(sizes.min()) < 2:
        return None
    features = features.double()
    sums = torch.zeros(len(sizes), features.shape[1], dtype=torch.float64)
    sums.index_add_(0, place, features)
    distance = torch.cdist(features, sums / sizes[:, None])
    without = (sums[place] - features) / (sizes[place] - 1)[:, None]
    own = torch.arange(len(place)), place
    distance[own] = (features - without).norm(dim=1)
    right = (distance.argmin(dim=1) == place).double()
    by_group = torch.zeros(len(sizes), dtype=torch.float64).index_add_(0, place, right)
    return float((by_group / sizes).mean())
