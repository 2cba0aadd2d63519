"""Killed at any moment, a run goes on to the same bits."""

from __future__ import annotations

import contextlib
import json
import os
import random
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
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
[[compare.methods]]
name = "fedbr"
refresh = "round"
pseudo = "mixture"
mix = 2
hidden = 32
width = 16
"""


def outcome(folder: Path) -> dict[str, Any]:
    """All that must not depend on interruptions: weights and metrics, without the times."""
    runs: dict[str, Any] = {}
    for run in sorted((folder / "runs").iterdir()):
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        runs[run.name] = {
            "model": (run / "model.safetensors").read_bytes(),
            "lines": [{k: v for k, v in line.items() if "seconds" not in k} for line in lines],
        }
    return runs


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


# Starts commands as forks of itself, so that torch is imported once and not for every kill.
# It prints the process of every command that it is given, and the exit code when that has ended.
STARTER = """
import os
import sys

import sklearn.datasets

from fedbr.cli.app import call
from fedbr.report import compare, tables, words
from fedbr.run import engines, loggers, runner

for line in sys.stdin:
    process = os.fork()
    if process == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os._exit(call(line.split()))
    print(process, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)
"""


class Command:
    """A command that runs in a process of its own."""

    def __init__(self, starter: subprocess.Popen[bytes], line: str) -> None:
        assert starter.stdin is not None
        starter.stdin.write(f"{line}\n".encode())
        self.starter = starter
        self.process = self._read()

    def _read(self) -> int:
        assert self.starter.stdout is not None
        return int(self.starter.stdout.readline())

    def has_ended(self) -> bool:
        assert self.starter.stdout is not None
        return bool(select.select([self.starter.stdout], [], [], 0)[0])

    def kill(self) -> int:
        """Kill it, unless it has ended already; return its exit code."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process, signal.SIGKILL)
        return self.wait()

    def wait(self) -> int:
        """Wait for its end; return its exit code."""
        return self._read()


@pytest.fixture
def starter(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    with (tmp_path / "stderr").open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-c", STARTER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            bufsize=0,  # so that nothing is read that has_ended waits for
        )
        yield process
        assert process.stdin is not None
        process.stdin.close()
        process.wait(30)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="commands are forks of one process")
def test_ten_kills_change_nothing(
    recipe_file: Path, whole: dict[str, Any], tmp_path: Path, starter: subprocess.Popen[bytes]
) -> None:
    moments = random.Random(7)
    folder = tmp_path / "o"
    line = f"run {recipe_file} --out {folder} --workers"
    rounds_at_kill = []
    for attempt in range(10):
        before = written(folder)
        workers = 2 if attempt == 3 else 1  # the bits do not depend on that either
        command = Command(starter, f"{line} {workers}")
        while written(folder) == before and not command.has_ended():
            time.sleep(0.002)
        time.sleep(moments.random() * 0.3)
        command.kill()
        rounds_at_kill.append(sum(written(folder).values()))
    assert Command(starter, f"{line} 1").wait() == 0, (tmp_path / "stderr").read_text()
    assert len(set(rounds_at_kill)) > 3, "the kills did not fall into the training"
    for before_kill, after in pairwise(rounds_at_kill):
        # At most the round whose checkpoint was not yet written is done again.
        assert after >= before_kill - 1
    assert outcome(folder) == whole


def written(folder: Path) -> dict[str, int]:
    """How many rounds are on disk, by run."""
    files = sorted(folder.glob("runs/*/metrics.jsonl"))
    return {str(f): f.read_bytes().count(b"\n") for f in files}


def test_a_kill_between_the_line_and_the_checkpoint(
    recipe_file: Path, whole: dict[str, Any], tmp_path: Path
) -> None:
    """Files may be older than the round: a line without checkpoint, half a line, half a file."""
    folder = tmp_path / "o"
    recipe = config.load(str(recipe_file))

    class Stop(Exception):
        pass

    def stop(run: PlannedRun, record: RoundRecord) -> None:
        if run.label == "FedBR" and record.round == 7:
            raise Stop

    with pytest.raises(Stop):
        train_recipe(recipe, folder, on_round=stop)
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
    train_recipe(recipe, tmp_path / "o", fresh=True)
    assert outcome(tmp_path / "o") == whole


def without(recipe: Recipe, *variants: str) -> Recipe:
    return recipe.model_copy(
        update={"compare": [variant for variant in recipe.compare if variant.label not in variants]}
    )


def test_more_rounds_and_more_variants_give_what_all_at_once_gives(
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
    for other, message in (
        (load("train.rounds=9"), "train.rounds is 20 there, 9 here"),
        (without(load(), "FedAvg"), "compare is 'FedAvg, FedBR, FedBR mixture' there"),
        (load("train.rounds=30", "train.lr=0.1"), "train.lr is 0.05 there, 0.1 here"),
    ):
        with pytest.raises(InputError, match=message):
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


def test_a_variant_that_would_rename_another_is_refused(recipe_file: Path, tmp_path: Path) -> None:
    """Folders are called by labels; two that a file system might not tell apart get numbers."""
    recipe = config.load(str(recipe_file), ["train.rounds=1"], ["fedavg"])
    train_recipe(recipe, tmp_path / "o")
    twin = recipe.compare[0].model_copy(update={"label": "fedavg"})
    with pytest.raises(InputError, match="compare is 'FedAvg' there, 'FedAvg, fedavg' here"):
        train_recipe(recipe.model_copy(update={"compare": [*recipe.compare, twin]}), tmp_path / "o")
