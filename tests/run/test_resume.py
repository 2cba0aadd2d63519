"""Killed at any moment, a run goes on to the same bits."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from fedbr.core.records import RoundRecord
from fedbr.recipe import load as config
from fedbr.recipe.schema import Recipe
from fedbr.run.plan import PlannedRun
from fedbr.util.errors import InputError
from training import train_recipe

RECIPE = """
name = "resume"
[data]
name = "digits"
clients = 12
proxy = "noise"
[model]
name = "mlp"
hidden = [24]
[train]
rounds = 20
local_steps = 15
batch_size = 16
lr = 0.05
clients_per_round = 5
clients_at_once = 2
[[compare]]
label = "FedAvg"
methods = []
[[compare]]
label = "FedBR"
methods = [{ name = "fedbr", refresh = "once", hidden = 32, width = 16 }]
[[compare]]
label = "FedBR mixture"
methods = [{ name = "fedbr", refresh = "round", pseudo = "mixture", mix = 2, hidden = 32, width = 16 }]
"""


def outcome(folder: Path) -> dict[str, Any]:
    """All that must not depend on interruptions: weights and metrics, without the times."""
    found: dict[str, Any] = {}
    for run in sorted((folder / "runs").iterdir()):
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        found[run.name] = {
            "model": (run / "model.safetensors").read_bytes(),
            "lines": [{k: v for k, v in line.items() if "seconds" not in k} for line in lines],
        }
    return found


@pytest.fixture(scope="module")
def recipe_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("recipe") / "resume.toml"
    file.write_text(RECIPE)
    return file


@pytest.fixture(scope="module")
def whole(recipe_file: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The run that nobody interrupts."""
    folder = tmp_path_factory.mktemp("whole") / "o"
    train_recipe(config.load(str(recipe_file)), folder)
    return outcome(folder)


def test_ten_kills_change_nothing(recipe_file: Path, whole: dict[str, Any], tmp_path: Path) -> None:
    moments = random.Random(7)
    folder = tmp_path / "o"
    rounds_at_kill = []
    for attempt in range(11):
        workers = "2" if attempt % 4 == 3 else "1"  # the bits do not depend on that either
        line = [
            sys.executable,
            "-m",
            "fedbr",
            "run",
            str(recipe_file),
            "--out",
            str(folder),
            "--workers",
            workers,
        ]
        process = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        if attempt == 10:
            _, error = process.communicate(timeout=300)
            assert process.returncode == 0, error
            break
        before = written(folder)
        while written(folder) == before and process.poll() is None:
            time.sleep(0.002)
        time.sleep(moments.random() * 0.3)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        rounds_at_kill.append(sum(written(folder).values()))
    assert len(set(rounds_at_kill)) > 3, "the kills did not fall into the training"
    for before, after in pairwise(rounds_at_kill):
        assert (
            after >= before - 1
        )  # at most the round whose checkpoint was not yet written is done again
    assert outcome(folder) == whole


def written(folder: Path) -> dict[str, int]:
    """How many rounds are on disk, by run."""
    files = sorted(folder.glob("runs/*/metrics.jsonl"))
    return {str(f): f.read_bytes().count(b"\n") for f in files}


def test_a_kill_between_the_line_and_the_checkpoint(
    recipe_file: Path, whole: dict[str, Any], tmp_path: Path
) -> None:
    """Every order of what is and is not on disk: line without checkpoint, half a line, a
    half-written file.
    """
    folder = tmp_path / "o"
    recipe = config.load(str(recipe_file))

    class Stop(Exception):
        pass

    def stop(run: PlannedRun, record: RoundRecord) -> None:
        if run.label == "FedBR" and record.round == 7:
            raise Stop

    with pytest.raises(Stop):
        train_recipe(recipe, folder, seen=stop)
    run = folder / "runs" / "FedBR-0"
    last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    with (run / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(last | {"round": 8, "accuracy": 0.99}) + "\n" + '{"round": 9, "accu')
    (run / ".checkpoint.safetensors.new").write_bytes(b"half a check")
    train_recipe(recipe, folder)
    assert outcome(folder) == whole


def test_workers_and_a_fresh_start_change_nothing(
    recipe_file: Path, whole: dict[str, Any], tmp_path: Path
) -> None:
    recipe = config.load(str(recipe_file))
    train_recipe(recipe, tmp_path / "o", workers=2)
    assert outcome(tmp_path / "o") == whole
    train_recipe(recipe, tmp_path / "o", workers=2, fresh=True)
    assert outcome(tmp_path / "o") == whole


def without(recipe: Recipe, *variants: str) -> Recipe:
    return recipe.model_copy(
        update={"compare": [variant for variant in recipe.compare if variant.label not in variants]}
    )


def test_more_rounds_and_more_stacks_give_what_all_at_once_gives(
    recipe_file: Path, whole: dict[str, Any], tmp_path: Path
) -> None:
    def load(*overrides: str) -> Recipe:
        return config.load(str(recipe_file), overrides)

    out = tmp_path / "o"
    train_recipe(without(load("train.rounds=6"), "FedBR", "FedBR mixture"), out)
    train_recipe(without(load("train.rounds=9"), "FedBR mixture"), out)
    results = train_recipe(load(), out)
    assert outcome(out) == whole
    assert {len(run.rounds) for run in results.runs} == {20}
    for other, said in (
        (load("train.rounds=9"), "train.rounds is 20 there, 9 here"),
        (without(load(), "FedAvg"), "compare is 'FedAvg, FedBR, FedBR mixture' there"),
        (load("train.rounds=30", "train.lr=0.1"), "train.lr is 0.05 there, 0.1 here"),
    ):
        with pytest.raises(InputError, match=said):
            train_recipe(other, out)
    assert outcome(out) == whole


@pytest.mark.parametrize(
    "how", ["train.evaluate_every=4", "train.evaluate_every=0", "train.evaluate_samples=20"]
)
def test_a_last_round_that_was_tested_as_such_stays_the_last(
    recipe_file: Path, tmp_path: Path, how: str
) -> None:
    """Among more rounds it would not have been tested, or on fewer samples."""
    recipes = [
        config.load(str(recipe_file), [how, f"train.rounds={n}"], ["fedavg"]) for n in (2, 4)
    ]
    train_recipe(recipes[0], tmp_path / "o")
    with pytest.raises(InputError, match=r"train\.rounds is 2 there, 4 here"):
        train_recipe(recipes[1], tmp_path / "o")


def test_a_stack_that_would_rename_another_is_refused(recipe_file: Path, tmp_path: Path) -> None:
    """Folders are called by labels; two that a file system might not tell apart get numbers."""
    recipe = config.load(str(recipe_file), ["train.rounds=1"], ["fedavg"])
    train_recipe(recipe, tmp_path / "o")
    twin = recipe.compare[0].model_copy(update={"label": "fedavg"})
    with pytest.raises(InputError, match="compare is 'FedAvg' there, 'FedAvg, fedavg' here"):
        train_recipe(recipe.model_copy(update={"compare": [*recipe.compare, twin]}), tmp_path / "o")
