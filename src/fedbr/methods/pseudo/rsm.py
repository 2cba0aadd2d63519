"""Random Sample Mean (the paper's Algorithm 2): a mean of M samples reveals no single one."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor


def sample_means(
    x: Tensor, count: int, mean_of: int, rng: np.random.Generator, y: Tensor | None = None
) -> Tensor:
    """Return ``count`` means of ``mean_of`` distinct samples each.

    Args:
        x: the samples of one client.
        count: how many means.
        mean_of: samples in each.
        rng: draws the samples.
        y: their classes; with them every mean takes its samples from the classes in turn, as evenly
            as they last.

    Returns:
        The means; none at all if there are too few distinct samples to hide in.
    """
    return means_of(x, choose_groups(x, count, mean_of, rng, y))


def choose_groups(
    x: Tensor, count: int, mean_of: int, rng: np.random.Generator, y: Tensor | None = None
) -> list[Tensor]:
    """Choose the samples of every mean, as in ``sample_means``."""
    groups = []
    for _ in range(count):
        order = rng.permutation(len(x))
        if y is not None:
            order = order[_in_turn(y.numpy()[order])]
        group = _first_distinct(x, order, mean_of)
        if len(group) < mean_of:  # so in every draw: a mean would be a raw sample, or nearly
            return []
        groups.append(torch.from_numpy(np.array(group)))
    return groups


def means_of(values: Tensor, groups: Sequence[Tensor]) -> Tensor:
    """Return the mean over each group."""
    if not groups:
        return values[:0]
    return torch.stack([values[group].mean(dim=0) for group in groups])


def _first_distinct(x: Tensor, order: Iterable[int], count: int) -> list[int]:
    """Pick the first samples that differ from each other in single precision.

    Copies of one sample hide nothing.
    """
    positions: dict[bytes, int] = {}  # by what is in the sample
    for i in order:
        if len(positions) == count:
            break
        pixels = (x[i].float() + 0.0).numpy().tobytes()  # + 0.0 makes -0.0 the same pixel as 0.0
        positions.setdefault(pixels, int(i))
    return list(positions.values())


def _in_turn(classes: np.ndarray[tuple[int], np.dtype[np.int64]]) -> list[int]:
    """Return positions so that the classes take turns."""
    queues = [np.flatnonzero(classes == c).tolist() for c in np.unique(classes)]
    turns = itertools.zip_longest(*queues)  # one of each class, None where no more are left
    return [position for turn in turns for position in turn if position is not None]
