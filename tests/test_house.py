"""The house rules: imports go one way, public names are exported, examples and README commands
work.
"""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
import types
from itertools import pairwise
from pathlib import Path
from typing import ClassVar

import pytest

import fedbr
from fedbr.methods import METHODS

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "fedbr"
LAYERS = (  # a room may use those above its own line, and itself
    {"util"},
    {"core"},
    {"methods", "models", "data", "metrics", "backends"},
    {"recipe"},
    {"run"},
    {"report"},
    {"bias", "paper", "flower"},
    {"api", "bench"},
    {"cli", "__init__", "__main__"},
)
ALLOWED = {
    room: {room}.union(*LAYERS[:i]) | ({"api"} if room == "bench" else set())
    for i, layer in enumerate(LAYERS)
    for room in layer
}


def rooms_used(file: Path) -> set[str]:
    used = set()
    depth = len(file.relative_to(SOURCE).parts) - 1
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            up = depth + 1 - node.level
            base = [*file.relative_to(SOURCE).parts[:up]]
            names = [node.module] if node.module else [alias.name for alias in node.names]
            used |= {(base + name.split("."))[0] for name in names}
        elif isinstance(node, ast.ImportFrom | ast.Import):
            for name in (
                [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else [a.name for a in node.names]
            ):
                assert not name.startswith("fedbr"), f"{file}: use relative imports"
                assert name.split(".")[0] != "flwr" or "flower" in file.parts, (
                    f"{file}: flwr only in backends/flower"
                )
    return used


@pytest.mark.parametrize(
    "file", sorted(SOURCE.rglob("*.py")), ids=lambda f: str(f.relative_to(SOURCE))
)
def test_imports_go_one_way(file: Path) -> None:
    room = file.relative_to(SOURCE).parts[0].removesuffix(".py")
    if room not in ("__init__", "__main__"):  # the names of the package, and its command
        used = rooms_used(file) - {"__version__", ""}
        assert used <= ALLOWED[room], f"{file} may not use {sorted(used - ALLOWED[room])}"


def test_every_room_has_a_rule_and_a_sentence() -> None:
    rooms = {
        path.name.removesuffix(".py") for path in SOURCE.iterdir() if path.suffix in ("", ".py")
    }
    assert rooms - {"__pycache__", "py"} == set(ALLOWED)
    for package in SOURCE.rglob("__init__.py"):
        assert len(ast.get_docstring(ast.parse(package.read_text("utf-8"))) or "") > 60, package


def test_public_names() -> None:
    assert fedbr.__all__ == [
        "Batch", "ClientContext", "DANN", "Diverged", "FedBR", "FedCM", "FedDecorr", "FedMix", "FedModel", "FedNTD",
        "FedProx", "Federation", "GroupDRO", "InputError", "Local", "Method", "Mixup", "Moon", "NaiveMix", "Output",
        "Reply", "Run", "SCAFFOLD", "ServerContext", "Spec", "State", "VHL", "diagnose", "load_model", "train",
    ]  # fmt: skip
    for name in fedbr.__all__:
        assert getattr(fedbr, name).__doc__
    with pytest.raises(AttributeError):
        fedbr.no_such_thing  # noqa: B018 - the access is the test


def test_who_writes_a_method_finds_the_types_of_its_hooks() -> None:
    hooks = [
        h for n, h in vars(fedbr.Method).items() if inspect.isfunction(h) and not n.startswith("_")
    ]
    said = " ".join(str(a) for hook in hooks for a in inspect.get_annotations(hook).values())
    ours = set(re.findall(r"\b[A-Z]\w+", said)) - {
        "Any",
        "Generator",
        "Module",
        "None",
        "Sequence",
        "Tensor",
    }
    assert {"Spec", "State", "Reply"} < ours <= {*fedbr.__all__}


def test_the_round_loop_fits_on_a_few_screens() -> None:
    assert len((SOURCE / "experiment.py").read_text().splitlines()) < 155


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda f: f.name)
def test_examples_run(example: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(example)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "accuracy" in done.stdout


class YourMethod(fedbr.Method):
    """The reader's own method, as the README calls it."""

    name: ClassVar[str] = "yours"


def test_readme_commands_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every make target and every fedbr command line of the documentation is one that there is."""
    from fedbr.cli.app import app, spread
    from fedbr.recipe import load as config

    monkeypatch.setitem(sys.modules, "mine", types.SimpleNamespace(YourMethod=YourMethod))
    monkeypatch.chdir(ROOT)  # where the documentation's own method lies
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    commands = {c.name for c in app.registered_commands} | {
        group.name for group in app.registered_groups
    }
    for page in [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *sorted((ROOT / "docs").rglob("*.md")),
    ]:
        text = page.read_text("utf-8")
        for target in re.findall(r"(?:^|`)make ([a-z-]+)", text, re.MULTILINE):
            assert target in targets, f"{page.name}: make {target}"
        for line in re.findall(r"(?:^|`|bin/)fedbr ([a-z][^`\n]*)", text, re.MULTILINE):
            words = line.split("#")[0].split()
            assert words[0] in commands, f"{page.name}: fedbr {line}"
            if words[0] == "run" and "..." not in line:
                arguments = spread(words[1:])
                chosen = [v for o, v in pairwise(arguments) if o == "--set"]
                variants = [v for o, v in pairwise(arguments) if o == "--methods"]
                name = "digits" if not arguments or arguments[0].startswith("-") else arguments[0]
                if not name.endswith(".toml"):
                    config.load(name, chosen, variants)


def lines_of_code(file: Path) -> int:
    """Count lines that are neither blank, nor comment, nor docstring."""
    tree = ast.parse(file.read_text("utf-8"))
    documented = [
        n
        for n in ast.walk(tree)
        if isinstance(n, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(n)
    ]
    docs = {
        line
        for n in documented
        for line in range(n.body[0].lineno, (n.body[0].end_lineno or 0) + 1)
    }
    lines = enumerate(file.read_text("utf-8").splitlines(), 1)
    return sum(
        bool(text.strip()) and not text.strip().startswith("#") and i not in docs
        for i, text in lines
    )


@pytest.mark.parametrize("name", sorted(set(METHODS) - {"fedbr"}))
def test_a_method_is_one_small_file_with_a_page(name: str) -> None:
    cls = METHODS[name]
    assert cls.__module__ == f"fedbr.methods.{name}"
    assert lines_of_code(SOURCE / "methods" / f"{name}.py") < 60
    assert cls.paper
    page = (ROOT / "docs" / "methods" / f"{name}.md").read_text("utf-8")
    assert all(heading in page for heading in ("## What is sent", "## When it helps", "```"))
    listed = dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", page, re.MULTILINE))
    assert listed.keys() == cls.model_fields.keys()
    for key, field in cls.model_fields.items():
        if field.default is not None:
            assert listed[key].strip() == str(field.default).lower(), key
    index = (ROOT / "docs" / "methods" / "README.md").read_text("utf-8")
    assert f"({name}.md)" in index
