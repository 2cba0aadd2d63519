"""Samples that are held out for testing: the same share of every class and of every natural client."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..core.samples import Index, Samples
from .partition import grouped

TEST_SHARE = 0.2  # where the data come without a test set


def held_out(
    classes: Index, share: float, rng: np.random.Generator, owner: Index | None = None
) -> NDArray[np.bool_]:
    """Choose what is tested on: a share of every class (and natural client), but never all that
    there is of one.
    """
    held = chosen(classes, share, rng, owner)
    for kind in (classes,) if owner is None else (classes, owner):
        _, first, number = np.unique(kind, return_index=True, return_inverse=True)
        held[first[np.bincount(number[~held], minlength=len(first)) == 0]] = False
    return held


def hold_out(samples: Samples, share: float, rng: np.random.Generator) -> tuple[Samples, Samples]:
    """Return what is kept and what is held out: the same share of every class."""
    held = held_out(samples.y.numpy(), share, rng)
    return samples.only(~held), samples.only(held)


def chosen(
    classes: Index,
    share: float,
    rng: np.random.Generator,
    owner: Index | None = None,
    least: int = 0,
) -> NDArray[np.bool_]:
    """Choose the same share of every class (of every owner), and of each at least so many."""
    stride = int(classes.max(initial=0)) + 1
    groups, number = np.unique(
        classes if owner is None else owner * stride + classes, return_inverse=True
    )
    parts = grouped(number, len(groups))
    counts = _counts(np.bincount(number, minlength=len(groups)), groups // stride, share, rng)
    held = np.zeros(len(classes), dtype=bool)
    for part, count in zip(parts, counts, strict=True):
        held[rng.permutation(part)[: max(least, int(count))]] = True
    return held


def _counts(
    sizes: Index, owner: Index, share: float, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Round the share of every group; where that is a whole sample off, round running totals, owner
    by owner.
    """
    counts: NDArray[np.float64] = np.rint(share * sizes)
    off = np.bincount(owner, counts - share * sizes)
    if np.abs(off).max(initial=0) >= 1 or abs(off.sum()) >= 1:
        order = rng.permutation(len(sizes))  # or the same classes would always be rounded up
        order = order[np.argsort(owner[order], kind="stable")]
        counts[order] = np.diff(np.rint(share * np.cumsum(sizes[order])), prepend=0)
    return counts
