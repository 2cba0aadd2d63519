"""Folders of version 0.1.0 are read, reported and resumed."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import safetensors.torch
import torch

from fedbr.cli.app import call
from fedbr.core.records import RoundRecord
from fedbr.run.folder import ResultFolder
from fedbr.run.plan import PlannedRun
from fedbr.run.results import RunResult
from training import train_recipe

OLD = Path(__file__).parent.parent / "golden" / "v0.1"


@pytest.fixture(params=["finished", "partial", "filed"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy, which may be written to."""
    return Path(shutil.copytree(OLD / request.param, tmp_path / request.param))


def test_its_results_are_read_as_they_were(folder: Path) -> None:
    stored = json.loads((folder / "results.json").read_text())
    read = json.loads(json.dumps(ResultFolder.read(folder).results().to_json()))
    for then, now in zip(stored["runs"], read["runs"], strict=True):
        then["clients_at_once"] = then.pop("cohort")  # its name now
        assert now == then


State = dict[str, torch.Tensor]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs of the finished folder, trained here and now from their beginning."""
    out = tmp_path_factory.mktemp("whole") / "out"
    train_recipe(ResultFolder.read(OLD / "finished").recipe, out)
    return out


def models_of(folder: Path) -> dict[str, State]:
    files = folder.glob("runs/*/model.safetensors")
    return {file.parent.name: safetensors.torch.load_file(file) for file in files}


def timeless(run: RunResult) -> list[RoundRecord]:
    """Return the rounds of a run without what depends on the clock or on last bits."""
    plain = {"loss": 0.0, "seconds_train": 0.0, "seconds_evaluate": 0.0, "bias": None}
    return [replace(record, **plain) for record in run.rounds]


def test_training_goes_on_where_it_stopped(folder: Path) -> None:
    recipe = ResultFolder.read(folder).recipe
    trained: list[tuple[str, int, int]] = []

    def note(run: PlannedRun, record: RoundRecord) -> None:
        trained.append((run.label, run.seed, record.round))

    begun = {f: f.read_text().count("\n") for f in folder.glob("runs/*/metrics.jsonl")}
    results = train_recipe(recipe, folder, on_round=note)
    planned = recipe.train.rounds * len(recipe.compare) * len(recipe.train.seeds)
    assert len(trained) == planned - sum(begun.values())
    assert all(run.finished for run in results.runs)
    for run in results.runs:
        finished = ResultFolder.read(OLD / "finished").results().run(run.label, run.seed)
        assert finished is not None
        assert timeless(run) == timeless(finished)


def test_training_goes_on_to_the_same_weights(folder: Path, whole: Path) -> None:
    """To the bit, where this processor adds up as the one did on which the folder was made."""
    train_recipe(ResultFolder.read(folder).recipe, folder)
    expected, here, now = models_of(OLD / "finished"), models_of(whole), models_of(folder)
    assert expected.keys() == here.keys() == now.keys()
    for run, weights in expected.items():
        assert weights.keys() == here[run].keys() == now[run].keys()
        same_arithmetic = all(torch.equal(here[run][key], weights[key]) for key in weights)
        tolerance = 0.0 if same_arithmetic else 1e-13
        for key, value in weights.items():
            torch.testing.assert_close(now[run][key], value, rtol=0, atol=tolerance)


def test_old_keys_get_their_present_names(folder: Path) -> None:
    old = (folder / "recipe.toml").read_text("utf-8")
    assert "cohort = 2" in old
    recipe = ResultFolder.read(folder).recipe
    assert recipe.train.clients_at_once == 2
    train_recipe(recipe, folder)
    new = (folder / "recipe.toml").read_text("utf-8")
    assert "clients_at_once = 2" in new
    assert "cohort" not in new


def test_an_old_recipe_is_the_same_recipe(folder: Path, tmp_path: Path) -> None:
    """The command reads an older key with a word, and goes on in the folder."""
    text = (folder / "recipe.toml").read_text("utf-8")
    (tmp_path / "then.toml").write_text(text, "utf-8")
    (tmp_path / "now.toml").write_text(text.replace("cohort", "clients_at_once"), "utf-8")
    line = ["--out", str(folder), "--workers", "1"]
    with pytest.warns(RuntimeWarning, match="cohort is called train.clients_at_once now"):
        assert call(["run", str(tmp_path / "then.toml"), *line]) == 0
    assert call(["run", str(tmp_path / "now.toml"), *line]) == 0


def test_its_memory_in_shared_files_becomes_one_file_a_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fedbr.backends import memory

    monkeypatch.setattr(memory, "LITTLE", 100)
    folder = Path(shutil.copytree(OLD / "filed", tmp_path / "filed"))
    before = sorted(p.name for p in folder.glob("runs/*/memory/*"))
    assert before == ["2.safetensors"]
    train_recipe(ResultFolder.read(folder).recipe, folder)
    after = [p.name for p in folder.glob("runs/*/memory/*")]
    assert after
    assert all(name.startswith("client-") for name in after)
