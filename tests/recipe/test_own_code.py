"""Methods of the user's in recipes and on the command line, and files that name code."""

from __future__ import annotations

import importlib
import json
import linecache
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import safetensors.torch
import torch

import fedbr
from fedbr.cli.app import call
from fedbr.recipe import load as config
from fedbr.run import sweep
from fedbr.run.folder import ResultFolder
from fedbr.run.plan import clients_of
from fedbr.util.errors import RunError
from training import train_recipe

MODULE = '''
from pathlib import Path
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


class Wider(fedbr.Method):
    name: ClassVar[str] = "wider"

    def rebuild(self, model, spec):
        encoder = torch.nn.Sequential(model.encoder, torch.nn.Linear(64, 80))
        return fedbr.FedModel(encoder, 80, spec.num_classes)


class FedBR(Short):
    name: ClassVar[str] = "fedbr-of-mine"


class Numbered(fedbr.Method):
    name: ClassVar = 3


class Training(fedbr.Method):
    name: ClassVar[str] = "train"


class Placed(Short):
    name: ClassVar[str] = "placed"
    where: Path = Path("here")


def network(shape, num_classes):
    return fedbr.FedModel(torch.nn.Flatten(), 64, num_classes)


something = 3
'''
SMALL = [
    "train.rounds=2",
    "train.local_steps=3",
    "train.batch_size=4",
    "data.clients=4",
    "train.clients_per_round=4",
]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a module of the user's, in which the user is."""
    (tmp_path / "own_code_of_a_test.py").write_text(MODULE)
    (tmp_path / "broken_code_of_a_test.py").write_text("def broken(:")
    (tmp_path / "lines_of_a_test.py").write_text("raise ValueError('one\\ntwo')")
    (tmp_path / "exit_of_a_test.py").write_text("raise SystemExit(3)")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    for name in [name for name in sys.modules if name.endswith("_of_a_test")]:
        del sys.modules[name]


def _rewrite(here: Path, old: str, new: str) -> None:
    """Change the module, and let it be imported anew, as by another process."""
    file = here / "own_code_of_a_test.py"
    file.write_text(MODULE.replace(old, new))
    shutil.rmtree(here / "__pycache__", ignore_errors=True)
    sys.modules.pop("own_code_of_a_test", None)
    linecache.clearcache()
    importlib.invalidate_caches()


SHORT = "own_code_of_a_test:Short"


def test_a_recipe_names_it_and_the_overrides_reach_it(here: Path) -> None:
    recipe = config.load(
        "digits", [*SMALL, "short.weight=0.5"], ["fedavg", SHORT, f"{SHORT}+mixup"]
    )
    assert [variant.label for variant in recipe.compare] == ["FedAvg", "Short", "Short + Mixup"]
    assert recipe.compare[1].methods == [{"name": SHORT, "weight": 0.5}]
    (method,) = recipe.compare[1].build()
    assert (method.name, method.weight) == ("short", 0.5)
    assert config.parse(recipe.model_dump(exclude_none=True)) == recipe


def test_it_trains_as_from_python_and_goes_on(here: Path) -> None:
    recipe = config.load("digits", [*SMALL, "short.weight=5"], ["fedavg", SHORT])
    for workers in (1, 2):  # other processes find it too
        train_recipe(recipe, here / str(workers), workers=workers)
    logs = [
        here / w / f"runs/{variant}-0/metrics.jsonl"
        for w in "12"
        for variant in ("FedAvg", "Short")
    ]
    plain, short, _, again = (
        [json.loads(line)["loss"] for line in log.read_text().splitlines()] for log in logs
    )
    assert short == again
    assert plain != short
    clients, train = clients_of(recipe.data, 0), recipe.train
    run = fedbr.train(
        clients,
        "cnn",
        recipe.compare[1].build(),
        rounds=2,
        local_steps=3,
        batch_size=4,
        lr=train.lr,
        width=0.25,
    )
    assert run.loss == short
    (here / "1/runs/Short-0/model.safetensors").unlink()  # as if it had been killed before the end
    train_recipe(recipe, here / "1")
    assert (here / "1/runs/Short-0/model.safetensors").exists()
    assert [json.loads(line)["loss"] for line in logs[1].read_text().splitlines()] == short


