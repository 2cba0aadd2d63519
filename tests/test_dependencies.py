"""What is imported is declared, and training needs no package of an extra."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from fedbr.util.errors import InputError
from fedbr.util.imports import require

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "fedbr"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
DISTRIBUTIONS = packages_distributions()

# Runs command lines as a user without the extras does, one after the other, and prints exit codes.
WITHOUT_EXTRAS = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("matplotlib", "plotly", "PIL"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocked())
from fedbr.cli.app import call

for line in sys.argv[1:]:
    print("exit code", call(line.split()))
"""


def normalise(name: str) -> str:
    """Return the one spelling of a distribution's name."""
    return re.sub(r"[-_.]+", "-", name).lower()


def names(requirements: list[str]) -> set[str]:
    """Return the distributions of a list of requirements, without versions and markers."""
    return {normalise(re.split(r"[^\w.-]", text, maxsplit=1)[0]) for text in requirements}


def providers(module: str) -> set[str]:
    """Return the distributions that provide a module; what is not installed is named after it."""
    package = module.partition(".")[0]
    return {normalise(name) for name in DISTRIBUTIONS.get(package, [package])}


def modules(tree: ast.AST) -> Iterator[str]:
    """Return what a file imports from outside of fedbr, wherever in the file it does."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module or ""


def calls_of_require(tree: ast.AST) -> Iterator[tuple[list[str], str]]:
    """Return the packages and the extra of every ``require("package", extra="extra")``."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            continue
        extras = [k.value for k in node.keywords if k.arg == "extra"]
        constants = [a for a in (*node.args, *extras) if isinstance(a, ast.Constant)]
        if node.func.id == "require" and len(constants) == len(node.args) + 1:
            *packages, extra = [str(constant.value) for constant in constants]
            yield packages, extra


FILES = {
    file.relative_to(SOURCE): ast.parse(file.read_text("utf-8")) for file in SOURCE.rglob("*.py")
}


def test_every_import_is_declared() -> None:
    declared = names(PROJECT["dependencies"])
    for extra in EXTRAS.keys() - {"dev", "all"}:
        declared |= names(EXTRAS[extra])
    for file, tree in FILES.items():
        for module in modules(tree):
            if module.partition(".")[0] not in sys.stdlib_module_names:
                assert providers(module) & declared, f"{file}: {module} is not declared"


def test_a_command_names_the_extra_that_has_what_it_needs() -> None:
    calls = [call for tree in FILES.values() for call in calls_of_require(tree)]
    assert len(calls) > 5
    for packages, extra in calls:
        for package in packages:
            assert providers(package) & names(EXTRAS[extra]), f"{package} is not in {extra}"


def test_all_has_every_extra_but_the_loggers() -> None:
    (everything,) = EXTRAS["all"]
    listed = set(re.findall(r"[\w-]+", everything)) - {"fedbr"}
    assert listed == EXTRAS.keys() - {"all", "dev", "tensorboard", "wandb", "mlflow"}


def call_without_extras(folder: Path, *lines: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_EXTRAS, *lines],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=folder,
        check=False,
    )


def test_training_needs_no_extra(tmp_path: Path) -> None:
    run = "run digits --workers 1 --out out --set train.rounds=2 train.local_steps=2"
    done = call_without_extras(tmp_path, run, "report out", "report out --out page.html")
    report = "fedbr: fedbr report: matplotlib is not installed; pip install 'fedbr[report]'\n"
    assert done.stderr == 2 * report
    codes = re.findall(r"exit code (\d)", done.stdout)
    assert codes == ["0", "2", "2"]
    assert "FedBR" in done.stdout
    assert (tmp_path / "out" / "results.json").exists()
    assert not list(tmp_path.rglob("*.html"))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("diagnose --toy --epochs 1", "fedbr diagnose: matplotlib is not installed; {report}"),
        ("reproduce ablation", "fedbr reproduce: matplotlib is not installed; {report}"),
        ("data show digits", "fedbr data show: matplotlib is not installed; {report}"),
        (
            "run digits --set data.proxy=photos",
            "data.proxy = 'photos': PIL is not installed; {images}",
        ),
    ],
)
def test_a_missing_extra_is_said_in_one_line(tmp_path: Path, line: str, words: str) -> None:
    done = call_without_extras(tmp_path, line)
    hints = {extra: f"pip install 'fedbr[{extra}]'" for extra in ("report", "images")}
    assert done.stderr == f"fedbr: {words.format(**hints)}\n"
    assert "exit code 2" in done.stdout


def test_a_package_that_is_broken_is_not_called_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_package_of_a_test.py").write_text("import what_it_needs_of_a_test")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InputError) as refused:
        require("broken_package_of_a_test", extra="report", wanted_by="fedbr report")
    assert "broken_package_of_a_test cannot be imported (No module named" in str(refused.value)
