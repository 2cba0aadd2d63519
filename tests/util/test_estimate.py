"""Means over seeds and paired differences, against values by hand and against SciPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats

from fedbr.util.estimate import Difference, Estimate, Verdict, format_signed


def difference(first: list[float], second: list[float], **more: bool) -> Difference:
    made = Difference.of(dict(enumerate(first)), dict(enumerate(second)), **more)
    assert made is not None
    return made


def test_by_hand() -> None:
    made = difference([0.9, 0.8, 0.7], [0.6, 0.7, 0.5])
    half = 4.302652729696 * 0.1 / math.sqrt(3)
    assert made.mean == pytest.approx(0.2)  # of 0.3, 0.1, 0.2, whose deviation is 0.1
    assert made.spread == pytest.approx(0.1)
    assert made.interval == pytest.approx((0.2 - half, 0.2 + half))
    assert (made.ahead_on, made.level_on, made.seeds, made.left_out) == (3, 0, (0, 1, 2), ())
    assert made.verdict is Verdict.UNDECIDED


@pytest.mark.parametrize("count", [2, 3, 4, 10, 40])
def test_it_is_the_paired_t_test(count: int) -> None:
    rng = np.random.default_rng(count)
    first, second = rng.normal(1, 1, count), rng.normal(0, 1, count)
    expected = scipy.stats.ttest_rel(first, second).confidence_interval(0.95)
    made = difference(first.tolist(), second.tolist())
    assert made.interval == pytest.approx((expected.low, expected.high))
    assert (made.verdict is Verdict.UNDECIDED) == (expected.low <= 0 <= expected.high)


def test_ahead_and_behind() -> None:
    good, bad = [0.91, 0.85, 0.88, 0.90], [0.80, 0.79, 0.81, 0.78]
    assert difference(good, bad).verdict is Verdict.AHEAD
    assert difference(bad, good).verdict is Verdict.BEHIND
    assert difference(bad, good).ahead_on == 0
    assert difference(bad, good, higher_is_better=False).verdict is Verdict.AHEAD
    assert difference(bad, good, higher_is_better=False).ahead_on == 4


def test_one_seed_decides_nothing() -> None:
    made = difference([0.5], [0.4])
    assert made.interval is None
    assert made.verdict is Verdict.UNDECIDED
    assert made.show_interval() == "-"


def test_seeds_that_one_of_the_two_lacks_are_left_out_and_named() -> None:
    first = {0: 0.5, 1: None, 2: 0.4, 5: 0.1}
    made = Difference.of(first, {0: 0.5, 1: 0.3, 2: float("nan"), 4: 0.9})
    assert made is not None
    assert (made.seeds, made.left_out) == ((0,), (1, 2, 4, 5))
    assert (made.ahead_on, made.level_on) == (0, 1)
    assert Difference.of({0: 0.5}, {1: 0.5}) is None
    assert Difference.of({}, {}) is None


def test_no_difference_is_no_decision() -> None:
    made = difference([0.5, 0.6], [0.5, 0.6])
    assert made.interval == (0, 0)
    assert made.verdict is Verdict.UNDECIDED
    assert made.show_interval() == "[0.0, 0.0]"


@pytest.mark.parametrize("scale", [1.0, 0.1, 0.01, 0.001, -0.001])
def test_what_excludes_zero_is_never_shown_with_a_bound_of_zero(scale: float) -> None:
    made = difference([scale * gain for gain in (1.0, 1.5, 1.2)], [0.0, 0.0, 0.0])
    assert made.verdict is not Verdict.UNDECIDED
    shown = made.show_interval().strip("[]").split(", ")
    assert all(float(bound.replace("−", "-")) * scale > 0 for bound in shown)
    assert made.show_mean() != "0.0"


def test_rounding_decides_nothing() -> None:
    made = difference([0.1 + 0.2, 1e-13, 5.0], [0.3, 0.0, 5.0])
    assert made.verdict is Verdict.UNDECIDED
    assert (made.ahead_on, made.level_on, made.mean) == (0, 3, 0)


def test_estimates() -> None:
    halves = Estimate.of([11, 12, None])
    assert halves is not None
    assert halves.show(0) == "12 ± 1"
    assert Estimate.of([float("nan"), None]) is None
    assert Estimate(0.25, None, 1).show() == "0.2"
    assert format_signed(-0.04, 1, plus=True) == "0.0"
    assert format_signed(-3, 0) == "−3"
