"""Tables and page: means, spreads, bounds, and text that cannot break out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedbr.recipe import load as config
from fedbr.report import tables, verdicts
from fedbr.report.write import write_report
from fedbr.run import loop as experiment


def run(
    label: str, seed: int, top5: float, reached: int | None, methods: list[str], **more: Any
) -> dict[str, Any]:
    return {
        "label": label, "methods": [{"name": m} for m in methods], "seed": seed, "rounds": 10, "finished": True,
        "accuracy": {"top5": top5, "final": top5, "best": top5, "worst_top5": top5 / 2},
        "rounds_to": {"0.8": reached}, "bytes": {"up": 10_000_000, "down": 30_000_000},
        "seconds": {"train": 20.0, "evaluate": 1.0, "total": 21.0}, "diverged": False,
        "split": {"effective_classes": [1.0, 2.0]},
    } | more  # fmt: skip


def results(*runs: dict[str, Any]) -> dict[str, Any]:
    recipe = config.load("digits", ["train.rounds=10"]).model_dump()
    return {"recipe": recipe, "runs": list(runs), "metrics": {}}


def test_mean_spread_and_speed_up() -> None:
    found = results(
        run("FedAvg", 0, 0.7, 8, []), run("FedAvg", 1, 0.8, 10, []),
        run("FedBR", 0, 0.9, 2, ["fedbr"]), run("FedBR", 1, 0.9, 4, ["fedbr"]),
    )  # fmt: skip
    header, (avg, br) = tables.compare(found)
    assert header[4] == "rounds to 80 %"
    assert avg == [
        "FedAvg",
        "75.0 ± 7.1",
        "75.0 ± 7.1",
        "37.5 ± 3.5",
        "9 ± 1",
        "1.0×",
        "4.00",
        "2.00",
    ]
    assert br[1] == "90.0 ± 0.0"
    assert br[5] == "3.0×"
    (sentence,) = tables.sentences(found)
    assert sentence == (
        "FedBR: 15.0 ± 7.1 points above FedAvg in the 5 best rounds, ahead on 2 of 2 seeds; "
        "80 % in 3 ± 1 rounds against 9 ± 1 (3.0×)."
    )


def test_targets_that_were_not_reached_make_bounds() -> None:
    base = [run("FedAvg", 0, 0.7, None, []), run("FedAvg", 1, 0.8, 10, [])]
    mine = [run("FedBR", 0, 0.9, 2, ["fedbr"]), run("FedBR", 1, 0.6, 3, ["fedbr"])]
    _, (avg, br) = tables.compare(results(*base, *mine))
    assert avg[4] == "10 (1 of 2)"
    assert br[5] == ">4.0×"
    assert "ahead on 1 of 2 seeds" in tables.sentences(results(*base, *mine))[0]
    _, (_, worse) = tables.compare(
        results(run("FedAvg", 0, 0.9, 4, []), run("FedBR", 0, 0.7, None, ["fedbr"]))
    )
    assert worse[5] == "-"
    assert (
        "20.0 points below"
        in tables.sentences(
            results(run("FedAvg", 0, 0.9, 4, []), run("FedBR", 0, 0.7, None, ["b"]))
        )[0]
    )


def compared(*runs: dict[str, Any]) -> dict[str, Any]:
    """Return results whose recipe has the variants that there are runs of."""
    found = results(*runs)
    found["recipe"]["compare"] = [
        {"label": label} for label in dict.fromkeys(run["label"] for run in runs)
    ]
    return found


def of(variants: dict[str, dict[int, float | None]]) -> list[str]:
    """Return the headline of variants, the first without methods, with so high an accuracy on every
    finished seed.
    """
    runs = [
        run(label, seed, top5 or 0.0, 3, ["x"] if i else [], finished=top5 is not None)
        for i, (label, seeds) in enumerate(variants.items())
        for seed, top5 in seeds.items()
    ]
    return verdicts.headline(compared(*runs))


def test_a_base_that_is_the_best() -> None:
    head = of({"FedAvg": {0: 0.9, 1: 0.8}, "b": {0: 0.5, 1: 0.6}, "c": {0: 0.4, 1: 0.5}})
    assert head[0].startswith("In its 5 best rounds b is 30.0 points below FedAvg")
    assert head[2] == "FedAvg has the highest mean of 3 variants."


@pytest.mark.parametrize(
    ("gain", "first"),
    [
        (0.2, "b reaches"),
        (-0.2, "In its 5 best"),
        (0.0, "In its 5 best"),
        (-0.001, "In its 5 best"),
    ],
)
def test_who_is_not_ahead_is_not_praised_for_being_early(gain: float, first: str) -> None:
    runs = [run("FedAvg", seed, 0.6 + seed / 100, 9, []) for seed in (0, 1, 2)]
    runs += [
        run("b", seed, 0.6 + seed / 100 + gain * (1 + seed / 10), 3, ["x"]) for seed in (0, 1, 2)
    ]
    head = verdicts.headline(compared(*runs))
    assert head[0].startswith(first)
    assert ("3.0× fewer" in " ".join(head)) == (gain > 0)


def test_stacks_with_fewer_seeds_do_not_win_by_them() -> None:
    head = of(
        {
            "FedAvg": {0: 0.9, 1: 0.5, 2: 0.4},
            "b": {0: 0.95, 1: 0.6, 2: 0.5},
            "c": {0: 0.85, 1: None, 2: None},
        }
    )
    assert head[1].startswith("In its 5 best rounds b is 8.3 points above FedAvg")
    assert (
        head[2]
        == "b is the furthest above FedAvg of what can be compared; not all variants have the same seeds."
    )
    (early,) = of({"FedAvg": {0: None}, "b": {0: 0.95}, "c": {0: 0.85}})
    assert early.startswith(
        "FedAvg, with which the others would be compared, is not finished yet. b reaches 80 %"
    )


def test_who_diverged_has_no_figure_and_is_not_ahead() -> None:
    at = {"round": 4, "client": 1, "what": "x"}
    runs = [run("FedAvg", seed, 0.5, 3, []) for seed in (0, 1, 2)]
    runs += [run("b", seed, 0.8 + seed / 100, 2, ["x"]) for seed in (0, 1)]
    found = compared(*runs, run("b", 2, 0.9, 1, ["x"], diverged=True, diverged_at=at))
    assert verdicts.paired_table(found)[1][0][4] == "diverged on 1 of 3"
    assert verdicts.left_out(found) == [
        "b: seed 2 is left out, as it or FedAvg has not finished there or diverged."
    ]
    cells = tables.compare(found)[1][1]
    assert cells[1] == "80.5 ± 0.7"
    assert cells[4] == "2 ± 0 (2 of 3)"


def test_diverged_runs_are_marked() -> None:
    bad = run(
        "FedBR",
        3,
        0.2,
        None,
        ["fedbr"],
        diverged=True,
        diverged_at={"round": 4, "client": 1, "what": "x"},
    )
    _, (_, row) = tables.compare(results(run("FedAvg", 3, 0.9, 4, []), bad))
    assert row[0] == "FedBR (diverged: seed 3, round 4, client 1)"


def test_several_divergences_are_counted() -> None:
    at = {"round": 4, "client": 1, "what": "x"}
    bad = [
        run("FedBR", seed, 0.2, None, ["fedbr"], diverged=True, diverged_at=at) for seed in (0, 1)
    ]
    _, (row,) = tables.compare(results(*bad))
    assert row[0] == "FedBR (diverged: 2 of 2 seeds)"


def test_a_run_that_goes_on_bounds_nothing() -> None:
    base = [run("FedAvg", 0, 0.1, None, [], finished=False, rounds=1), run("FedAvg", 1, 0.8, 8, [])]
    mine = [run("FedBR", 0, 0.9, 2, ["fedbr"]), run("FedBR", 1, 0.9, 4, ["fedbr"])]
    _, (_, br) = tables.compare(results(*base, *mine))
    assert br[5] == "2.0×"  # of seed 1 alone
    assert tables.sentences(results(*base, *mine))[0].startswith("FedBR: 10.0 points above FedAvg")


def test_a_run_that_goes_on_is_in_no_mean() -> None:
    done, begun = (
        run("FedAvg", 0, 0.8, 8, []),
        run("FedAvg", 1, 0.1, None, [], finished=False, rounds=1),
    )
    _, (row,) = tables.compare(results(done, begun))
    assert row[:5] == ["FedAvg (1 more unfinished)", "80.0", "80.0", "40.0", "8"]
    _, (row,) = tables.compare(
        results(begun)
    )  # while there is nothing else, it is shown for what it is
    assert row[:2] == ["FedAvg (so far: 1 of 10 rounds)", "10.0"]


def test_halves_of_rounds_go_up() -> None:
    assert tables.Figure.of([11, 12]).show(0) == "12 ± 1"
    assert tables.Figure.of([12, 13]).show(0) == "13 ± 1"
    assert tables.Figure.of([0.25]).show(1) == "0.2"


def test_as_many_rounds_are_not_1_0_times_fewer() -> None:
    head = of({"FedAvg": {0: 0.8, 1: 0.8}, "b": {0: 0.9, 1: 0.9}})
    assert head[0] == "b reaches 80 % in 3 ± 0 rounds, FedAvg in 3 ± 0."


def test_fewer_than_five_tests_are_said() -> None:
    assert tables.few_tests({"rounds": 10, "evaluate_every": 2}) == ""
    assert tables.few_tests({"rounds": 7, "evaluate_every": 2}).startswith(
        "only 4 rounds are tested"
    )
    assert tables.few_tests({"rounds": 7, "evaluate_every": 0}).startswith(
        "only one round is tested"
    )


def test_who_diverged_on_every_seed_is_said_to() -> None:
    at = {"round": 1, "client": 1, "what": "x"}
    runs = [
        run(label, seed, top5, 3, ["x"] * (label != "FedAvg"))
        for label, top5 in (("FedAvg", 0.5), ("b", 0.6))
        for seed in (0, 1)
    ]
    lost = [run("c", seed, 0.1, None, ["x"], diverged=True, diverged_at=at) for seed in (0, 1)]
    found = compared(*runs, *lost)
    assert tables.sentences(found)[1] == "c and FedAvg: c diverged on every seed."
    assert verdicts.paired_table(found)[1][1][4] == "diverged on 2 of 2"
    assert (
        verdicts.headline(found)[-1]
        == "b is the furthest above FedAvg of what can be compared; c diverged."
    )


def test_what_was_not_tuned_has_a_dagger() -> None:
    found = results(
        run("FedAvg", 0, 0.7, 8, [], tuned=True), run("FedBR", 0, 0.9, 2, ["fedbr"], tuned=False)
    )
    assert [row[0] for row in tables.compare(found)[1]] == ["FedAvg", "FedBR †"]
    assert tables.sentences(found)[-1].startswith("† not tuned")


def test_nothing_yet() -> None:
    assert tables.compare(results())[1] == []
    assert tables.sentences(results()) == []


def test_labels_are_shown_not_run(tmp_path: Path) -> None:
    label = "<script>alert(1)</script>/..\\&$x"
    recipe = config.load(
        "digits", ["train.rounds=1", "train.local_steps=1", "model.name=mlp", "model.width=0.1"]
    )
    values = recipe.model_dump(exclude_none=True)
    values["model"] = {"name": "mlp"}
    values["compare"] = [
        {"label": label, "methods": []},
        {"label": label.replace("/", "?"), "methods": ["fedbr"]},
    ]
    experiment.run(config.parse(values), tmp_path / "o")
    assert len(list((tmp_path / "o" / "runs").iterdir())) == 2
    html = write_report([tmp_path / "o"]).read_text()
    assert "<script>alert(1)" not in html
    assert "&lt;script&gt;alert(1)" in html


def test_a_page_of_a_run_that_has_only_begun(tmp_path: Path) -> None:
    recipe = config.load("digits", ["train.rounds=2", "train.local_steps=1", "train.seeds=0,1"])

    class Stop(Exception):
        pass

    def stop(label: str, seed: int, line: dict[str, Any] | None) -> None:
        if line:
            raise Stop

    with pytest.raises(Stop):
        experiment.run(recipe, tmp_path / "o", watch=stop)
    html = write_report([tmp_path / "o"]).read_text()
    assert "so far: 1 of 2 rounds" in html