def test_results_of_other_code_are_not_taken_for_its_own(here: Path) -> None:
    recipe = config.load("digits", SMALL, ["fedavg", SHORT])
    train_recipe(recipe, here / "out")
    _rewrite(here, "something = 3", "something = 4")
    train_recipe(recipe, here / "out")  # not a line of the method
    _rewrite(here, "self.weight *", "2 * self.weight *")
    with pytest.raises(
        fedbr.InputError,
        match=rf"Short-0 was made with other code \({SHORT} has changed\); .*--fresh",
    ):
        train_recipe(recipe, here / "out")
    train_recipe(recipe, here / "out", fresh=True)


def test_a_result_folder_runs_no_code(here: Path) -> None:
    """Reports of a folder, and runs that would write to it, do not import what its recipe names."""
    train_recipe(config.load("digits", SMALL, [SHORT]), here / "out")
    (here / "evil.py").write_text("open('owned', 'w')")
    file = here / "out/recipe.toml"
    file.write_text(file.read_text().replace(SHORT, "evil:X"))
    assert ResultFolder.read(here / "out").recipe.compare[0].methods[0]["name"] == "evil:X"
    assert call(["report", "out"]) == 0
    assert call(["run", "digits", "--out", "out", "--set", *SMALL]) == 2
    assert not (here / "owned").exists()


def test_classes_of_one_name_have_labels_of_their_own(here: Path) -> None:
    recipe = config.load("digits", SMALL, ["fedbr", "own_code_of_a_test:FedBR", "mixup"])
    assert [variant.label for variant in recipe.compare] == [
        "FedBR",
        "own_code_of_a_test:FedBR",
        "Mixup",
    ]
    same = config.load("digits", SMALL, ["fedbr.methods:FedBR"]).compare[0]  # by another way
    assert (same.label, same.methods[0]["name"]) == ("FedBR", "fedbr")
    with pytest.raises(fedbr.InputError, match="duplicate label"):
        config.load("digits", SMALL, ["mixup", "mixup"])


def test_parameters_that_toml_does_not_know_are_written_as_words(here: Path) -> None:
    recipe = config.load("digits", SMALL, ["own_code_of_a_test:Placed"])
    assert 'where = "here"' in recipe.to_toml()
    assert recipe.compare[0].build()[0].where == Path("here")  # type: ignore[attr-defined]


def test_a_sweep_searches_its_parameters(here: Path) -> None:
    grid = sweep.Grid.parse("short.weight=0.1,1")
    (case,) = sweep.sweep("digits", [grid], here / "sweep", SMALL, ["fedavg", SHORT], workers=1)
    assert [trial.values for trial in case.trials] == [
        {},
        {"short.weight": 0.1},
        {"short.weight": 1},
    ]
    assert case.best["Short"].variant.methods[0]["weight"] in (0.1, 1)
    with pytest.raises(
        fedbr.InputError, match=r"^--grid shrt\.weight: section = 'shrt' .* did you mean 'short'\?"
    ):
        sweep.sweep(
            "digits", [sweep.Grid.parse("shrt.weight=1,2")], here / "s", SMALL, [SHORT], workers=1
        )


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (
            "own_code_of_a_test:Shorter",
            r"own_code_of_a_test\.py has no 'Shorter'; did you mean 'Short'\?$",
        ),
        (
            "own_code_of_a_test:something",
            r"3 is not a class of methods, a subclass of fedbr\.Method",
        ),
        ("own_code_of_a_test:network", "is not a class of methods"),
        (
            "own_code_of_a_test:Impostor",
            "its name, 'fedbr', is already in use by a method of fedbr",
        ),
        ("own_code_of_a_test:Nameless", r"Nameless\.name must consist of letters"),
        ("no_code_of_a_test:Short", "cannot import it .*No module named"),
        ("broken_code_of_a_test:Short", "cannot import it .*SyntaxError.*line 1"),
        ("own_code_of_a_test:", r"own_code_of_a_test\.py has no ''$"),
        (":Short", "cannot import it"),
        ("own_code_of_a_test:Numbered", r"Numbered\.name = 3 must consist of letters"),
        ("own_code_of_a_test:Training", r"Training\.name = 'train' must .* not be one of .*train"),
        ("lines_of_a_test:Short", r"cannot import it \(one two\)"),
        ("exit_of_a_test:Short", r"cannot import it \(SystemExit: 3\)"),
        (f"{SHORT}+{SHORT}", "duplicate 'short'"),
        ("shorter", "or yours: package.module:Class$"),
    ],
)
def test_what_cannot_be_used_gets_one_line(here: Path, name: str, reason: str) -> None:
    with pytest.raises(fedbr.InputError, match=reason) as caught:
        config.load("digits", SMALL, [name])
    assert "\n" not in str(caught.value)


