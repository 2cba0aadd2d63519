"""Samples that are held out for testing: the same share of every class and natural client."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ..core.rng import stream
from ..core.samples import Index, Samples
from ..util.errors import InputError
from .arrays import peak
from .partition import find_places
from .source import Source

TEST_SHARE = 0.2  # where the data come without a test set


def choose_held_out(
    classes: Index, share: float, rng: np.random.Generator, owner: Index | None = None
) -> NDArray[np.bool_]:
    """Choose what is tested on, but never all that there is of a class or a natural client.

    Args:
        classes: of every sample.
        share: of each class (of each natural client).
        rng: a generator of random numbers.
        owner: the natural client of every sample, where there are such.

    Returns:
        Of every sample, whether it is held out.

    >>> choose_held_out(np.array([0, 0, 0, 0, 1]), 0.5, np.random.default_rng(0)).sum().item()
    2
    """
    held_out = choose_share(classes, share, rng, owner)
    groupings = [classes] if owner is None else [classes, owner]
    for groups in groupings:
        _, first, number = np.unique(groups, return_index=True, return_inverse=True)
        kept = np.bincount(number[~held_out], minlength=len(first))
        held_out[first[kept == 0]] = False
    return held_out


def hold_out(samples: Samples, share: float, rng: np.random.Generator) -> tuple[Samples, Samples]:
    """Return what is kept and what is held out: the same share of every class."""
    held_out = choose_held_out(samples.y.numpy(), share, rng)
    return samples.only(~held_out), samples.only(held_out)


def with_test(
    samples: Samples,
    num_classes: int,
    owner: Index | None,
    class_names: Sequence[str] | None,
    client_names: Sequence[str] | None,
) -> Source:
    """Make a source of samples that came without a test set: a share of them is held out.

    Args:
        samples: all that there are.
        num_classes: how many classes they have.
        owner: the natural client of every sample; None: there are none.
        class_names: in the order of their numbers.
        client_names: of the natural clients.

    Raises:
        InputError: there are too few samples.
    """
    held_out = choose_held_out(samples.y.numpy(), TEST_SHARE, stream(0, "own", "test"), owner)
    if not held_out.any():
        raise InputError(
            f"data: {len(samples)} samples are too few to hold some out for testing; give a test "
            "set"
        )
    return Source(
        samples.only(~held_out),
        samples.only(held_out),
        num_classes,
        peak(samples),
        None if owner is None else owner[~held_out],
        None if owner is None else owner[held_out],
        class_names,
        client_names,
    )


def for_tuning(source: Source, share: float, seed: int) -> Source:
    """Test on a share of the training samples, so that the test set stays unseen.

    Args:
        source: the data set.
        share: of the training samples.
        seed: of the choice.

    Raises:
        InputError: the share is too small.
    """
    train, owner = source.train, source.owner
    held_out = choose_held_out(train.y.numpy(), share, stream(seed, "holdout"), owner)
    if not held_out.any():
        raise InputError(
            f"data.holdout = {share}: leaves nothing to test on, of {len(train)} training samples"
        )
    return replace(
        source,
        train=train.only(~held_out),
        test=replace(train.only(held_out), augment=None),
        owner=None if owner is None else owner[~held_out],
        test_owner=None if owner is None else owner[held_out],
    )


def choose_share(
    classes: Index,
    share: float,
    rng: np.random.Generator,
    owner: Index | None = None,
    least: int = 0,
) -> NDArray[np.bool_]:
    """Choose the same share of every class (of every owner), and of each at least so many.

    Args:
        classes: of every sample.
        share: of each class (of each natural client).
        rng: a generator of random numbers.
        owner: the natural client of every sample, where there are such.
        least: how many of each class (of each natural client) there must be.

    Returns:
        Of every sample, whether it is chosen.
    """
    stride = int(classes.max(initial=0)) + 1
    kinds = classes if owner is None else owner * stride + classes
    groups, number = np.unique(kinds, return_inverse=True)
    sizes = np.bincount(number, minlength=len(groups))
    counts = _round_shares(sizes, groups // stride, share, rng)
    chosen = np.zeros(len(classes), dtype=bool)
    for part, count in zip(find_places(number, len(groups)), counts, strict=True):
        chosen[rng.permutation(part)[: max(least, int(count))]] = True
    return chosen


def _round_shares(
    sizes: Index, owner: Index, share: float, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Round the share of every group.

    Where that is a whole sample off, running totals are rounded instead, owner by owner.
    """
    counts: NDArray[np.float64] = np.rint(share * sizes)
    excess = np.bincount(owner, counts - share * sizes)  # of each owner
    if np.abs(excess).max(initial=0) >= 1 or abs(excess.sum()) >= 1:
        order = rng.permutation(len(sizes))  # or the same classes would always be rounded up
        order = order[np.argsort(owner[order], kind="stable")]
        counts[order] = np.diff(np.rint(share * np.cumsum(sizes[order])), prepend=0)
    return counts
