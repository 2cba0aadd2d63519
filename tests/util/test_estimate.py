"""Paired statistics against values by hand and against SciPy."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedbr.report.statistics import luck, paired, t_quantile


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 7, 9, 30, 101])
def test_quantiles_are_those_of_scipy(freedom: int) -> None:
    stats = pytest.importorskip("scipy.stats")
    for level in (0.5, 0.9, 0.95, 0.99):
        assert t_quantile(level, freedom) == pytest.approx(
            stats.t.ppf((1 + level) / 2, freedom), rel=1e-9
        )


def test_by_hand() -> None:
    found = paired({0: 0.9, 1: 0.8, 2: 0.7}, {0: 0.6, 1: 0.7, 2: 0.5})
    assert found is not None
    assert found.mean == pytest.approx(0.2)  # of 0.3, 0.1, 0.2, whose deviation is 0.1
    assert found.half == pytest.approx(4.302652729696 * 0.1 / math.sqrt(3))
    assert found.interval == pytest.approx((-0.0484, 0.4484), abs=1e-4)
    assert (found.wins, found.ties, found.seeds, found.left_out) == (3, 0, (0, 1, 2), ())
    assert found.verdict == "undecided within the spread"


def test_it_is_the_paired_t_test() -> None:
    stats = pytest.importorskip("scipy.stats")
    mine, theirs = [0.91, 0.85, 0.88, 0.90], [0.80, 0.79, 0.81, 0.78]
    found = paired(dict(enumerate(mine)), dict(enumerate(theirs)))
    wanted = stats.ttest_rel(mine, theirs).confidence_interval(0.95)
    assert found is not None
    assert found.interval == pytest.approx((wanted.low, wanted.high))
    assert found.verdict == "ahead"
    other = paired(dict(enumerate(theirs)), dict(enumerate(mine)))
    assert other is not None
    assert other.verdict == "behind"
    assert other.wins == 0


def test_one_seed_has_no_interval() -> None:
    found = paired({3: 0.5}, {3: 0.4})
    assert found is not None
    assert found.interval is None
    assert found.verdict == "one seed, no interval"


def test_seeds_that_one_side_lacks_are_left_out_and_named() -> None:
    found = paired({0: 0.5, 1: None, 2: 0.4, 5: 0.1}, {0: 0.5, 1: 0.3, 2: float("nan"), 4: 0.9})
    assert found is not None
    assert (found.seeds, found.left_out) == ((0,), (1, 2, 4, 5))
    assert (found.wins, found.ties) == (0, 1)
    assert paired({0: 0.5}, {1: 0.5}) is None
    assert paired({}, {}) is None


def test_no_difference_is_no_decision() -> None:
    found = paired({0: 0.5, 1: 0.6}, {0: 0.5, 1: 0.6})
    assert found is not None
    assert found.interval == (0, 0)
    assert found.verdict == "undecided within the spread"


def test_how_often_noise_exceeds_its_own_spread() -> None:
    rng = np.random.default_rng(0)
    for count in (2, 3, 5):
        noise = rng.normal(size=(200_000, count))
        seen = (abs(noise.mean(axis=1)) > noise.std(axis=1, ddof=1)).mean()
        assert luck(count) == pytest.approx(seen, abs=0.005)