BUGS = """
from typing import ClassVar

import fedbr


class Raises(fedbr.Method):
    name: ClassVar[str] = "raises"

    def loss(self, ctx, batch, out):
        raise ValueError("oops")


class Scalar(fedbr.Method):
    name: ClassVar[str] = "scalar"

    def loss(self, ctx, batch, out):
        return out.logits.sum()


class Number(fedbr.Method):
    name: ClassVar[str] = "number"

    def loss(self, ctx, batch, out):
        return 0.5


class NoBatch(fedbr.Method):
    name: ClassVar[str] = "nobatch"

    def on_batch(self, ctx, batch):
        pass


class Memory(fedbr.Method):
    name: ClassVar[str] = "memory"

    def finish(self, ctx):
        ctx.state["x"] = ctx.clients
        return {}


class Server(fedbr.Method):
    name: ClassVar[str] = "server"

    def update_server(self, state, ctx):
        state["x"]


class Arguments(fedbr.Method):
    name: ClassVar[str] = "arguments"

    def loss(self, ctx, batch):
        return None


def boom(shape, num_classes):
    return 1 / 0
"""


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Raises", r"bugs_of_a_test\.py, line 11, in loss: ValueError: oops$"),
        ("Scalar", r"^scalar\.loss must return one value per client, \[2\], not shape \[\]$"),
        ("Number", r"^number\.loss must return .* not float$"),
        ("NoBatch", r"^nobatch\.on_batch must return .* not NoneType$"),
        ("Memory", r"^memory: a client remembers \['x'\]; init_client must name the same$"),
        ("Server", r"bugs_of_a_test\.py, line 47, in update_server: KeyError: 'x'$"),
    ],
)
def test_a_mistake_in_it_is_one_line_that_says_where(here: Path, name: str, message: str) -> None:
    (here / "bugs_of_a_test.py").write_text(BUGS)
    recipe = config.load("digits", [*SMALL, "train.clients_at_once=2"], [f"bugs_of_a_test:{name}"])
    # Other processes bring the line here as it is: of what is raised, and of what we refuse.
    for workers in (1, 2) if name in ("Raises", "Scalar", "Memory") else (1,):
        with pytest.raises(RunError, match=message):
            train_recipe(recipe, here / "out", workers=workers)


def test_mistakes_that_can_be_seen_before(here: Path) -> None:
    (here / "bugs_of_a_test.py").write_text(BUGS)
    with pytest.raises(
        fedbr.InputError, match=r"Arguments\.loss is called with \(self, ctx, batch, out\)"
    ):
        config.load("digits", SMALL, ["bugs_of_a_test:Arguments"])
    values = config.load("digits", SMALL).model_dump(exclude_none=True) | {
        "model": {"name": "bugs_of_a_test:boom"}
    }
    with pytest.raises(RunError, match=r"bugs_of_a_test\.py, line 58, in boom: ZeroDivisionError"):
        train_recipe(config.parse(values), here / "out")


