"""Diagnoses in folders, those of version 0.1.0 among them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from fedbr.run.diagnosis import FIGURES, DiagnosisRecord, check_place, clear, read, save
from fedbr.util.errors import InputError, RunError

OLD = Path(__file__).parent.parent / "golden" / "v0.1" / "finished"


def test_a_diagnosis_of_version_0_1_is_read_as_it_was() -> None:
    saved = read(OLD)
    assert saved is not None
    assert saved.pictures == []
    values = json.loads((OLD / "diagnosis" / "diagnosis.json").read_text())
    assert saved.record.to_json() == values
    assert json.dumps(saved.record.to_json()) == json.dumps(values)  # in the same order, too
    assert saved.record.variant("Component 2").models.of(3).client == 3


def test_a_variant_that_diverged_has_no_measures() -> None:
    values = json.loads((OLD / "diagnosis" / "diagnosis.json").read_text())
    nothing: dict[str, object] = {"length": None, "distance": None, "cosine": None, "layers": {}}
    values["methods"][1] |= {
        "diverged": "round 5, client 0: a weight is not finite after local training",
        "mean": {},
        "clients": [],
        "accuracy_aggregated": None,
        "drift": nothing,
    }
    record = DiagnosisRecord.from_json(values)
    assert [variant.label for variant in record.trained] == ["FedAvg", "Component 2", "FedBR"]
    assert record.variants[1].models.mean.accuracy is None
    assert record.to_json() == values


def test_saved_in_place_of_an_earlier_one(tmp_path: Path) -> None:
    assert read(tmp_path) is None
    old = read(OLD)
    assert old is not None
    folder = save(old.record, tmp_path)
    (folder / "drift.png").write_bytes(b"a picture")
    (folder / "notes.txt").write_text("mine")
    saved = read(tmp_path)
    assert saved is not None
    (picture,) = saved.pictures
    assert (picture.name, picture.caption) == ("drift", FIGURES["drift"])
    assert picture.path.read_bytes() == b"a picture"
    save(old.record, tmp_path)
    assert sorted(file.name for file in folder.iterdir()) == ["diagnosis.json", "notes.txt"]
    clear(tmp_path)
    assert [file.name for file in folder.iterdir()] == ["notes.txt"]
    (folder / "notes.txt").unlink()
    clear(tmp_path)
    assert not folder.exists()


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    shutil.copytree(OLD / "diagnosis", tmp_path / "diagnosis")
    (tmp_path / "diagnosis" / "diagnosis.json").write_text('{"about": {}}')
    with pytest.raises(RunError, match=r"diagnosis\.json: cannot be read \('clients'\)"):
        read(tmp_path)


def test_a_place_that_cannot_be_used(tmp_path: Path) -> None:
    check_place(tmp_path / "new" / "folder")
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InputError, match=r"cannot write there \(.*file is not a folder\)"):
        check_place(tmp_path / "file")
