"""Files of a result folder are read once, and added up once."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from fedbr.recipe import load as config
from fedbr.run import folder as result_folder
from training import train_recipe

COUNT = """
import sys
from collections import Counter
from pathlib import Path

folder, reads = Path(sys.argv[1]).resolve(), Counter()

def note(event, arguments):
    if event == "open":
        path, mode, flags = arguments
        if isinstance(path, str) and (mode or "r")[0] == "r":
            path = Path(path).absolute()
            if path.is_relative_to(folder) and path.is_file():
                reads[str(path.relative_to(folder))] += 1

sys.addaudithook(note)
from fedbr.cli.app import call

options = ["train.rounds=2", "train.local_steps=2", "data.clients=3", "train.clients_per_round=3"]
assert call(["run", "digits", "--set", *options, "--workers", "1", "--out", sys.argv[1]]) == 0
for name, count in reads.items():
    print(count, name)
"""


@pytest.mark.parametrize("again", [False, True], ids=["new", "finished"])
def test_a_run_of_two_rounds_reads_no_file_more_than_twice(tmp_path: Path, again: bool) -> None:
    for _ in range(1 + again):
        line = [sys.executable, "-c", COUNT, str(tmp_path / "out")]
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    lines = [text.split(" ", 1) for text in done.stdout.splitlines()]
    reads = {name: int(count) for count, name in lines if count.isdigit()}
    assert {name: count for name, count in reads.items() if count > 2} == {}
    assert not again or any("metrics.jsonl" in name for name in reads)


def test_every_run_is_added_up_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    added_up: Counter[str] = Counter()
    original = result_folder.make_result

    def count(recipe, variant, seed, run):  # type: ignore[no-untyped-def]
        added_up[f"{variant.label}-{seed}"] += 1
        return original(recipe, variant, seed, run)

    monkeypatch.setattr(result_folder, "make_result", count)
    settings = ["train.rounds=2", "train.local_steps=2", "train.seeds=0,1"]
    train_recipe(config.load("digits", settings, ["fedavg", "fedprox"]), tmp_path / "out")
    assert added_up == {"FedAvg-0": 1, "FedAvg-1": 1, "FedProx-0": 1, "FedProx-1": 1}
