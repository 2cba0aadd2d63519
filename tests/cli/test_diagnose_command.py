"""fedbr diagnose on result folders, finished or not, and on the toy example."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import fedbr
from fedbr.bias.case import Options
from fedbr.bias.folder import from_folder
from fedbr.bias.study import examine
from fedbr.cli.app import call
from fedbr.core.records import RoundRecord
from fedbr.recipe import load as config
from fedbr.run.folder import ResultFolder
from fedbr.run.plan import PlannedRun
from training import train_recipe

SMALL = [
    "model.name=mlp", "model.width=0.5", "data.clients=4", "train.clients_per_round=2",
    "train.rounds=3", "train.local_steps=5", "fedbr.hidden=8", "fedbr.width=8",
]  # fmt: skip


class Stop(Exception):
    pass


@pytest.fixture
def without_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedbr.bias.figures.draw", lambda *_: None)


def stopped(folder: Path, rounds: int, *more: str) -> Path:
    """Train, and stop after some rounds of the first variant."""

    def on_round(run: PlannedRun, record: RoundRecord) -> None:
        if record.round == rounds:
            raise Stop

    with pytest.raises(Stop):
        train_recipe(config.load("digits", [*SMALL, *more]), folder, on_round=on_round)
    return folder


@pytest.mark.usefixtures("without_pictures")
def test_a_partial_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = stopped(tmp_path / "run", 2, "metrics.bias_every=1")
    before = (folder / "runs/FedAvg-0/checkpoint.safetensors").read_bytes()
    assert call(["diagnose", str(folder), "--samples", "50", "--clients", "2"]) == 0
    output, progress = capsys.readouterr()
    assert "after round 2 of 3" in output
    assert "(drawn from 4)" in output
    assert "50 of 359 test samples, 5 per class" in output
    assert "Local models beside the aggregated one" in output
    assert progress == ""
    numbers = json.loads((folder / "diagnosis/diagnosis.json").read_text())
    assert numbers["about"]["rounds_done"] == 2
    assert numbers["about"]["round"] == 3
    assert [m["label"] for m in numbers["methods"]] == [
        "FedAvg",
        "Component 1",
        "Component 2",
        "FedBR",
    ]
    assert numbers["methods"][3]["methods"][0]["hidden"] == 8  # as in the recipe
    assert (folder / "runs/FedAvg-0/checkpoint.safetensors").read_bytes() == before
    (folder / "diagnosis" / "features.png").write_bytes(b"a picture")
    assert call(["report", str(folder)]) == 0
    page = (folder / "report.html").read_text("utf-8")
    assert "Bias of local learning" in page
    assert "<h2>Local models</h2>" in page
    assert 'src="data:image/png;base64,YSBwaWN0dXJl"' in page
    (folder / "diagnosis" / "notes.txt").write_text("mine")
    with ResultFolder.read(folder).open(fresh=True):
        assert [file.name for file in (folder / "diagnosis").iterdir()] == ["notes.txt"]


@pytest.mark.usefixtures("without_pictures")
def test_other_methods_and_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = stopped(tmp_path / "run", 1)
    line = [
        "diagnose",
        str(folder),
        "--methods",
        "fedavg",
        "fedprox",
        "--set",
        "fedprox.mu=1",
        "train.lr=0.05",
    ]
    assert (
        call(
            [
                *line,
                "--epochs",
                "1",
                "--client",
                "3",
                "--out",
                str(tmp_path / "there"),
                "--samples",
                "20",
            ]
        )
        == 0
    )
    numbers = json.loads((tmp_path / "there/diagnosis/diagnosis.json").read_text())
    assert numbers["methods"][1]["methods"] == [{"name": "fedprox", "mu": 1.0}]
    assert (numbers["about"]["lr"], numbers["about"]["epochs"]) == (0.05, 1)
    assert not (folder / "diagnosis").exists()
    capsys.readouterr()


@pytest.mark.usefixtures("without_pictures")
def test_a_model_of_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "net_of_mine.py").write_text(
        "from torch import nn\nimport fedbr\n"
        "def make(shape, num_classes, width):\n"
        "    features = nn.Sequential(nn.Flatten(), nn.Linear(64, 9), nn.ReLU())\n"
        "    return fedbr.FedModel(features, 9, num_classes)\n"
    )
    monkeypatch.chdir(tmp_path)
    folder = stopped(tmp_path / "run", 1, "model.name=net_of_mine:make")
    assert call(["diagnose", str(folder), "--samples", "20"]) == 0
    assert "after round 1 of 3" in capsys.readouterr().out


@pytest.mark.usefixtures("without_pictures")
def test_the_toy_example(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = [
        "diagnose",
        "--toy",
        "--share",
        "0.1",
        "--pretrain",
        "1",
        "--epochs",
        "1",
        "--out",
        str(tmp_path),
    ]
    assert call([*line, "--set", "model.name=mlp", "--methods", "fedavg", "--samples", "50"]) == 0
    output = capsys.readouterr().out
    assert "two clients with half of the classes each and 10% of the other half's" in output
    assert "trained for 1 epoch on all data" in output
    assert "hardly seen" in output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["diagnose"], "expected a result folder, or --toy"),
        (["diagnose", "nowhere"], "holds no results"),
        (["diagnose", "--toy", "--share", "0.7"], "share = 0.7"),
        (["diagnose", "--toy", "--start", "x"], "diagnose.start = 'x'"),
        (["diagnose", "--toy", "--run", "FedAvg"], "--run: only allowed with a result folder"),
        (["diagnose", "{folder}", "--share", "0.1"], "--share: only allowed with --toy"),
        (["diagnose", "{folder}", "--run", "FedAvgg"], "did you mean 'FedAvg'?"),
        (
            ["diagnose", "{folder}", "--seed", "7"],
            "--seed 7: the folder has no such seed; allowed: 0",
        ),
        (
            ["diagnose", "{folder}", "--run", "FedBR"],
            "no round is finished yet; there are rounds of FedAvg (seed 0)",
        ),
        (
            ["diagnose", "{folder}", "--set", "data.alpha=3"],
            "--set data.alpha=3: data belongs to the run",
        ),
        (
            ["diagnose", "{folder}", "--set", "metrics.bias_every=1"],
            "metrics.bias_every=1: has no effect",
        ),
        (
            ["diagnose", "{folder}", "--set", "train.rounds=2"],
            "train.rounds=2: has no effect on a diagnosis; change",
        ),
        (
            ["diagnose", "{folder}", "--set", "train.clients_per_round=2"],
            "has no effect on a diagnosis; use --clients",
        ),
        (
            ["diagnose", "{folder}", "--set", "train.clients_at_once=2"],
            "train.clients_at_once=2: has no effect",
        ),
        (
            ["diagnose", "{folder}", "--set", "train.seeds=1"],
            "has no effect on a diagnosis; use --seed",
        ),
        (["diagnose", "{folder}", "--set", "train.lrr=1"], "did you mean 'lr'?"),
        (["diagnose", "--toy", "--set", "data.clients=3"], "data.clients=3: has no effect"),
        (
            ["diagnose", "--toy", "--epochs", "2", "--set", "train.local_steps=3"],
            "--epochs 2: --set train.local_steps",
        ),
        (["diagnose", "--toy", "--out", "{folder}/recipe.toml"], "cannot write there ("),
        (["diagnose", "{folder}", "--methods", "moon"], "moon: builds another model"),
    ],
)
def test_wrong_input_is_one_line(
    arguments: list[str],
    words: str,
    tmp_path_factory: pytest.TempPathFactory,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path_factory.getbasetemp() / "one-round"
    if not folder.exists():
        stopped(folder, 1)
    assert call([a.format(folder=folder) for a in arguments]) == 2
    errors = capsys.readouterr().err
    assert words in errors
    assert errors.count("\n") == 1


@pytest.mark.usefixtures("without_pictures")
def test_a_variant_with_settings_of_its_own(tmp_path: Path) -> None:
    """The global model that clients begin with, and how they train: both are that variant's."""
    recipe = config.load("digits", [*SMALL, "train.rounds=1"]).model_dump(exclude_none=True)
    recipe["compare"][1]["train"] = {"lr": 0.03}
    train_recipe(config.parse(recipe), tmp_path / "run")
    for label, lr in (("FedAvg", 0.01), ("FedBR", 0.03)):
        case = from_folder(tmp_path / "run", [], [], label, None)
        assert case.train.lr == lr
        model = fedbr.load_model(tmp_path / f"run/runs/{label}-0/model.safetensors")
        assert case.weights is not None
        assert case.weights.keys() == model.weights().keys()  # without what FedBR adds
        done = examine(replace(case, variants={"FedAvg": []}), Options(samples=50, clients=1))
        assert torch.equal(done.view.before.logits.argmax(dim=1), model.predict(done.view.x))
        (test,) = case.federation.tests
        right = (model.predict(test.see(slice(None), torch.float32)) == test.y).double().mean()
        line = json.loads((tmp_path / f"run/runs/{label}-0/metrics.jsonl").read_text())
        assert line["accuracy"] == pytest.approx(float(right))
    assert from_folder(tmp_path / "run", ["train.lr=0.2"], [], "FedBR", None).train.lr == 0.2


def test_the_table_is_printed_before_the_pictures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("fedbr.bias.figures.draw", full)
    line = [
        "diagnose",
        "--toy",
        "--pretrain",
        "1",
        "--set",
        "train.local_steps=2",
        "model.name=mlp",
    ]
    assert call([*line, "--methods", "fedavg", "--samples", "20", "--out", str(tmp_path)]) == 1
    printed = capsys.readouterr()
    assert "X1 | X2 by nearest mean %" in printed.out
    assert "2 local steps of 32" in printed.out
    assert "No space left" in printed.err
    assert (
        json.loads((tmp_path / "diagnosis/diagnosis.json").read_text())["methods"][0]["label"]
        == "FedAvg"
    )


def test_clients_that_train_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = config.load("digits", [k for k in SMALL if "fedbr" not in k], ["local"])
    train_recipe(recipe, tmp_path / "run")
    assert call(["diagnose", str(tmp_path / "run")]) == 2
    assert "its clients train alone" in capsys.readouterr().err
