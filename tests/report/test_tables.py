"""Tables: means, spreads, bounds, and the state of what is not finished."""

from __future__ import annotations

from pathlib import Path

from folders import make, read_one
from made import compared, results, run

from fedbr.report.compare import compare
from fedbr.report.tables import comparison_table, cost_table, paired_table


def test_mean_spread_and_speed_up() -> None:
    header, (avg, br) = comparison_table(
        compared(
            run("FedAvg", 0, 0.7, 8),
            run("FedAvg", 1, 0.8, 10),
            run("FedBR", 0, 0.9, 2),
            run("FedBR", 1, 0.9, 4),
        )
    )
    assert header[4] == "rounds to 80 %"
    assert avg[:4] == ["FedAvg", "75.0 ± 7.1", "75.0 ± 7.1", "37.5 ± 3.5"]
    assert avg[4:] == ["9 ± 1", "1.0×", "4.00", "2.00"]
    assert br[1] == "90.0 ± 0.0"
    assert br[5] == "3.0×"


def test_targets_that_were_not_reached_make_bounds() -> None:
    _, (avg, br) = comparison_table(
        compared(
            run("FedAvg", 0, 0.7),
            run("FedAvg", 1, 0.8, 10),
            run("FedBR", 0, 0.9, 2),
            run("FedBR", 1, 0.6, 3),
        )
    )
    assert avg[4] == "10 (1 of 2)"
    assert br[5] == ">4.0×"
    _, (_, worse) = comparison_table(compared(run("FedAvg", 0, 0.9, 4), run("FedBR", 0, 0.7)))
    assert worse[5] == "-"


def test_a_variant_that_diverged_has_no_figure_of_that_seed() -> None:
    runs = [run("FedAvg", seed, 0.5, 3) for seed in (0, 1, 2)]
    runs += [run("b", seed, 0.8 + seed / 100, 2) for seed in (0, 1)]
    comparison = compared(*runs, run("b", 2, 0.9, 1, diverged=True))
    assert paired_table(comparison)[1][0][4] == "diverged on 1 of 3 seeds"
    cells = comparison_table(comparison)[1][1]
    assert cells[1] == "80.5 ± 0.7"
    assert cells[4] == "2 ± 0 (2 of 3)"


def test_diverged_runs_are_marked() -> None:
    bad = run("FedBR", 3, 0.2, diverged=True)
    _, (_, row) = comparison_table(compared(run("FedAvg", 3, 0.9, 4), bad))
    assert row[0] == "FedBR (diverged: seed 3, round 4, client 1)"
    bad_runs = [run("FedBR", seed, 0.2, diverged=True) for seed in (0, 1)]
    _, (row,) = comparison_table(compared(*bad_runs))
    assert row[0] == "FedBR (diverged: 2 of 2 seeds)"


def test_a_run_that_goes_on_bounds_nothing() -> None:
    begun = run("FedAvg", 0, 0.1, finished=False, rounds=1)
    mine = [run("FedBR", 0, 0.9, 2), run("FedBR", 1, 0.9, 4)]
    _, (_, br) = comparison_table(compared(begun, run("FedAvg", 1, 0.8, 8), *mine))
    assert br[5] == "2.0×"  # of seed 1 alone


def test_a_run_that_goes_on_is_in_no_mean() -> None:
    done = run("FedAvg", 0, 0.8, 8)
    begun = run("FedAvg", 1, 0.1, finished=False, rounds=1)
    _, (row,) = comparison_table(compared(done, begun))
    assert row[:5] == ["FedAvg (1 more unfinished)", "80.0", "80.0", "40.0", "8"]
    _, (row,) = comparison_table(compared(begun))  # there is nothing else to show
    assert row[:2] == ["FedAvg (so far: 1 of 10 rounds)", "10.0"]


def test_what_was_not_tuned_has_a_dagger() -> None:
    tuned, untuned = run("FedAvg", 0, 0.7, 8, tuned=True), run("FedBR", 0, 0.9, 2, tuned=False)
    names = [row[0] for row in comparison_table(compared(tuned, untuned))[1]]
    assert names == ["FedAvg", "FedBR †"]


def test_costs_are_relative_and_up_to_the_target(tmp_path: Path) -> None:
    header, (avg, br) = cost_table(read_one(make(tmp_path / "o").path).comparison)
    assert header[5] == "MB to 50 %"
    assert avg[1:5] == ["3.00", "1.0", "0.60", "1.0"]
    assert avg[5:] == ["23.0 ± 1.7", "4.6 ± 0.5"]  # rounds 8, 8 and 7
    assert br[5] == "12.0 ± 0.0"


def test_nothing_yet() -> None:
    comparison = compare(results())
    assert comparison_table(comparison)[1] == []
    assert paired_table(comparison)[1] == []
    assert cost_table(comparison)[1] == []
