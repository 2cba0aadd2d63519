"""Methods of the user's in recipes and on the command line, and files that name code."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import safetensors.torch
import torch

import fedbr
from fedbr import config, experiment, sweep

MODULE = '''
from typing import ClassVar

import torch

import fedbr


class Short(fedbr.Method):
    """Pull the classifier towards zero."""

    name: ClassVar[str] = "short"
    weight: float = 0.01

    def loss(self, ctx, batch, out):
        return self.weight * ctx.model.weights["classifier.weight"].square().sum(dim=(1, 2))


class Impostor(fedbr.Method):
    name: ClassVar[str] = "fedbr"


class Nameless(fedbr.Method):
    pass


def network(shape, num_classes):
    return fedbr.FedModel(torch.nn.Flatten(), 64, num_classes)


something = 3
'''
SMALL = ["train.rounds=2", "train.local_steps=3", "train.batch_size=4", "data.clients=4", "train.clients_per_round=4"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a module of the user's, in which the user is."""
    (tmp_path / "own_code_of_a_test.py").write_text(MODULE)
    (tmp_path / "broken_code_of_a_test.py").write_text("def broken(:")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    sys.modules.pop("own_code_of_a_test", None)


SHORT = "own_code_of_a_test:Short"


def test_a_recipe_names_it_and_the_overrides_reach_it(here: Path) -> None:
    recipe = config.load("digits", [*SMALL, "short.weight=0.5"], ["fedavg", SHORT, f"{SHORT}+mixup"])
    assert [stack.label for stack in recipe.compare] == ["FedAvg", "Short", "Short + Mixup"]
    assert recipe.compare[1].methods == [{"name": SHORT, "weight": 0.5}]
    (method,) = recipe.compare[1].build()
    assert (method.name, method.weight) == ("short", 0.5)
    assert config.parse(recipe.model_dump(exclude_none=True)) == recipe


def test_it_trains_as_from_python_and_resumes(here: Path) -> None:
    recipe = config.load("digits", [*SMALL, "short.weight=5"], ["fedavg", SHORT])
    for workers in (1, 2):  # other processes find it too
        experiment.run(recipe, here / str(workers), workers=workers)
    first, second = ((here / w / "runs/Short-0/metrics.jsonl").read_text().splitlines() for w in "12")
    losses = [[json.loads(line)["loss"] for line in lines] for lines in (first, second)]
    assert losses[0] == losses[1]
    plain = (here / "1/runs/FedAvg-0/metrics.jsonl").read_text().splitlines()
    assert losses[0] != [json.loads(line)["loss"] for line in plain]
    assert experiment.run(recipe, here / "1")["runs"]  # finished: nothing is trained again


def test_a_sweep_searches_its_parameters(here: Path) -> None:
    grid = sweep.Grid.parse("short.weight=0.1,1")
    (case,) = sweep.sweep("digits", [grid], here / "sweep", SMALL, ["fedavg", SHORT], workers=1)
    assert [trial.values for trial in case.trials] == [{}, {"short.weight": 0.1}, {"short.weight": 1}]
    assert case.best["Short"].stack.methods[0]["weight"] in (0.1, 1)
    with pytest.raises(fedbr.InputError, match=r"^--grid shrt\.weight: section = 'shrt' .* did you mean 'short'\?"):
        sweep.sweep("digits", [sweep.Grid.parse("shrt.weight=1,2")], here / "s", SMALL, [SHORT], workers=1)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("own_code_of_a_test:Shorter", "cannot import it .* no attribute 'Shorter'"),
        ("own_code_of_a_test:something", r"3 is not a class of methods, a subclass of fedbr\.Method"),
        ("own_code_of_a_test:network", "is not a class of methods"),
        ("own_code_of_a_test:Impostor", "its name, 'fedbr', belongs to a method of fedbr"),
        ("own_code_of_a_test:Nameless", r"Nameless\.name must be a word of its own"),
        ("no_code_of_a_test:Short", "cannot import it .*No module named"),
        ("broken_code_of_a_test:Short", "cannot import it .*SyntaxError.*line 1"),
        ("own_code_of_a_test:", "cannot import it"),
        (":Short", "cannot import it"),
        (f"{SHORT}+{SHORT}", "'short' is there twice"),
        ("shorter", "or yours: package.module:Class$"),
    ],
)
def test_what_cannot_be_used_gets_one_line(here: Path, name: str, reason: str) -> None:
    with pytest.raises(fedbr.InputError, match=reason) as caught:
        config.load("digits", SMALL, [name])
    assert "\n" not in str(caught.value)


def test_an_unknown_parameter_of_it_gets_one_line(here: Path) -> None:
    with pytest.raises(fedbr.InputError, match=r"^short\.wieght = 1: unknown key; did you mean 'weight'\?"):
        config.load("digits", [*SMALL, "short.wieght=1"], [SHORT])
    with pytest.raises(fedbr.InputError, match=r"section = 'shrt' is unknown; did you mean 'short'\?"):
        config.load("digits", [*SMALL, "shrt.weight=1"], [SHORT])


@pytest.mark.parametrize(("model", "stack"), [("own_code_of_a_test:network", "fedavg"), ("mlp", SHORT)])
def test_a_model_file_that_names_code_is_loaded_on_request_only(here: Path, model: str, stack: str) -> None:
    values = config.load("digits", SMALL, [stack]).model_dump(exclude_none=True) | {"model": {"name": model}}
    experiment.run(config.parse(values), here / "out")
    (path,) = (here / "out").glob("runs/*/model.safetensors")
    with pytest.raises(fedbr.InputError, match=r"names code, own_code_of_a_test:.*own_code=True"):
        fedbr.load_model(path)
    assert fedbr.load_model(path, own_code=True).predict(torch.zeros(2, 1, 8, 8)).shape == (2,)


def test_a_model_file_runs_no_command(here: Path) -> None:
    """A file that names a program instead of a model, its arguments in place of the shape."""
    facts = {
        "name": "subprocess:run", "options": {}, "shape": ["touch", "owned"], "num_classes": 10, "methods": [],
        "scale": 1.0, "shift": 0.0, "class_names": [],
    }  # fmt: skip
    safetensors.torch.save_file({"w": torch.zeros(1)}, here / "m.safetensors", {"fedbr": json.dumps(facts)})
    with pytest.raises(fedbr.InputError, match="names code, subprocess:run"):
        fedbr.load_model(here / "m.safetensors")
    with pytest.raises(ValueError, match="touch"):
        fedbr.load_model(here / "m.safetensors", own_code=True)
    assert not (here / "owned").exists()
