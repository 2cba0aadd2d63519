"""Sweeps give every variant the same budget, and choose on held-out samples."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from fedbr.cli.app import call
from fedbr.cli.tables import show_sweep
from fedbr.core.records import RoundRecord
from fedbr.recipe import load as config
from fedbr.run import sweep as sweep_module
from fedbr.run.engines import OneByOne, WholeRuns
from fedbr.run.folder import ResultFolder
from fedbr.run.grid import Grid, Trial
from fedbr.run.plan import Experiment, PlannedRun
from fedbr.run.processes import Processes
from fedbr.run.results import Results
from fedbr.run.runner import execute, share_left
from fedbr.run.sweep import Case, sweep
from fedbr.run.watch import Watcher
from fedbr.util.errors import InputError, RunError

RECIPE = """
name = "small"
[data]
name = "digits"
clients = 4
[model]
name = "mlp"
hidden = [16]
[train]
rounds = 3
local_steps = 5
batch_size = 16
seeds = [0, 1]
[[compare]]
label = "FedAvg"
methods = []
[[compare]]
label = "FedProx"
methods = ["fedprox"]
"""


@pytest.fixture
def recipe(tmp_path: Path) -> str:
    (tmp_path / "small.toml").write_text(RECIPE)
    return str(tmp_path / "small.toml")


def weights(folder: Path) -> dict[str, bytes]:
    return {
        str(p.parent.relative_to(folder)): p.read_bytes()
        for p in sorted(folder.glob("**/model.safetensors"))
    }


def _alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_grids_are_read_and_refused() -> None:
    grid = Grid.parse("fedprox.mu=0.1, 1")
    assert (grid.key, grid.values, grid.tunes) == ("fedprox.mu", [0.1, 1], True)
    assert Grid.parse("train.lr=0.1").tunes
    assert Grid.parse("model.hidden=[16, 32],[64]").values == [[16, 32], [64]]
    assert not Grid.parse("train.rounds=1,2").tunes
    assert not Grid.parse("data.alpha=0.1,1").tunes
    for bad in (
        "lr=1",
        "train.lr",
        "train.lr=",
        "train.seeds=0,1",
        "compare.x=1",
        "train.lr=1,1",
        "metrics.target=1",
    ):
        with pytest.raises(InputError, match="--grid"):
            Grid.parse(bad)


def test_every_variant_tries_what_concerns_it_and_the_best_is_chosen_on_held_out_samples(
    recipe: str, tmp_path: Path
) -> None:
    grids = [Grid.parse("fedprox.mu=0.001,100"), Grid.parse("train.lr=0.05,0.5")]
    (case,) = sweep(recipe, grids, tmp_path / "out", workers=1)
    tried = [(t.label, dict(t.values)) for t in case.trials]
    assert tried == [
        ("FedAvg", {"train.lr": 0.05}),
        ("FedAvg", {"train.lr": 0.5}),
        ("FedProx", {"fedprox.mu": 0.001, "train.lr": 0.05}),
        ("FedProx", {"fedprox.mu": 0.001, "train.lr": 0.5}),
        ("FedProx", {"fedprox.mu": 100, "train.lr": 0.05}),
        ("FedProx", {"fedprox.mu": 100, "train.lr": 0.5}),
    ]
    search = json.loads((tmp_path / "out/search/results.json").read_text())
    assert search["recipe"]["data"]["holdout"] == 0.2
    # By hand: the mean over seeds of the held-out figure decides.
    for label, best in case.best.items():
        means = {}
        for trial in case.trials:
            if trial.label == label:
                runs = [r for r in search["runs"] if r["label"] == trial.variant.label]
                bad = any(r["diverged"] for r in runs)
                means[trial.variant.label] = (
                    -1 if bad else sum(r["accuracy"]["top5"] for r in runs) / 2
                )
        assert best.variant.label == max(means, key=lambda k: means[k])
    final = case.results
    assert final.recipe.data.holdout == 0
    assert all(run.variant.tuned for run in final.runs)
    chosen = {run.label: final.recipe.of(run.variant).train.lr for run in final.runs}
    assert chosen == {label: best.values["train.lr"] for label, best in case.best.items()}
    # The learning rate of a variant reaches its runs: another one gives other weights.
    models = weights(tmp_path / "out/search")
    assert models["runs/FedAvg lr=0.05-0"] != models["runs/FedAvg lr=0.5-0"]
    facts = json.loads((tmp_path / "out/sweep.json").read_text())
    assert sum(t["chosen"] for t in facts[0]["trials"]) == 2


NOTHING = Results(config.load("digits"), {}, [])


def test_a_choice_at_the_edge_of_the_grid_gets_a_remark() -> None:
    def case(key: str, values: list[Any], chosen: int) -> Case:
        trials = [Trial(None, "A", {key: value}) for value in values]  # type: ignore[arg-type]
        return Case("", trials, {"A": trials[chosen]}, 0.2, NOTHING)

    (remark,) = case("train.lr", [0.1, 0.01, 1], 2).at_the_edge
    assert remark == "A: train.lr = 1 is the largest tried; a better one may lie beyond"
    assert "smallest" in case("train.lr", [0.1, 0.01, 1], 1).at_the_edge[0]
    assert not case("train.lr", [0.1, 0.01, 1], 0).at_the_edge
    assert not case("train.lr", [0.1, 1], 1).at_the_edge  # of two one always is
    assert not case("fedbr.pseudo", ["a", "b", "c"], 0).at_the_edge


def test_what_is_not_tuned_is_marked_and_other_keys_make_cases(recipe: str, tmp_path: Path) -> None:
    grids = [Grid.parse("fedprox.mu=0.001,0.1"), Grid.parse("data.alpha=0.1,10")]
    cases = sweep(recipe, grids, tmp_path / "out", ["train.rounds=1", "train.seeds=0"], workers=1)
    assert [case.name for case in cases] == ["data.alpha=0.1", "data.alpha=10"]
    assert [case.results.recipe.data.alpha for case in cases] == [0.1, 10]
    assert {run.label: run.variant.tuned for run in cases[0].results.runs} == {
        "FedAvg": False,
        "FedProx": True,
    }
    (only,) = sweep(
        recipe, [Grid.parse("train.batch_size=8")], tmp_path / "b", ["train.rounds=1"], workers=1
    )
    assert not only.searched
    assert not (tmp_path / "b/search").exists()


def test_the_result_does_not_depend_on_the_number_of_processes(recipe: str, tmp_path: Path) -> None:
    grids = [Grid.parse("fedprox.mu=0.001,0.1")]
    for workers in (1, 2):
        sweep(recipe, grids, tmp_path / str(workers), ["train.rounds=2"], workers=workers)
    one, two = (weights(tmp_path / str(w)) for w in (1, 2))
    assert one == two
    assert len(one) == 2 * (3 + 2)  # seeds times trials and chosen


def test_killed_and_started_again_it_repeats_nothing_that_is_finished(
    recipe: str, tmp_path: Path
) -> None:
    line = ["sweep", recipe, "--grid", "fedprox.mu=0.001,0.1", "--workers", "2"]
    assert call([*line, "--out", str(tmp_path / "whole")]) == 0
    cut = tmp_path / "cut"
    process = subprocess.Popen(
        [sys.executable, "-m", "fedbr", *line, "--set", "train.local_steps=5", "--out", str(cut)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    deadline = time.monotonic() + 120
    while not list(cut.glob("search/runs/*/model.safetensors")) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    while _alive(process.pid) and time.monotonic() < deadline:  # the children notice
        time.sleep(0.05)
    assert not _alive(process.pid)
    done = {p: p.stat().st_mtime_ns for p in cut.glob("search/runs/*/model.safetensors")}
    assert done
    assert call([*line, "--out", str(cut)]) == 0
    assert {p: p.stat().st_mtime_ns for p in done} == done
    assert weights(cut) == weights(tmp_path / "whole")
    same = [json.loads((tmp_path / name / "sweep.json").read_text()) for name in ("whole", "cut")]
    assert same[0] == same[1]


def test_wrong_grids_are_refused_before_anything_is_written(
    recipe: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert call(["sweep", recipe, "--grid", "fedprox.mu=-1,0.1", "--out", str(out)]) == 2
    assert "mu" in capfd.readouterr().err
    assert not out.exists()
    assert call(["sweep", recipe, "--grid", "fedbr.lam=1,2", "--out", str(out)]) == 2
    assert "no variant of the recipe has 'fedbr'" in capfd.readouterr().err
    assert call(["sweep", recipe, "--out", str(out)]) == 2
    assert "--grid" in capfd.readouterr().err
    assert not out.exists()


def test_a_recipe_that_holds_samples_out_is_tested_on_the_test_set_in_the_end(
    recipe: str, tmp_path: Path
) -> None:
    grids = [Grid.parse("fedprox.mu=0.001,0.1")]
    (case,) = sweep(
        recipe, grids, tmp_path / "o", ["data.holdout=0.3", "train.rounds=1"], workers=1
    )
    assert case.holdout == 0.3
    assert (
        json.loads((tmp_path / "o/search/results.json").read_text())["recipe"]["data"]["holdout"]
        == 0.3
    )
    assert case.results.recipe.data.holdout == 0


def test_a_variant_whose_trials_all_diverge_is_not_chosen(
    recipe: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["sweep", recipe, "--set", "train.rounds=1", "--workers", "1", "--grid"]
    assert call([*line, "fedprox.mu=1e30,1e31", "--out", str(tmp_path / "o")]) == 0
    output = capsys.readouterr().out
    assert "FedProx: all trials diverged, so it is not compared" in output
    assert "Trials: FedAvg 1, FedProx 2" in output
    assert [
        r["label"] for r in json.loads((tmp_path / "o/final/results.json").read_text())["runs"]
    ] == ["FedAvg"] * 2
    assert call([*line, "train.lr=1e30,1e31", "--out", str(tmp_path / "p")]) == 1
    assert "every trial diverged" in capsys.readouterr().err


def test_trials_have_different_names_and_the_table_shows_their_values(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "r.toml").write_text(
        RECIPE.replace('label = "FedAvg"', 'label = "FedProx mu=0.001"')
    )
    (case,) = sweep(
        str(tmp_path / "r.toml"),
        [Grid.parse("fedprox.mu=0.001,0.1")],
        tmp_path / "o",
        ["train.rounds=1"],
    )
    assert [t.variant.label for t in case.trials] == [
        "FedProx mu=0.001",
        "FedProx #1",
        "FedProx mu=0.1",
    ]
    show_sweep([case])
    assert "fedprox.mu" in capsys.readouterr().out


def test_fresh_removes_the_final_runs_too(
    recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, short = tmp_path / "o", ["train.rounds=1", "train.seeds=0"]
    sweep(recipe, [Grid.parse("fedprox.mu=0.001,0.1")], out, short, workers=1)
    calls = []

    def cut(*given: Any, **more: Any) -> Any:
        calls.append(given)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return execute(*given, **more)

    monkeypatch.setattr(sweep_module, "execute", cut)
    other = [Grid.parse("fedprox.mu=1,10")]
    with pytest.raises(KeyboardInterrupt):
        sweep(recipe, other, out, short, workers=1, fresh=True)
    (case,) = sweep(recipe, other, out, short, workers=1)
    assert case.best["FedProx"].values["fedprox.mu"] in (1, 10)


def test_fresh_starts_over_whatever_the_grid_was(recipe: str, tmp_path: Path) -> None:
    out, short = tmp_path / "o", ["train.rounds=1", "train.seeds=0"]
    for grid in ("data.alpha=0.2,2", "data.alpha=0.3,2", "train.lr=0.01,0.02", "data.alpha=5,7"):
        sweep(recipe, [Grid.parse(grid)], out, short, workers=1, fresh=True)
        (out / "mine.txt").write_text("mine")
        cases = {p.parent.parent.parent.name for p in out.glob("final/**/model.safetensors")}
        assert cases == (
            {f"data.alpha={v}" for v in grid.removeprefix("data.alpha=").split(",")}
            if "alpha" in grid
            else {"final"}
        )
    assert sorted(p.name for p in out.iterdir()) == ["final", "mine.txt", "sweep.json"]
    with pytest.raises(InputError):  # nothing is cleared for what cannot be trained
        sweep(recipe, [Grid.parse("data.clients=2,100000")], out, short, workers=1, fresh=True)
    assert len(weights(out)) == 4


def test_nothing_is_removed_if_the_input_is_wrong(recipe: str, tmp_path: Path) -> None:
    chosen = config.load(recipe, ["train.rounds=1", "train.seeds=0"])
    one, other = (Experiment(chosen, tmp_path / name) for name in "ab")
    execute([one], OneByOne())
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "thesis.txt").write_text("mine")
    with pytest.raises(InputError, match="not empty"):
        execute([one, other], OneByOne(), fresh=True)
    assert len(weights(tmp_path / "a")) == 2


def test_a_process_that_is_killed_or_cannot_write_gets_one_line(
    recipe: str, tmp_path: Path
) -> None:
    chosen = config.load(recipe, ["train.rounds=1"])
    with Processes(2) as processes:
        execute([Experiment(chosen, tmp_path / "a")], WholeRuns(processes))
        next(iter(processes._processes.values())).kill()  # while it has nothing to do
        with pytest.raises(RunError, match="was killed"):
            execute([Experiment(chosen, tmp_path / "b")], WholeRuns(processes))
    (tmp_path / "c").mkdir()
    with ResultFolder(tmp_path / "c", chosen).open():
        (tmp_path / "c" / "runs").write_text("not a folder")
    with Processes(2) as processes, pytest.raises(RunError) as caught:
        execute([Experiment(chosen, tmp_path / "c")], WholeRuns(processes))
    assert "\n" not in str(caught.value)
    assert "runs" in str(caught.value)


def test_what_is_left_to_train(recipe: str, tmp_path: Path) -> None:
    experiment = Experiment(
        config.load(recipe, ["train.rounds=2", "train.seeds=0"]), tmp_path / "a"
    )
    assert share_left(experiment) == 1
    execute([experiment], OneByOne())
    assert share_left(experiment) == 0
    assert share_left(experiment, fresh=True) == 1


def test_processes_pass_on_warnings_and_errors(recipe: str, tmp_path: Path) -> None:
    chosen = config.load(recipe, ["train.rounds=2"])
    rounds, ended = [], []

    class Seen(Watcher):
        def round_done(self, run: PlannedRun, record: RoundRecord) -> None:
            rounds.append((run.label, run.seed, record.round))

        def finished(self, run: PlannedRun) -> None:
            ended.append((run.label, run.seed))

    with Processes(2) as processes:
        execute([Experiment(chosen, tmp_path / "o")], WholeRuns(processes), watch=Seen())
    runs = [(label, seed) for label in ("FedAvg", "FedProx") for seed in (0, 1)]
    assert sorted(rounds) == [(*run, round) for run in runs for round in (1, 2)]
    assert sorted(ended) == runs
