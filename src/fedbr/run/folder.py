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
from ..util.files import dump, parse_toml, read_json, read_toml, refuse_foreign, write
from ..util.tables import TomlTable
from . import diagnosis
from .environment import describe_environment
from .results import Accuracy, Results, RunResult, Seconds, Traffic
from .run_folder import RunFolder
from .same_recipe import find_changes
from .store import RunStore

if os.name == "nt":  # pragma: no cover
    import msvcrt
else:
    import fcntl

# The first line of recipe.toml, which says that fedbr created the folder.
MARK = "# The whole recipe as used, written by fedbr run."
WRITTEN = ("results.json", "runs.csv", "rounds.csv", "report.html", "environment.json")


class ResultStore:
    """All runs of one recipe, in memory."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self._runs: dict[tuple[str, int], RunStore] = {}
        self._finished: dict[tuple[str, int], RunResult] = {}  # which do not change any more

    @property
    def path(self) -> Path | None:
        """The folder; None: the runs are in memory."""
        return None

    def refuse(self, fresh: bool = False) -> None:
        """Refuse a folder that cannot be used, and leave it as it is.

        Args:
            fresh: the results of an earlier call, even of another recipe, may be removed.

        Raises:
            InputError: the line says why it cannot be used.
        """

    @contextlib.contextmanager
    def open(self, fresh: bool = False) -> Iterator[Self]:
        """Claim the folder for this recipe and this process.

        Args:
            fresh: remove the results of an earlier call.

        Raises:
            InputError: the folder cannot be used.
        """
        yield self

    def run(self, variant: Variant, seed: int) -> RunStore:
        """Return what is kept of one run."""
        key = variant.label, seed
        if key not in self._runs:
            self._runs[key] = self._make_run(*key)
        return self._runs[key]

    def _make_run(self, label: str, seed: int) -> RunStore:
        return RunStore(self.recipe.train.rounds)

    def results(self) -> Results:
        """Return the results of all runs that have begun, finished or not."""
        runs = []
        for variant in self.recipe.compare:
            for seed in self.recipe.train.seeds:
                result = self._result(variant, seed)
                if result is not None:
                    runs.append(result)
        own_tests = any(run.record.own_tests for run in runs)
        meanings = metrics.definitions(metrics.select(self.recipe.metrics.extra), own_tests)
        if self.recipe.metrics.bias_every:
            meanings |= local.definitions()
        return Results(self.recipe, meanings, runs, self.path)

    def summarise(self) -> Results:
        """Return the results; write them where there is a folder."""
        return self.results()

    def _result(self, variant: Variant, seed: int) -> RunResult | None:
        """Return the result of a run; None if it has not begun."""
        key = variant.label, seed
        if key in self._finished:
            return self._finished[key]
        run = self.run(variant, seed)
        if not run.begun:
            return None
        result = make_result(self.recipe, variant, seed, run)
        if result.finished:
            self._finished[key] = result
        return result


class ResultFolder(ResultStore):
    """All runs of one recipe, in a folder. Each file is read once.

    Args:
        path: the folder, which is made when it is opened.
        recipe: the recipe of the runs.
        code: names the user's own code in a variant, with a hash of each; None: as the recipe does.
    """

    def __init__(
        self, path: Path, recipe: Recipe, code: Callable[[Variant], dict[str, str]] | None = None
    ) -> None:
        super().__init__(recipe)
        self._path = path
        self._code = code or recipe.code

    @property
    def path(self) -> Path:
        return self._path

    @classmethod
    def read(cls, path: Path) -> ResultFolder:
        """Open the results of an earlier call to read them.

        Raises:
            InputError: the folder holds none, or its recipe is damaged.
        """
        file = path / "recipe.toml"
        if not file.exists():
            inside = sorted(str(recipe.parent) for recipe in path.glob("**/recipe.toml"))
            hint = "give the --out folder of fedbr run"
            if inside:
                hint = f"there are some in {', '.join(inside[:4])}"
            raise InputError(f"{path}: holds no results (no recipe.toml); {hint}")
        return cls(path, parse_stored(read_toml(file)))

    def refuse(self, fresh: bool = False) -> None:
        """Refuse a folder of somebody else's, or with another recipe; leave it as it is."""
        stored = None if self.path.is_file() else self._read_stored_recipe()
        refuse_foreign(self.path, is_ours=stored is not None)
        if stored is not None and not fresh:
            self._check_recipe(parse_toml(stored, self.path / "recipe.toml"))
            self._check_code()

    @contextlib.contextmanager
    def open(self, fresh: bool = False) -> Iterator[Self]:
        """Claim the folder for this recipe and this process."""
        self.refuse(fresh)
        with contextlib.ExitStack() as exits:
            try:
                self.path.mkdir(parents=True, exist_ok=True)
                exits.enter_context(_locked(self.path))
                if fresh:
                    self._clear()
                for path in (self.path / "runs").glob("*/"):
                    run = RunFolder(path, 0)
                    if run.record.cleared:  # a kill came while it was cleared
                        run.clear()
                write(self.path / "recipe.toml", f"{MARK}\n{self.recipe.to_toml()}")
                self._write_environment()
            except OSError as error:
                raise InputError(
                    f"--out {self.path}: cannot write there ({error.strerror})"
                ) from error
            yield self

    def discard(self) -> None:
        """Remove what fedbr wrote, whatever the recipe was."""
        self.refuse(fresh=True)
        if self._read_stored_recipe() is not None:
            with _locked(self.path):
                self._clear()
                (self.path / "recipe.toml").unlink()

    def run(self, variant: Variant, seed: int) -> RunFolder:
        run = super().run(variant, seed)
        assert isinstance(run, RunFolder)
        return run

    def _make_run(self, label: str, seed: int) -> RunFolder:
        path = self.path / "runs" / self.name(label, seed)
        return RunFolder(path, self.recipe.train.rounds)

    def name(self, label: str, seed: int) -> str:
        """Return the name of a run's folder: its label, as far as a file name can be, and seed."""
        labels = [variant.label for variant in self.recipe.compare]
        names = [_file_name(other).casefold() for other in labels]
        name = _file_name(label)
        if name != label or names.count(name.casefold()) > 1:
            name += f"#{labels.index(label)}"
        return f"{name}-{seed}"

    def summarise(self) -> Results:
        """Write results.json, and return the results."""
        results = self.results()
        write(self.path / "results.json", dump(results.to_json()))
        return results

    def _read_stored_recipe(self) -> bytes | None:
        """Return the content of recipe.toml; None if fedbr did not create the folder."""
        file = self.path / "recipe.toml"
        content = file.read_bytes() if file.exists() else b""
        return content if content.startswith(MARK.encode()) else None

    def _check_recipe(self, stored: TomlTable) -> None:
        """Refuse a folder with another recipe, unless the new one only adds to it."""
        count = len(stored.get("compare", []))
        before = self.recipe.model_copy(update={"compare": self.recipe.compare[:count]})
        folder_before = ResultFolder(self.path, before)
        same_names = len(before.compare) == count
        for variant in before.compare:
            if folder_before.name(variant.label, 0) != self.name(variant.label, 0):
                same_names = False
        if changes := find_changes(stored, self.recipe, same_names):
            more = f", and {len(changes) - 3} more" if len(changes) > 3 else ""
            raise InputError(
                f"--out {self.path}: holds another recipe ({'; '.join(changes[:3])}{more}); "
                "choose another folder, or --fresh to start over"
            )

    def _check_code(self) -> None:
        """Refuse results that other code of the user's made: the recipe has only its name."""
        for variant in self.recipe.compare:
            code = self._code(variant)
            if not code:
                continue
            for seed in self.recipe.train.seeds:
                run = self.run(variant, seed)
                before = run.record.code
                if not run.rounds or before is None:
                    continue  # nothing is done: nothing to protect
                changed = [name for name in code if before.get(name) != code[name]]
                if changed:
                    raise InputError(
                        f"--out {self.path}: {run.path.name} was made with other code "
                        f"({changed[0]} has changed); choose another folder, or --fresh to start "
                        "over"
                    )

    def _write_environment(self) -> None:
        """Write where the runs began; add where they went on, if that is another place."""
        file, here = self.path / "environment.json", describe_environment()
        first = read_json(file, here)
        later = first.pop("later", [])
        if here not in (first, *later):
            later.append(here)
        if later:
            first["later"] = later
        write(file, dump(first))

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
        self._finished.clear()


def make_result(recipe: Recipe, variant: Variant, seed: int, run: RunStore) -> RunResult:
    """Add up the rounds of a run."""
    targets = sorted({*recipe.metrics.targets, recipe.metrics.target})
    values = metrics.per_run(metrics.select(recipe.metrics.extra), run.rounds, targets)
    return RunResult(
        variant=variant,
        seed=seed,
        finished=run.finished,
        record=run.record,
        rounds=run.rounds,
        accuracy=Accuracy(**values.pop("accuracy")),
        rounds_to=values.pop("rounds_to"),
        bytes=Traffic(**values.pop("bytes")),
        seconds=Seconds(**values.pop("seconds")),
        extra=values,
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
