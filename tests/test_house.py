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
LAYERS = (  # a room may use itself and the rooms of the lines above its own
    {"util"},
    {"core"},
    {"methods", "models", "data", "metrics", "backends"},
    {"recipe"},
    {"run"},
    {"report"},
    {"bias", "paper", "flower"},
    {"api"},
    {"bench"},
    {"cli"},
)
ALLOWED = {room: {room}.union(*LAYERS[:i]) for i, layer in enumerate(LAYERS) for room in layer}
FRONT = {"__init__", "__main__"}  # the public names of all rooms, and the command


def rooms_used(file: Path) -> set[str]:
    """Return the rooms that a file imports from, wherever in the file it does."""
    used: set[str] = set()
    folders = file.relative_to(SOURCE).parts[:-1]
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = folders[: len(folders) + 1 - node.level]
            names = [node.module] if node.module else [alias.name for alias in node.names]
            used |= {[*base, *name.split(".")][0] for name in names}
        elif isinstance(node, ast.ImportFrom):
            check_import_from_outside(file, node.module or "")
        elif isinstance(node, ast.Import):
            for alias in node.names:
                check_import_from_outside(file, alias.name)
    return used - {"__version__", ""}


def check_import_from_outside(file: Path, name: str) -> None:
    package = name.split(".")[0]
    assert package != "fedbr", f"{file}: use relative imports"
    assert package != "flwr" or "flower" in file.parts, f"{file}: flwr only in flower/"


@pytest.mark.parametrize(
    "file", sorted(SOURCE.rglob("*.py")), ids=lambda f: str(f.relative_to(SOURCE))
)
def test_imports_go_one_way(file: Path) -> None:
    used = rooms_used(file)
    room = file.relative_to(SOURCE).parts[0].removesuffix(".py")
    if room not in FRONT:
        assert used <= ALLOWED[room], f"{file} may not use {sorted(used - ALLOWED[room])}"


def test_every_room_has_a_rule() -> None:
    entries = {p.stem for p in SOURCE.iterdir() if p.suffix == ".py" or any(p.glob("*.py"))}
    assert entries - FRONT == set(ALLOWED)


@pytest.mark.parametrize(
    "package", sorted(SOURCE.glob("*/**/__init__.py")), ids=lambda f: f.parent.name
)
def test_every_room_says_what_lives_there_and_what_must_not(package: Path) -> None:
    said = ast.get_docstring(ast.parse(package.read_text("utf-8"))) or ""
    assert len(said) > 60
    assert re.search(r"\b(no|not|nothing|never|neither|none)\b", said, re.IGNORECASE), said


def test_tests_mirror_the_rooms() -> None:
    tests = ROOT / "tests"
    of_all_rooms = {"contract", "golden"}  # methods times backends; folders of older versions
    folders = {f.parent.relative_to(tests) for f in tests.rglob("test_*.py")} - {Path()}
    mirrored = {f for f in folders if f.parts[0] not in of_all_rooms}
    assert {f for f in mirrored if not (SOURCE / f).is_dir()} == set()
    rooms = {room for room in ALLOWED if (SOURCE / room).is_dir()}
    assert rooms - {f.parts[0] for f in mirrored} == set()


def test_public_names() -> None:
    assert fedbr.__all__ == [
        "Batch", "ClientContext", "DANN", "Diverged", "FedBR", "FedCM", "FedDecorr", "FedMix",
        "FedModel", "FedNTD", "FedProx", "Federation", "GroupDRO", "InputError", "Local", "Method",
        "Metric", "Mixup", "Moon", "NaiveMix", "Output", "Reply", "Run", "SCAFFOLD",
        "ServerContext", "Spec", "State", "VHL", "compare", "diagnose", "load_model", "run_recipe",
        "train",
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


def test_the_round_loop_is_read_first_and_fits_on_a_few_screens() -> None:
    text = (SOURCE / "run" / "loop.py").read_text("utf-8")
    assert text.startswith('"""Read this first')
    assert len(text.splitlines()) < 155


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


FENCED = re.compile(r"^```[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def lines_to_type(text: str) -> list[str]:
    """Return all that a page shows as code, line by line."""
    fenced = "\n".join(FENCED.findall(text)).splitlines()
    return [*fenced, *re.findall(r"`([^`\n]+)`", FENCED.sub("", text))]


def test_commands_of_the_documentation_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every make target and every fedbr command line of the documentation is one that there is."""
    from fedbr.cli.app import app, repeat_options
    from fedbr.recipe.load import load

    monkeypatch.setitem(sys.modules, "mine", types.SimpleNamespace(YourMethod=YourMethod))
    monkeypatch.chdir(ROOT)  # where the documentation's own method lies
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    commands = {c.name for c in app.registered_commands}
    commands |= {group.name for group in app.registered_groups}
    checked = 0
    for page in PAGES:
        for line in lines_to_type(page.read_text("utf-8")):
            if made := re.match(r"make ([a-z-]+)", line):
                assert made[1] in targets, f"{page.name}: {line}"
                checked += 1
            if called := re.search(r"(?:^|bin/)fedbr ([a-z].*)", line):
                words = called[1].split("#")[0].split()
                assert words[0] in commands, f"{page.name}: {line}"
                checked += 1
                if words[0] == "run" and "..." not in line:
                    arguments = repeat_options(words[1:])
                    chosen = [v for o, v in pairwise(arguments) if o == "--set"]
                    variants = [v for o, v in pairwise(arguments) if o == "--methods"]
                    named = bool(arguments) and not arguments[0].startswith("-")
                    name = arguments[0] if named else "digits"
                    if not name.endswith(".toml"):
                        load(name, chosen, variants)
    assert checked > 100


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
