"""Loggers get every new round once, whatever happens; their packages are fakes that list calls."""

from __future__ import annotations

import importlib.machinery
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from fedbr.cli.app import call
from fedbr.core.records import Drift, LocalBias, RoundRecord
from fedbr.recipe import load as config
from fedbr.run import loggers
from fedbr.run.engines import OneByOne
from fedbr.run.plan import Experiment
from fedbr.run.results import Results
from fedbr.run.runner import execute
from fedbr.util.errors import InputError

RECIPE = config.load(
    "digits",
    ["train.rounds=2", "train.local_steps=1", "train.seeds=0,1", "model.width=0.125"],
    ["fedavg"],
)


def train(out: Path, names: list[str], fresh: bool = False) -> Results:
    """Train the recipe and log its rounds."""
    with loggers.Logging(names, RECIPE, out) as logging:
        (results,) = execute([Experiment(RECIPE, out)], OneByOne(), fresh=fresh, watch=logging)
    return results


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Stand in for the three packages."""
    calls: list[tuple[Any, ...]] = []

    class Writer:
        def __init__(self, place: str) -> None:
            self.place = Path(place).name

        def add_scalar(self, name: str, value: float, step: int) -> None:
            calls.append(("tensorboard", self.place, step, name, value))

        def flush(self) -> None:
            pass

        def close(self) -> None:
            calls.append(("tensorboard", self.place, "closed"))

    class Run:
        def __init__(self, **about: Any) -> None:
            self.name, self.id = about["name"], about["id"]
            calls.append(("wandb", self.name, "begun", about))

        def log(self, numbers: dict[str, float], step: int) -> None:
            calls.append(("wandb", self.name, step, numbers))

        def finish(self) -> None:
            calls.append(("wandb", self.name, "closed"))

    fakes = {
        "tensorboard": {},
        "torch.utils.tensorboard": {"SummaryWriter": Writer},
        "wandb": {"init": Run},
        "mlflow": {
            "set_experiment": lambda name: calls.append(("mlflow", "experiment", name)),
            "start_run": lambda run_name: calls.append(("mlflow", "begun", run_name)),
            "log_params": lambda params: calls.append(("mlflow", "params", params)),
            "log_metrics": lambda numbers, step: calls.append(("mlflow", step, numbers)),
            "end_run": lambda: calls.append(("mlflow", "closed")),
        },
    }
    for name, content in fakes.items():
        module = types.ModuleType(name)
        module.__spec__ = importlib.machinery.ModuleSpec(name, None)
        module.__dict__.update(content)
        monkeypatch.setitem(sys.modules, name, module)
    return calls


def test_all_three_get_every_round_of_every_run(
    logged: list[tuple[Any, ...]], tmp_path: Path
) -> None:
    results = train(tmp_path / "o", ["tensorboard", "wandb", "mlflow"])
    final = {run.seed: run.accuracy.final for run in results.runs}
    board = [(h[1], h[4]) for h in logged if h[0] == "tensorboard" and h[2:4] == (2, "accuracy")]
    assert board == [("FedAvg-0", final[0]), ("FedAvg-1", final[1])]
    assert [h[3]["accuracy"] for h in logged if h[0] == "wandb" and h[2] == 2] == [
        final[0],
        final[1],
    ]
    assert [h[2]["accuracy"] for h in logged if h[:2] == ("mlflow", 2)] == [final[0], final[1]]
    assert sum(h[-1] == "closed" for h in logged) == 6
    begun = [h[3] for h in logged if h[0] == "wandb" and h[2] == "begun"]
    assert begun[0]["config"]["train"]["rounds"] == 2
    assert begun[0]["id"] != begun[1]["id"]


def test_a_logger_that_fails_does_not_end_the_training(
    logged: list[tuple[Any, ...]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ValueError("the quota is used up")

    monkeypatch.setattr(sys.modules["mlflow"], "log_metrics", refuse, raising=False)
    message = "--log mlflow: the quota is used up; the run goes on without it"
    with pytest.warns(RuntimeWarning, match=message) as caught:
        results = train(tmp_path / "o", ["wandb", "mlflow"])
    assert len(caught) == 1
    assert all(run.finished for run in results.runs)
    assert len([h for h in logged if h[0] == "wandb" and h[2] in (1, 2)]) == 4


def test_rounds_of_an_earlier_call_are_not_sent_again(
    logged: list[tuple[Any, ...]], tmp_path: Path
) -> None:
    train(tmp_path / "o", [])
    train(tmp_path / "o", ["wandb"])
    assert logged == []
    train(tmp_path / "o", ["wandb"], fresh=True)
    assert [h[2] for h in logged if h[0] == "wandb"] == ["begun", 1, 2, "closed"] * 2


def test_loggers_are_closed_after_a_failure(logged: list[tuple[Any, ...]], tmp_path: Path) -> None:
    bias = LocalBias(0.25, None, None, None, 1.5, Drift(2.0))
    record = RoundRecord(1, (1,), loss=2.5, accuracy=0.5, bias=bias)
    (run, *_) = Experiment(RECIPE).runs()

    def fails() -> None:
        with loggers.Logging(["wandb"], RECIPE, tmp_path / "o") as logging:
            logging.started(run)
            logging.round_done(run, record)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fails()
    _, (_, name, round, numbers), closed = logged
    assert (name, round) == ("FedAvg-0", 1)
    assert numbers["accuracy"] == 0.5
    assert numbers["accuracy_local"] == 0.25
    assert numbers["bias/entropy"] == 1.5
    assert numbers["bias/length"] == 2.0
    assert "bias/cosine" not in numbers  # which is not known
    assert closed == ("wandb", "FedAvg-0", "closed")


def test_what_is_unknown_or_absent_is_refused_before_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match="allowed: mlflow, tensorboard, wandb"):
        loggers.check(["tensorbord"])
    monkeypatch.setitem(sys.modules, "mlflow", None)
    assert call(["run", "--log", "mlflow", "--out", str(tmp_path / "o")]) == 2
    assert "pip install 'fedbr[mlflow]'" in capsys.readouterr().err
    assert not (tmp_path / "o").exists()
