"""The Python interface: the same runs, folders and resumes as the command line has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import fedbr
from fedbr.recipe.load import load, override
from fedbr.report.compare import compare as judge
from fedbr.report.read import read
from fedbr.report.write import write_page
from fedbr.run.plan import clients_of

SETTINGS: dict[str, Any] = {"rounds": 3, "local_steps": 2, "batch_size": 8, "hidden": (4,)}
TIMES = ("seconds_train", "seconds_evaluate")
FEDBR = fedbr.FedBR(mean_of=2, size=4, hidden=8, width=4)


def lines(run: Path) -> list[dict[str, Any]]:
    """Read the rounds of a run, without what a clock says."""
    rounds = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if k not in TIMES} for line in rounds]


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


class Interrupt:
    """Interrupts after so many rounds, as Ctrl-C does."""

    def __init__(self, rounds: int) -> None:
        self.left = rounds

    def __call__(self, record: object) -> None:
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


def test_train_leaves_the_folder_of_the_command(tmp_path: Path) -> None:
    recipe = load(
        "digits",
        ["train.rounds=3", "train.local_steps=2", "train.batch_size=8", "model.name=mlp"],
        ["scaffold"],
    )
    recipe = override(recipe.model_dump(exclude_none=True), ["model.hidden=[4]"])
    results = fedbr.run_recipe(recipe, tmp_path / "command")
    clients = clients_of(recipe.data, 0)
    run = fedbr.train(
        clients, "mlp", [fedbr.SCAFFOLD()], lr=recipe.train.lr, out=tmp_path / "python", **SETTINGS
    )
    assert files(tmp_path / "python") == files(tmp_path / "command")
    one, other = (tmp_path / name / "runs" / "SCAFFOLD-0" for name in ("python", "command"))
    assert lines(one) == lines(other)
    weights = [load_file(folder / "model.safetensors") for folder in (one, other)]
    assert all(torch.equal(weights[0][key], weights[1][key]) for key in weights[0])
    assert run.accuracy == [record.accuracy for record in results.runs[0].rounds]


def test_ctrl_c_returns_what_is_done_and_the_next_call_goes_on(
    federation: fedbr.Federation, tmp_path: Path
) -> None:
    def train(**more: Any) -> fedbr.Run:
        return fedbr.train(federation, "mlp", [FEDBR], **SETTINGS, **more)

    whole = train()
    cut = train(out=tmp_path, watch=Interrupt(2))
    assert cut.accuracy == whole.accuracy[:2]
    rounds: list[int] = []
    resumed = train(out=tmp_path, watch=lambda record: rounds.append(record["round"]))
    assert rounds == [3]
    assert resumed.accuracy == whole.accuracy
    assert all(map(torch.equal, *(r.model.state_dict().values() for r in (whole, resumed))))
    again = train(out=tmp_path, watch=Interrupt(1))  # nothing is left to train
    assert again.accuracy == whole.accuracy


def test_ctrl_c_without_a_folder_returns_the_model_of_the_moment(
    federation: fedbr.Federation,
) -> None:
    short = fedbr.train(federation, "mlp", **{**SETTINGS, "rounds": 2})
    cut = fedbr.train(federation, "mlp", watch=Interrupt(2), **SETTINGS)
    assert cut.accuracy == short.accuracy
    assert all(map(torch.equal, *(r.model.state_dict().values() for r in (cut, short))))


def test_nothing_is_written_unless_asked(
    federation: fedbr.Federation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    fedbr.train(federation, "mlp", **SETTINGS)
    fedbr.compare(federation, {"FedAvg": []}, "mlp", seeds=1, **SETTINGS)
    assert files(tmp_path) == set()


def test_a_folder_of_something_else_is_refused(
    federation: fedbr.Federation, tmp_path: Path
) -> None:
    fedbr.train(federation, "mlp", out=tmp_path, **SETTINGS)
    before = {name: (tmp_path / name).read_bytes() for name in files(tmp_path)}
    with pytest.raises(fedbr.InputError, match="holds another recipe"):
        fedbr.train(federation, "mlp", out=tmp_path, lr=0.5, **SETTINGS)
    other = fedbr.Federation.from_clients(
        [(torch.rand(9, 6), torch.arange(9) % 4) for _ in range(6)],
        test=(torch.rand(9, 6), torch.arange(9) % 4),
    )
    with pytest.raises(fedbr.InputError, match="began with other data"):
        fedbr.train(other, "mlp", out=tmp_path, **SETTINGS)
    with pytest.raises(fedbr.InputError, match="began with other data"):  # more rounds of others
        fedbr.train(other, "mlp", out=tmp_path, **{**SETTINGS, "rounds": 5})
    after = {name: (tmp_path / name).read_bytes() for name in files(tmp_path)}
    assert {name: after[name] for name in before if "environment" not in name} == {
        name: before[name] for name in before if "environment" not in name
    }
    fresh = fedbr.train(other, "mlp", out=tmp_path, fresh=True, **SETTINGS)
    assert len(fresh.accuracy) == 3


def test_compare_is_the_command_for_data_in_memory(
    federation: fedbr.Federation, tmp_path: Path
) -> None:
    def compare(**more: Any) -> Any:
        methods = {"FedAvg": [], "FedBR": [FEDBR]}
        return fedbr.compare(federation, methods, "mlp", seeds=3, **SETTINGS, **more)

    results = compare(out=tmp_path / "o")
    assert [(run.label, run.seed) for run in results.runs] == [
        (label, seed) for label in ("FedAvg", "FedBR") for seed in (0, 1, 2)
    ]
    stored = json.loads((tmp_path / "o/results.json").read_text())
    assert stored == json.loads(json.dumps(results.to_json()))
    (folder,) = read([tmp_path / "o"])
    assert folder.comparison.pairs[0].top5 == judge(results).pairs[0].top5
    page = write_page([folder], tmp_path / "o/report.html")
    assert "FedBR" in page.read_text("utf-8")
    models = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("model.safetensors")}
    assert len(models) == 6
    again = compare(out=tmp_path / "o")
    assert {path: path.stat().st_mtime_ns for path in models} == models
    assert [run.accuracy for run in again.runs] == [run.accuracy for run in results.runs]
    unwritten = compare()
    assert [run.accuracy for run in unwritten.runs] == [run.accuracy for run in results.runs]


def test_seeds_of_compare() -> None:
    federation = clients_of(load("digits").data, 0)
    for seeds, said in ((0, "expected at least 1"), ([1, 1], "duplicate")):
        with pytest.raises(fedbr.InputError, match=said):
            fedbr.compare(federation, {"FedAvg": []}, "mlp", seeds=seeds, **SETTINGS)
    for methods in ({}, [fedbr.FedBR()], {"a": fedbr.FedBR()}, {"": []}):
        with pytest.raises(fedbr.InputError, match="methods"):
            fedbr.compare(federation, methods, "mlp", **SETTINGS)  # type: ignore[arg-type]
