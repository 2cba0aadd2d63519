"""The result folder: all runs of one recipe, claimed by one process at a time."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

from .. import metrics
from ..metrics import local
from ..recipe.load import parse_stored
from ..recipe.schema import Recipe, Variant
from ..util.errors import InputError
from ..util.files import dump, parse_toml, read_json, read_toml, write
from . import diagnosis
from .environment import environment
from .results import Accuracy, Results, RunResult, Seconds, Traffic
from .run_folder import RunFolder
from .same_recipe import Table, changes
from .store import RunStore

if os.name == "nt":  # pragma: no cover
    import msvcrt
else:
    import fcntl

MARK = "# The whole recipe as used, written by fedbr run."  # by which we know our folders
WRITTEN = ("results.json", "runs.csv", "rounds.csv", "report.html", "environment.json")


class ResultStore:
    """All runs of one recipe, in memory. Finished runs are added up once."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self._runs: dict[tuple[str, int], RunStore] = {}
        self._added_up: dict[tuple[str, int], RunResult] = {}  # of the runs that are finished

    @property
    def path(self) -> Path | None:
        return None

    def refuse(self, fresh: bool = False) -> None:
        """Refuse a place that cannot be used, and leave it as it is."""

    @contextlib.contextmanager
    def open(self, fresh: bool = False) -> Iterator[Self]:
        """Claim the place for this recipe and this process, or refuse."""
        yield self

    def run(self, variant: Variant, seed: int) -> RunStore:
        """Return what is kept of one run."""
        key = variant.label, seed
        if key not in self._runs:
            self._runs[key] = self._make(*key)
        return self._runs[key]

    def _make(self, label: str, seed: int) -> RunStore:
        return RunStore(self.recipe.train.rounds)

    def results(self) -> Results:
        """Add up what is there, finished or not."""
        runs = []
        for variant in self.recipe.compare:
            for seed in self.recipe.train.seeds:
                if (result := self._add_up(variant, seed)) is not None:
                    runs.append(result)
        own_tests = any(run.record.own_tests for run in runs)
        meanings = metrics.definitions(metrics.used(self.recipe.metrics.extra), own_tests)
        if self.recipe.metrics.bias_every:
            meanings |= local.definitions()
        return Results(self.recipe, meanings, runs, self.path)

    def summarise(self) -> Results:
        """Keep the results for others to read, and return them."""
        return self.results()

    def _add_up(self, variant: Variant, seed: int) -> RunResult | None:
        """Return what a run amounts to; None if it has not begun."""
        key = variant.label, seed
        if key in self._added_up:
            return self._added_up[key]
        run = self.run(variant, seed)
        if not run.begun:
            return None
        result = add_up(self.recipe, variant, seed, run)
        if result.finished:
            self._added_up[key] = result
        return result


