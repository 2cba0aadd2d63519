"""The one judge: by the interval, over the seeds on which both are finished."""

from __future__ import annotations

import pytest
from made import compared, of, results, run

from fedbr.report.compare import compare
from fedbr.util.estimate import Verdict


@pytest.mark.parametrize(
    ("gains", "verdict"),
    [
        ([0.20, 0.19, 0.21], Verdict.AHEAD),
        ([-0.20, -0.19, -0.21], Verdict.BEHIND),
        ([0.20, 0.05, 0.10], Verdict.UNDECIDED),
        ([0.0, 0.0, 0.0], Verdict.UNDECIDED),
        ([0.20], Verdict.UNDECIDED),
    ],
)
def test_the_interval_decides(gains: list[float], verdict: Verdict) -> None:
    comparison = of({"FedAvg": [0.5] * len(gains), "b": [0.5 + gain for gain in gains]})
    (pair,) = comparison.pairs
    assert pair.verdict is verdict


def test_who_diverged_on_some_seed_is_not_ahead() -> None:
    runs = [run("FedAvg", seed, 0.5) for seed in range(4)]
    runs += [run("b", seed, 0.8 + seed / 100) for seed in range(3)]
    (pair,) = compared(*runs, run("b", 3, 0.9, diverged=True)).pairs
    assert pair.top5 is not None
    assert pair.top5.verdict is Verdict.AHEAD
    assert pair.top5.left_out == (3,)
    assert pair.verdict is Verdict.UNDECIDED


def test_who_diverged_on_some_seed_and_is_behind_on_the_others_is_behind() -> None:
    runs = [run("FedAvg", seed, 0.9) for seed in range(4)]
    runs += [run("b", seed, 0.3 + seed / 1000) for seed in range(3)]
    (pair,) = compared(*runs, run("b", 3, 0.3, diverged=True)).pairs
    assert pair.verdict is Verdict.BEHIND


def test_costs_are_compared_on_the_same_seeds() -> None:
    runs = [run("FedAvg", 0, 0.5, seconds=60, diverged=True), run("FedAvg", 1, 0.5, seconds=20)]
    runs += [run("b", 0, 0.6, seconds=60), run("b", 1, 0.6, seconds=20)]
    (pair,) = compared(*runs).pairs
    assert pair.seconds_factor == 1


def test_speed_up_is_of_the_seeds_that_both_have_settled() -> None:
    runs = [run("FedAvg", 0, 0.5), run("FedAvg", 1, 0.5, finished=False, rounds=2)]
    runs += [run("b", 0, 0.5), run("b", 1, 0.9, 3)]
    (pair,) = compared(*runs).pairs
    assert pair.speed_up is None  # on seed 0 neither of them reached the target


def test_fedavg_is_the_baseline_or_the_first() -> None:
    baseline = of({"b": [0.5], "FedAvg": [0.4]}).baseline
    assert baseline is not None
    assert baseline.label == "FedAvg"
    baseline = of({"b": [0.5], "c": [0.6]}).baseline
    assert baseline is not None
    assert baseline.label == "b"
    assert compare(results()).baseline is None


def test_the_best_is_one_that_is_ahead_if_there_is_one() -> None:
    best = of({"FedAvg": [0.5, 0.5], "lucky": [0.9, 0.6], "sure": [0.6, 0.601]}).best
    assert best is not None
    assert best.variant.label == "sure"
    best = of({"FedAvg": [0.5, 0.5], "lucky": [0.9, 0.6], "level": [0.4, 0.6]}).best
    assert best is not None
    assert best.variant.label == "lucky"


def test_speed_up_is_a_bound_where_the_target_was_missed() -> None:
    def speed_up(base: int | None, mine: int | None) -> str:
        (pair,) = compared(run("FedAvg", 0, 0.7, base), run("b", 0, 0.7, mine)).pairs
        return str(pair.speed_up)

    assert speed_up(8, 2) == "4.0×"
    assert speed_up(None, 2) == ">5.0×"
    assert speed_up(8, None) == "None"
