"""Curves over seeds, and their pictures."""

from __future__ import annotations

from pathlib import Path

from fedbr.core.records import RoundRecord, RunRecord
from fedbr.recipe.schema import Variant
from fedbr.report.curves import MOST, band, curve
from fedbr.report.plots import convergence_picture
from fedbr.report.style import COLORS, look
from fedbr.run.results import Accuracy, RunResult, Seconds, Traffic


def test_a_band_goes_as_far_as_some_seed() -> None:
    over_seeds = band([{2: 10.0, 4: 20.0, 5: 30.0}, {2: 20.0, 4: 40.0}])
    assert over_seeds.rounds == [2, 4, 5]
    assert over_seeds.mean == [15, 30, 30]
    assert (over_seeds.low, over_seeds.high, over_seeds.whole) == ([10, 20, 30], [20, 40, 30], 2)
    assert band([]).rounds == []
    assert band([{1: 5.0}, {2: 6.0}]).whole == 0


def run(rounds: int) -> RunResult:
    """A run that gets a little better with every round, of a second and a megabyte."""
    records = []
    for r in range(1, rounds + 1):
        records.append(
            RoundRecord(
                round=r,
                clients=(0,),
                loss=1.0,
                accuracy=r / 2000,
                seconds_train=1.0,
                bytes_up=500_000,
                bytes_down=500_000,
            )
        )
    return RunResult(
        variant=Variant(label="FedAvg"),
        seed=0,
        finished=True,
        record=RunRecord(),
        rounds=records,
        accuracy=Accuracy(None, None, None, None),
        rounds_to={},
        bytes=Traffic(0, 0),
        seconds=Seconds(0.0, 0.0, 0.0),
    )


def test_long_curves_are_thinned_and_keep_their_ends() -> None:
    whole, half = run(2000), run(1000)
    thinned = curve([whole, half])
    assert len(thinned.band.rounds) == MOST
    assert (thinned.band.rounds[0], thinned.band.rounds[-1]) == (1, 2000)
    assert thinned.places["seconds"][-1] == thinned.places["megabytes"][-1] == 2000
    assert (
        thinned.band.rounds[thinned.band.whole - 1]
        <= 1000
        < thinned.band.rounds[thinned.band.whole]
    )


def test_looks_differ() -> None:
    assert len({look(i) for i in range(4 * len(COLORS))}) == 4 * len(COLORS)


def test_a_picture_for_a_page(tmp_path: Path) -> None:
    convergence_picture(
        {"a $x$": [{1: 0.1, 2: 0.2}, {1: 0.2}], "b": [{1: 0.5}], "c": []},
        tmp_path / "p.svg",
        "title",
    )
    assert "<svg" in (tmp_path / "p.svg").read_text()
    assert [file.name for file in tmp_path.iterdir()] == ["p.svg"]