class ResultFolder(ResultStore):
    """All runs of one recipe, in a folder. Each file is read once."""

    def __init__(
        self, path: Path, recipe: Recipe, code: Callable[[Variant], dict[str, str]] | None = None
    ) -> None:
        super().__init__(recipe)
        self._path = path
        self._code = code or recipe.code  # of the user's, with a hash of each piece

    @property
    def path(self) -> Path:
        return self._path

    @classmethod
    def read(cls, path: Path) -> ResultFolder:
        """Find the results of an earlier call; InputError if there are none."""
        file = path / "recipe.toml"
        if not file.exists():
            inside = sorted(str(found.parent) for found in path.glob("**/recipe.toml"))
            hint = "give the --out folder of fedbr run"
            if inside:
                hint = f"there are some in {', '.join(inside[:4])}"
            raise InputError(f"{path}: holds no results (no recipe.toml); {hint}")
        return cls(path, parse_stored(read_toml(file)))

    def refuse(self, fresh: bool = False) -> None:
        """Refuse a folder that is not ours, or that holds another recipe; leave it as it is."""
        if self.path.exists() and not self.path.is_dir():
            raise InputError(f"--out {self.path}: is not a folder")
        recipe = self._own_recipe()
        if recipe is not None:
            if not fresh:
                self._check_same(parse_toml(recipe, self.path / "recipe.toml"))
                self._check_code()
        elif self.path.exists() and any(p.name[0] != "." for p in self.path.iterdir()):
            raise InputError(
                f"--out {self.path}: is not empty and was not created by fedbr; choose another "
                "folder"
            )

    @contextlib.contextmanager
    def open(self, fresh: bool = False) -> Iterator[Self]:
        """Claim the folder for this recipe and this process, or refuse."""
        self.refuse(fresh)
        with contextlib.ExitStack() as exits:
            try:
                self.path.mkdir(parents=True, exist_ok=True)
                exits.enter_context(_locked(self.path))
                if fresh:
                    self._clear()
                for path in (self.path / "runs").glob("*/"):
                    half_cleared = RunFolder(path, 0)
                    if half_cleared.record.cleared:  # a kill came in between
                        half_cleared.clear()
                write(self.path / "recipe.toml", f"{MARK}\n{self.recipe.to_toml()}")
                self._note_environment()
            except OSError as error:
                raise InputError(
                    f"--out {self.path}: cannot write there ({error.strerror})"
                ) from error
            yield self

    def discard(self) -> None:
        """Remove what fedbr wrote, whatever recipe it was of."""
        self.refuse(fresh=True)
        if self._own_recipe() is not None:
            with _locked(self.path):
                self._clear()
                (self.path / "recipe.toml").unlink()

    def run(self, variant: Variant, seed: int) -> RunFolder:
        run = super().run(variant, seed)
        assert isinstance(run, RunFolder)
        return run

    def _make(self, label: str, seed: int) -> RunFolder:
        path = self.path / "runs" / self.name(label, seed)
        return RunFolder(path, self.recipe.train.rounds)

    def name(self, label: str, seed: int) -> str:
        """Name a run after its label, as far as a file name can be."""
        labels = [variant.label for variant in self.recipe.compare]
        names = [_file_name(other).casefold() for other in labels]
        name = _file_name(label)
        if name != label or names.count(name.casefold()) > 1:
            name += f"#{labels.index(label)}"
        return f"{name}-{seed}"

    def summarise(self) -> Results:
        """Write results.json, and return what is in it."""
        results = self.results()
        write(self.path / "results.json", dump(results.to_json()))
        return results

    def _own_recipe(self) -> bytes | None:
        """Return what the folder's recipe.toml says; None if it is not a folder of ours."""
        file = self.path / "recipe.toml"
        content = file.read_bytes() if file.exists() else b""
        return content if content.startswith(MARK.encode()) else None

    def _check_same(self, there: Table) -> None:
        known = there.get("compare", [])
        before = self.recipe.model_copy(update={"compare": self.recipe.compare[: len(known)]})
        named_before = ResultFolder(self.path, before)
        same_names = len(before.compare) == len(known) and all(
            named_before.name(v.label, 0) == self.name(v.label, 0) for v in before.compare
        )
        if said := changes(there, self.recipe, same_names):
            more = f", and {len(said) - 3} more" if len(said) > 3 else ""
            raise InputError(
                f"--out {self.path}: holds another recipe ({'; '.join(said[:3])}{more}); "
                "choose another folder, or --fresh to start over"
            )

    def _check_code(self) -> None:
        """Refuse results that other code of the user's made: the recipe has only its name."""
        for variant in self.recipe.compare:
            code = self._code(variant)
            for seed in self.recipe.train.seeds if code else ():
                run = self.run(variant, seed)
                if not run.rounds or run.record.code is None:
                    continue  # nothing is done: nothing to protect
                known = run.record.code
                if changed := [name for name in code if known.get(name) != code[name]]:
                    raise InputError(
                        f"--out {self.path}: {run.path.name} was made with other code "
                        f"({changed[0]} has changed); choose another folder, or --fresh to start "
                        "over"
                    )

    def _note_environment(self) -> None:
        """Keep where the runs began; add where they went on, if that is another place."""
        file, here = self.path / "environment.json", environment()
        known = read_json(file, here)
        later = known.pop("later", [])
        if here not in (known, *later):
            later.append(here)
        write(file, dump(known | ({"later": later} if later else {})))

    def _clear(self) -> None:
        """Remove what fedbr wrote, nothing else."""
        diagnosis.clear(self.path)
        for name in WRITTEN:
            (self.path / name).unlink(missing_ok=True)
        for path in (self.path / "runs").glob("*/"):
            RunFolder(path, 0).clear()
        with contextlib.suppress(OSError):
            (self.path / "runs").rmdir()
        self._runs.clear()
        self._added_up.clear()


def add_up(recipe: Recipe, variant: Variant, seed: int, run: RunStore) -> RunResult:
    """Return what the rounds of a run amount to."""
    targets = sorted({*recipe.metrics.targets, recipe.metrics.target})
    figures = metrics.per_run(metrics.used(recipe.metrics.extra), run.rounds, targets)
    return RunResult(
        variant=variant,
        seed=seed,
        finished=run.finished,
        record=run.record,
        rounds=run.rounds,
        accuracy=Accuracy(**figures.pop("accuracy")),
        rounds_to=figures.pop("rounds_to"),
        bytes=Traffic(**figures.pop("bytes")),
        seconds=Seconds(**figures.pop("seconds")),
        extra=figures,
        weights=run.weights,
    )


def _file_name(label: str) -> str:
    return re.sub(r"[^\w .+=-]", "_", label)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Keep a second process out; the system lifts the lock even when this one is killed."""
    with (path / ".lock").open("w") as file:
        try:
            if os.name == "nt":  # pragma: no cover
                msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
            else:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise InputError(f"--out {path}: another fedbr process is working there") from error
        yield
