"""Loggers get every new round once, whatever happens; packages are fakes that write down what they
are told.
"""

from __future__ import annotations

import importlib.machinery
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from fedbr.cli.app import call
from fedbr.recipe import load as config
from fedbr.run import loggers
from fedbr.run import loop as experiment
from fedbr.util.errors import InputError

RECIPE = config.load(
    "digits",
    ["train.rounds=2", "train.local_steps=1", "train.seeds=0,1", "model.width=0.125"],
    ["fedavg"],
)


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Stand in for the three packages."""
    said: list[tuple[Any, ...]] = []

    class Writer:
        def __init__(self, place: str) -> None:
            self.place = Path(place).name

        def add_scalar(self, name: str, value: float, step: int) -> None:
            said.append(("tensorboard", self.place, step, name, value))

        def flush(self) -> None:
            pass

        def close(self) -> None:
            said.append(("tensorboard", self.place, "closed"))

    class Run:
        def __init__(self, **about: Any) -> None:
            self.name, self.id = about["name"], about["id"]
            said.append(("wandb", self.name, "begun", about))

        def log(self, numbers: dict[str, float], step: int) -> None:
            said.append(("wandb", self.name, step, numbers))

        def finish(self) -> None:
            said.append(("wandb", self.name, "closed"))

    fakes = {
        "tensorboard": {},
        "torch.utils.tensorboard": {"SummaryWriter": Writer},
        "wandb": {"init": Run},
        "mlflow": {
            "set_experiment": lambda name: said.append(("mlflow", "experiment", name)),
            "start_run": lambda run_name: said.append(("mlflow", "begun", run_name)),
            "log_params": lambda params: said.append(("mlflow", "params", params)),
            "log_metrics": lambda numbers, step: said.append(("mlflow", step, numbers)),
            "end_run": lambda: said.append(("mlflow", "closed")),
        },
    }
    for name, content in fakes.items():
        module = types.ModuleType(name)
        module.__spec__ = importlib.machinery.ModuleSpec(name, None)
        module.__dict__.update(content)
        monkeypatch.setitem(sys.modules, name, module)
    return said


def test_all_three_hear_every_round_of_every_run(
    heard: list[tuple[Any, ...]], tmp_path: Path
) -> None:
    with loggers.logging(["tensorboard", "wandb", "mlflow"], RECIPE, tmp_path / "o") as logger:
        results = experiment.run(RECIPE, tmp_path / "o", watch=logger)
    final = {run["seed"]: run["accuracy"]["final"] for run in results["runs"]}
    board = [(h[1], h[4]) for h in heard if h[0] == "tensorboard" and h[2:4] == (2, "accuracy")]
    assert board == [("FedAvg-0", final[0]), ("FedAvg-1", final[1])]
    assert [h[3]["accuracy"] for h in heard if h[0] == "wandb" and h[2] == 2] == [
        final[0],
        final[1],
    ]
    assert [h[2]["accuracy"] for h in heard if h[:2] == ("mlflow", 2)] == [final[0], final[1]]
    assert sum(h[-1] == "closed" for h in heard) == 6
    begun = [h[3] for h in heard if h[0] == "wandb" and h[2] == "begun"]
    assert begun[0]["config"]["train"]["rounds"] == 2
    assert begun[0]["id"] != begun[1]["id"]


def test_a_logger_that_fails_does_not_end_the_training(
    heard: list[tuple[Any, ...]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ValueError("the quota is used up")

    monkeypatch.setattr(sys.modules["mlflow"], "log_metrics", refuse, raising=False)
    with (
        pytest.warns(
            RuntimeWarning, match="--log mlflow: the quota is used up; the run goes on without it"
        ) as caught,
        loggers.logging(["wandb", "mlflow"], RECIPE, tmp_path / "o") as logger,
    ):
        results = experiment.run(RECIPE, tmp_path / "o", watch=logger)
    assert len(caught) == 1
    assert all(run["finished"] for run in results["runs"])
    assert len([h for h in heard if h[0] == "wandb" and h[2] in (1, 2)]) == 4


def test_rounds_of_an_earlier_call_are_not_sent_again(
    heard: list[tuple[Any, ...]], tmp_path: Path
) -> None:
    experiment.run(RECIPE, tmp_path / "o")
    with loggers.logging(["wandb"], RECIPE, tmp_path / "o") as logger:
        experiment.run(RECIPE, tmp_path / "o", watch=logger)
    assert heard == []
    with loggers.logging(["wandb"], RECIPE, tmp_path / "o", fresh=True) as logger:
        experiment.run(RECIPE, tmp_path / "o", fresh=True, watch=logger)
    assert [h[2] for h in heard if h[0] == "wandb"] == ["begun", 1, 2, "closed"] * 2


def test_a_failure_closes_them(heard: list[tuple[Any, ...]], tmp_path: Path) -> None:
    line = {"round": 1, "accuracy": 0.5, "clients": [1], "bias": {"entropy": 1.5}, "loss": None}

    def fails() -> None:
        with loggers.logging(["wandb"], RECIPE, tmp_path / "o") as logger:
            logger("FedAvg", 0, None)
            logger("FedAvg", 0, line)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fails()
    logged = ("wandb", "FedAvg-0", 1, {"accuracy": 0.5, "bias/entropy": 1.5})
    assert heard[1:] == [logged, ("wandb", "FedAvg-0", "closed")]


def test_what_is_unknown_or_absent_is_refused_before_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match="allowed: mlflow, tensorboard, wandb"):
        loggers.check(["tensorbord"])
    monkeypatch.setitem(sys.modules, "mlflow", None)
    assert call(["run", "--log", "mlflow", "--out", str(tmp_path / "o")]) == 2
    assert "pip install 'fedbr[mlflow]'" in capsys.readouterr().err
    assert not (tmp_path / "o").exists()
