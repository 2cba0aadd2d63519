"""Folders of version 0.1.0 are read, reported and resumed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import safetensors.torch
import torch

from fedbr.core.records import RoundRecord
from fedbr.run.folder import ResultFolder
from fedbr.run.plan import PlannedRun
from training import train_recipe

OLD = Path(__file__).parent.parent / "golden" / "v0.1"


@pytest.fixture(params=["finished", "partial", "filed"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy, which may be written to."""
    return Path(shutil.copytree(OLD / request.param, tmp_path / request.param))


def test_what_it_says_is_what_it_said(folder: Path) -> None:
    said = json.loads((folder / "results.json").read_text())
    read = json.loads(json.dumps(ResultFolder.read(folder).results().to_json()))
    for then, now in zip(said["runs"], read["runs"], strict=True):
        then["clients_at_once"] = then.pop("cohort")  # its name now
        assert now == then


def test_it_goes_on_where_it_stopped(folder: Path) -> None:
    """Last bits depend on the processor, so weights are compared to six digits."""
    recipe = ResultFolder.read(folder).recipe
    trained: list[tuple[str, int, int]] = []

    def note(run: PlannedRun, record: RoundRecord) -> None:
        trained.append((run.label, run.seed, record.round))

    begun = {f: f.read_text().count("\n") for f in folder.glob("runs/*/metrics.jsonl")}
    results = train_recipe(recipe, folder, seen=note)
    planned = recipe.train.rounds * len(recipe.compare) * len(recipe.train.seeds)
    assert len(trained) == planned - sum(begun.values())
    assert all(run.finished for run in results.runs)
    for run in (OLD / "finished" / "runs").iterdir():
        expected = safetensors.torch.load_file(run / "model.safetensors")
        weights = safetensors.torch.load_file(folder / "runs" / run.name / "model.safetensors")
        assert weights.keys() == expected.keys()
        for name, value in expected.items():
            torch.testing.assert_close(weights[name], value, rtol=1e-4, atol=1e-6)


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