def test_an_unknown_parameter_of_it_gets_one_line(here: Path) -> None:
    with pytest.raises(
        fedbr.InputError, match=r"^short\.wieght = 1: unknown key; did you mean 'weight'\?"
    ):
        config.load("digits", [*SMALL, "short.wieght=1"], [SHORT])
    with pytest.raises(
        fedbr.InputError, match=r"section = 'shrt' is unknown; did you mean 'short'\?"
    ):
        config.load("digits", [*SMALL, "shrt.weight=1"], [SHORT])


@pytest.mark.parametrize(
    ("model", "variant"),
    [("own_code_of_a_test:network", "fedavg"), ("mlp", "own_code_of_a_test:Wider")],
)
def test_a_model_file_that_names_code_is_loaded_on_request_only(
    here: Path, model: str, variant: str
) -> None:
    values = config.load("digits", SMALL, [variant]).model_dump(exclude_none=True) | {
        "model": {"name": model}
    }
    train_recipe(config.parse(values), here / "out")
    (path,) = (here / "out").glob("runs/*/model.safetensors")
    with pytest.raises(fedbr.InputError, match=r"names code, own_code_of_a_test:.*own_code=True"):
        fedbr.load_model(path)
    assert fedbr.load_model(path, own_code=True).predict(torch.zeros(2, 1, 8, 8)).shape == (2,)


def test_a_method_that_leaves_the_model_as_it_is_is_not_needed_to_load_it(here: Path) -> None:
    train_recipe(config.load("digits", SMALL, [SHORT]), here / "out")
    (path,) = (here / "out").glob("runs/*/model.safetensors")
    assert fedbr.load_model(path).predict(torch.zeros(2, 1, 8, 8)).shape == (2,)


def test_a_model_file_runs_no_command(here: Path) -> None:
    """A file that names a program instead of a model, its arguments in place of the shape."""
    facts = {
        "name": "subprocess:run",
        "options": {},
        "shape": ["touch", "owned"],
        "num_classes": 10,
        "methods": [],
        "scale": 1.0,
        "shift": 0.0,
        "class_names": [],
    }
    safetensors.torch.save_file(
        {"w": torch.zeros(1)}, here / "m.safetensors", {"fedbr": json.dumps(facts)}
    )
    with pytest.raises(fedbr.InputError, match="names code, subprocess:run"):
        fedbr.load_model(here / "m.safetensors")
    with pytest.raises(ValueError, match="touch"):
        fedbr.load_model(here / "m.safetensors", own_code=True)
    assert not (here / "owned").exists()


def test_nothing_of_the_users_is_overwritten(here: Path) -> None:
    (here / "notes.txt").write_text("mine")
    (here / "folder").mkdir()
    (here / "folder/notes.txt").write_text("mine")
    train_recipe(config.load("digits", SMALL, ["fedavg"]), here / "out")
    assert call(["report", "out", "--out", "notes.txt"]) == 2
    for place in ("folder", "out", "notes.txt"):
        assert (
            call(["sweep", "digits", "--grid", "train.lr=0.1,0.2", "--out", place, "--set", *SMALL])
            == 2
        )
    assert (here / "notes.txt").read_text() == "mine"
    assert not (here / "out/search").exists()


def test_what_methods_leave_out_is_said(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["run", "digits", "--methods", "fedbr", "--out", "o", "--set", *SMALL]) == 0
    assert "default parameters; the recipe's own: --set fedbr.lazy=4" in capsys.readouterr().err


def test_another_model_has_options_of_its_own() -> None:
    assert config.load("digits", ["model.name=mlp"]).model.options == {}
    assert config.load("digits", ["model.name=mlp", "model.width=0.5"]).model.options == {
        "width": 0.5
    }
    for same in ("train.rounds=3", "model.name=cnn", 'model.name="cnn"'):
        assert config.load("digits", [same]).model.options == {"width": 0.25}
