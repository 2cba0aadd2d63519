"""Random Sample Mean (the paper's Algorithm 2): a mean of M samples reveals no single one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor


def sample_means(
    x: Tensor, count: int, mean_of: int, rng: np.random.Generator, y: Tensor | None = None
) -> Tensor:
    """Return ``count`` means of ``mean_of`` distinct samples each.

    If there are too few to hide in, none at all. With classes ``y`` every mean takes its samples
    from the classes in turn, as evenly as they last.
    """
    return means_of(x, groups(x, count, mean_of, rng, y))


def groups(
    x: Tensor, count: int, mean_of: int, rng: np.random.Generator, y: Tensor | None = None
) -> list[Tensor]:
    """Choose the samples of every mean, as in ``sample_means``."""
    chosen = []
    for _ in range(count):
        order = rng.permutation(len(x))
        if y is not None:
            order = order[_in_turn(y.numpy()[order])]
        picked = _distinct(x, order, mean_of)
        if len(picked) < mean_of:  # for one draw means for all: it would be a raw sample, or nearly
            return []
        chosen.append(torch.from_numpy(np.array(picked)))
    return chosen


def means_of(values: Tensor, chosen: Sequence[Tensor]) -> Tensor:
    """Return the mean over each group."""
    return torch.stack([values[group].mean(dim=0) for group in chosen]) if chosen else values[:0]


def _distinct(x: Tensor, order: Iterable[int], count: int) -> list[int]:
    """Pick the first samples that differ from each other in single precision.

    Copies of one sample hide nothing.
    """
    seen: dict[bytes, int] = {}
    for i in order:
        if len(seen) == count:
            break
        pixels = (x[i].float() + 0.0).numpy().tobytes()  # + 0.0: -0.0 is no other pixel
        seen.setdefault(pixels, int(i))
    return list(seen.values())


def _in_turn(classes: np.ndarray[tuple[int], np.dtype[np.int64]]) -> list[int]:
    """Return positions so that the classes take turns."""
    queues: dict[int, Iterator[int]] = {
        int(c): iter(np.flatnonzero(classes == c).tolist()) for c in np.unique(classes)
    }
    positions: list[int] = []
    while queues:
        for c in list(queues):
            if (i := next(queues[c], None)) is None:
                del queues[c]
            else:
                positions.append(i)
    return positions
