"""Means over seeds, and what a difference over the same seeds says."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeGuard

from scipy.special import stdtrit

LEVEL = 0.95  # of confidence intervals
EXACT = 9  # decimals of a difference; what lies behind them is rounding
MINUS = "\N{MINUS SIGN}"


class Verdict(StrEnum):
    """What a paired difference decides."""

    AHEAD = "ahead"
    BEHIND = "behind"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds, its spread, and the number of seeds."""

    mean: float
    spread: float | None  # sample standard deviation; None: one seed has none
    count: int

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Estimate | None:
        """Estimate from values; missing ones are left out. None if all are missing.

        >>> Estimate.of([1.0, 3.0, None])
        Estimate(mean=2.0, spread=1.4142135623730951, count=2)
        """
        finite = [value for value in values if _is_finite(value)]
        if not finite:
            return None
        spread = statistics.stdev(finite) if len(finite) > 1 else None
        return cls(statistics.fmean(finite), spread, len(finite))

    def show(self, digits: int = 1, factor: float = 1.0) -> str:
        """Format the mean, and the spread if there is one.

        Args:
            digits: behind the point.
            factor: by which both are multiplied.

        >>> Estimate(0.5, 0.125, 3).show(factor=100)
        '50.0 ± 12.5'
        """
        text = format_rounded(self.mean * factor, digits)
        if self.spread is None:
            return text
        return f"{text} ± {format_rounded(self.spread * factor, digits)}"


@dataclass(frozen=True)
class Difference:
    """One variant minus another, seed by seed: same split, same initial weights."""

    mean: float
    spread: float | None  # sample standard deviation; None: one seed has none
    interval: tuple[float, float] | None  # confidence interval of the mean
    seeds: tuple[int, ...]
    ahead_on: int  # seeds on which the first is better
    level_on: int  # seeds on which both are the same
    left_out: tuple[int, ...] = ()  # seeds that one of the two lacks
    higher_is_better: bool = True

    @classmethod
    def of(
        cls,
        first: Mapping[int, float | None],
        second: Mapping[int, float | None],
        *,
        higher_is_better: bool = True,
    ) -> Difference | None:
        """Compare two variants over the seeds that both have.

        Args:
            first: the values of one variant, by seed.
            second: those of the other.

        Returns:
            None if there is no seed that both have.

        >>> Difference.of({0: 3.0, 1: 4.0}, {0: 1.0, 1: 1.0}).mean
        2.5
        """
        gains = {}
        for seed in sorted(first.keys() & second.keys()):
            one, other = first[seed], second[seed]
            if _is_finite(one) and _is_finite(other):
                gains[seed] = round(one - other, EXACT)
        if not gains:
            return None
        values = list(gains.values())
        mean, spread, interval = statistics.fmean(values), None, None
        if len(values) > 1:
            spread = statistics.stdev(values)
            half = _quantile(len(values) - 1) * spread / math.sqrt(len(values))
            interval = (round(mean - half, EXACT), round(mean + half, EXACT))
        sign = 1 if higher_is_better else -1
        return cls(
            mean=mean,
            spread=spread,
            interval=interval,
            seeds=tuple(gains),
            ahead_on=sum(sign * gain > 0 for gain in values),
            level_on=sum(gain == 0 for gain in values),
            left_out=tuple(sorted((first.keys() | second.keys()) - gains.keys())),
            higher_is_better=higher_is_better,
        )

    @property
    def verdict(self) -> Verdict:
        """Whether the first is ahead: decided only if the interval does not contain 0."""
        if self.interval is None:
            return Verdict.UNDECIDED
        low, high = self.interval
        if low <= 0 <= high:
            return Verdict.UNDECIDED
        is_ahead = (low > 0) == self.higher_is_better
        return Verdict.AHEAD if is_ahead else Verdict.BEHIND

    def digits(self, least: int = 1) -> int:
        """Return how many digits to show so that only a bound that is 0 looks like 0.

        >>> Difference.of({0: 1.0, 1: 1.1}, {0: 0.0, 1: 0.24}).digits()
        2
        """
        bounds = [bound for bound in self.interval or () if bound]
        for digits in range(least, EXACT + 1):
            if all(round(bound, digits) for bound in bounds):
                return digits
        return least

    def show_mean(self, least: int = 1) -> str:
        """Format the mean with its sign.

        >>> Difference.of({0: 1.0}, {0: 3.5}).show_mean()
        '−2.5'
        """
        return format_signed(self.mean, self.digits(least), plus=True)

    def show_interval(self, least: int = 1) -> str:
        """Format the interval; a dash if there is none.

        >>> Difference.of({0: 2.0, 1: 2.2}, {0: 1.0, 1: 1.0}).show_interval()
        '[−0.2, 2.4]'
        """
        if self.interval is None:
            return "-"
        low, high = (format_signed(bound, self.digits(least)) for bound in self.interval)
        return f"[{low}, {high}]"


def format_signed(value: float, digits: int, plus: bool = False) -> str:
    """Format a number with a typographic minus sign; a zero has no sign.

    >>> format_signed(-0.01, 1), format_signed(2, 1, plus=True)
    ('0.0', '+2.0')
    """
    value = round(value, digits) + 0.0
    sign = ""
    if value < 0:
        sign = MINUS
    elif plus and value > 0:
        sign = "+"
    return f"{sign}{abs(value):.{digits}f}"


def format_rounded(value: float, digits: int) -> str:
    """Format a number; without digits a half is rounded up, so that 11.5 and 12.5 differ by one.

    >>> format_rounded(11.5, 0), format_rounded(12.5, 0)
    ('12', '13')
    """
    return f"{value:.{digits}f}" if digits else str(math.floor(value + 0.5))


def _is_finite(value: float | None) -> TypeGuard[float]:
    return value is not None and math.isfinite(value)


def _quantile(freedom: int) -> float:
    """Return the t within which Student's distribution has 95 % of its weight."""
    return float(stdtrit(freedom, (1 + LEVEL) / 2))
