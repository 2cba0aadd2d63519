"""Paired statistics: what a difference over the same seeds says, and what it does not."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass

LEVEL = 0.95
UNDECIDED = "undecided within the spread"  # the interval contains 0


@dataclass(frozen=True)
class Paired:
    """One side minus the other, seed by seed: same split, same initial weights."""

    mean: float
    spread: float | None  # standard deviation; None: one seed has none
    half: float | None  # of the confidence interval
    wins: int
    ties: int
    seeds: tuple[int, ...]
    left_out: tuple[int, ...]  # seeds that one side lacks

    @property
    def interval(self) -> tuple[float, float] | None:
        return None if self.half is None else (self.mean - self.half, self.mean + self.half)

    @property
    def verdict(self) -> str:
        if self.interval is None:
            return "one seed, no interval"
        low, high = self.interval
        if low <= 0 <= high:
            return UNDECIDED
        return "ahead" if low > 0 else "behind"


def paired(mine: Mapping[int, float | None], theirs: Mapping[int, float | None]) -> Paired | None:
    """Compare two sides over the seeds that both have; None if there is no such seed."""
    seeds = sorted(s for s in mine.keys() & theirs.keys() if _known(mine[s]) and _known(theirs[s]))
    if not seeds:
        return None
    gains = [float(mine[s] or 0) - float(theirs[s] or 0) for s in seeds]
    spread = half = None
    if len(gains) > 1:
        spread = statistics.stdev(gains)
        half = t_quantile(LEVEL, len(gains) - 1) * spread / math.sqrt(len(gains))
    left_out = sorted((mine.keys() | theirs.keys()) - set(seeds))
    wins, ties = sum(g > 0 for g in gains), sum(g == 0 for g in gains)
    return Paired(statistics.fmean(gains), spread, half, wins, ties, tuple(seeds), tuple(left_out))


def _known(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def t_quantile(level: float, freedom: int) -> float:
    """Return the t within which Student's distribution has so much of its weight, on both sides
    together.
    """
    low, high = (
        0.0,
        math.pi / 2,
    )  # angles: t = sqrt(freedom) tan(angle), and the weight grows with the angle
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _weight(middle, freedom) < level else (low, middle)
    return math.sqrt(freedom) * math.tan(low)


def luck(count: int) -> float:
    """Return how often the mean of so many differences exceeds their standard deviation though
    there is none.
    """
    freedom = count - 1
    return 1 - _weight(math.atan(math.sqrt(count / freedom)), freedom)


def _weight(angle: float, freedom: int) -> float:
    """P(|T| <= sqrt(freedom) tan(angle)): the finite sums of Abramowitz and Stegun, 26.7.3 and
    26.7.4.
    """
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term, total = (cosine if odd else 1.0), 0.0
    for k in range(2 + odd, freedom + 1, 2):
        total += term
        term *= cosine**2 * (k - 1) / k
    return 2 / math.pi * (angle + sine * total) if odd else sine * total
