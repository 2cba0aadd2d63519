"""What is imported is declared, and training needs no package of an extra."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
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

OPTIONAL = (  # modules of extras; threadpoolctl comes with scikit-learn anyway
    "matplotlib",
    "plotly",
    "PIL",
    "flwr",
    "cryptography",
    "tensorboard",
    "wandb",
    "mlflow",
)

# Hides the packages of all extras, as if they were not installed.
HIDE = f"""
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {OPTIONAL}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Hidden())
"""

# Runs command lines one after the other, and prints after each its exit code, to both streams.
COMMANDS = (
    HIDE
    + """
from fedbr.cli.app import call

for line in sys.argv[1:]:
    code = call(line.split())
    for stream in (sys.stdout, sys.stderr):
        print("exit code", code, file=stream, flush=True)
"""
)

# Trains and compares in Python, and uses every public name.
TRAINING = (
    HIDE
    + """
import numpy as np

import fedbr
import fedbr.run.runner

for name in fedbr.__all__:
    getattr(fedbr, name)
rng = np.random.default_rng(0)
x, y = rng.random((60, 4), dtype=np.float32), np.arange(60) % 3
federation = fedbr.Federation.from_arrays(x, y, x, y, clients=3, partition="iid")
run = fedbr.train(federation, "mlp", [fedbr.FedBR()], rounds=1, local_steps=1, hidden=(5,))
settings = {"rounds": 1, "local_steps": 1, "hidden": (5,)}
results = fedbr.compare(federation, {"FedAvg": []}, "mlp", seeds=1, out="compared", **settings)
print(len(run.accuracy), len(results.runs))
"""
)

# Says which of the optional packages training imports where they are installed.
IMPORTED = f"""
import sys
import fedbr.run.runner, fedbr.api

fedbr.train, fedbr.compare
print([name for name in {OPTIONAL} if name in sys.modules])
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
            # A notebook has IPython, and nobody is asked for it elsewhere.
            if module.partition(".")[0] not in {*sys.stdlib_module_names, "IPython"}:
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


def python(code: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a folder."""
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=folder,
        check=False,
    )


def test_training_in_python_needs_no_extra(tmp_path: Path) -> None:
    done = python(TRAINING, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "1 1\n"


def test_training_imports_no_extra_where_there_are_some(tmp_path: Path) -> None:
    done = python(IMPORTED, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[]\n"


MISSING = "{} is not installed; pip install 'fedbr[{}]'"
COMMAND_LINES = {  # in the order in which they are run
    "run digits --workers 1 --out out --set train.rounds=2 train.local_steps=2": "",
    "report out": f"fedbr report: {MISSING.format('matplotlib', 'report')}",
    "report out --out page.html": f"fedbr report: {MISSING.format('matplotlib', 'report')}",
    "diagnose --toy --epochs 1": f"fedbr diagnose: {MISSING.format('matplotlib', 'report')}",
    "reproduce ablation": f"fedbr reproduce: {MISSING.format('matplotlib', 'report')}",
    "data show digits": f"fedbr data show: {MISSING.format('matplotlib', 'report')}",
    "run digits --set data.proxy=photos": (
        f"data.proxy = 'photos': {MISSING.format('PIL', 'images')}"
    ),
    "run digits --out logged --log wandb": f"--log wandb: {MISSING.format('wandb', 'wandb')}",
    "flower keys keys --ids 0-1": f"fedbr flower: {MISSING.format('cryptography', 'flower')}",
}


@dataclass(frozen=True)
class Ended:
    """What a command line left."""

    code: int
    stdout: str
    stderr: str


@pytest.fixture(scope="module")
def without_extras(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Ended]]:
    """The folder in which all command lines were run without extras, and how each of them ended."""
    folder = tmp_path_factory.mktemp("without")
    done = python(COMMANDS, folder, *COMMAND_LINES)
    assert done.returncode == 0, done.stderr
    ended = {}
    streams = [re.split(r"exit code (\d+)\n", text) for text in (done.stdout, done.stderr)]
    for i, line in enumerate(COMMAND_LINES):
        (stdout, code), (stderr, _) = (parts[2 * i : 2 * i + 2] for parts in streams)
        ended[line] = Ended(int(code), stdout, stderr)
    return folder, ended


def test_the_command_trains_without_extras(without_extras: tuple[Path, dict[str, Ended]]) -> None:
    folder, ended = without_extras
    trained = ended[next(iter(COMMAND_LINES))]
    assert trained.code == 0
    assert "FedBR" in trained.stdout
    assert "is not installed" not in trained.stderr
    assert (folder / "out" / "results.json").exists()
    assert not list(folder.rglob("*.html"))


@pytest.mark.parametrize("line", [line for line, said in COMMAND_LINES.items() if said])
def test_a_missing_extra_is_said_in_one_line(
    without_extras: tuple[Path, dict[str, Ended]], line: str
) -> None:
    ended = without_extras[1][line]
    assert ended.code == 2
    assert ended.stderr == f"fedbr: {COMMAND_LINES[line]}\n"
    assert ended.stdout == ""


def test_a_package_that_is_broken_is_not_called_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_package_of_a_test.py").write_text("import what_it_needs_of_a_test")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InputError) as refused:
        require("broken_package_of_a_test", extra="report", needed_by="fedbr report")
    assert "broken_package_of_a_test cannot be imported (No module named" in str(refused.value)
