"""Many runs at once: whole runs are spread over processes, so that all cores stay busy from the
first to the last.
"""

from __future__ import annotations

import os
import signal
import threading
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch
import torch.multiprocessing as mp

from .. import data
from ..core import device as devices
from ..core.fast import product
from ..recipe.schema import Recipe, Variant
from ..report.files import write_csv
from ..util.errors import InputError, RunError
from ..util.processes import keep_memory, one_thread, usable_cores
from . import loop as experiment
from .folder import ResultFolder
from .setup import build_setup

Plan = Sequence[tuple[Recipe, Path]]  # recipes, each with the folder of its results
Watch = Callable[
    [int, str, int, experiment.Line | None], None
]  # which recipe, label, seed, the round just done


@dataclass(frozen=True)
class Errand:
    """One run: one variant of a recipe with one seed."""

    which: int  # the recipe's place in the plan
    recipe: Recipe
    path: Path
    variant: Variant
    seed: int

    def run(self, watch: Watch) -> None:
        """Train it, from where it stands to its end."""
        folder = ResultFolder(self.path, self.recipe).run(self.variant, self.seed)
        clients = clients_of(self.recipe.data, self.seed)

        def seen(label: str, seed: int, line: experiment.Line | None) -> None:
            watch(self.which, label, seed, line)

        experiment.play(self.recipe, self.variant, self.seed, clients, folder, None, seen)


def conduct(
    plan: Plan, crew: Crew | None = None, fresh: bool = False, watch: Watch = lambda *_: None
) -> list[dict[str, Any]]:
    """Train everything that is not trained yet; return the results of every recipe."""
    check(plan, fresh)
    folders = [ResultFolder(path, recipe) for recipe, path in plan]
    with ExitStack() as exits:
        for folder in folders:
            exits.enter_context(folder.open(fresh))
            exits.callback(write_csv, folder.path)
            exits.callback(folder.summarise)
        todo = []
        for errand in _errands(plan):
            this = folders[errand.which].run(errand.variant, errand.seed)
            for line in this.lines():
                watch(errand.which, errand.variant.label, errand.seed, line)
            if not this.finished:
                todo.append(errand)
        on_cpu = all(devices.choose(recipe.train.device).type == "cpu" for recipe, _ in plan)
        if crew is not None and crew.count > 1 and len(todo) > 1 and on_cpu:
            exits.callback(crew.rest)  # nobody may write to the folders when they are given up
            for errand in crew.work(todo, watch):
                folders[errand.which].summarise()
        else:
            with one_thread():
                for errand in todo:
                    errand.run(watch)
                    folders[errand.which].summarise()
    return [folder.results() for folder in folders]


def check(plan: Plan, fresh: bool = False) -> None:
    """Refuse what cannot be trained, or folders that hold something else, before anything is
    written or cleared.
    """
    for recipe, path in plan:
        ResultFolder(path, recipe).refuse(fresh)
    check_variants(recipe for recipe, _ in plan)


def check_variants(recipes: Iterable[Recipe]) -> None:
    """Refuse what cannot be trained."""
    for recipe in recipes:
        seed = recipe.train.seeds[0]
        for variant in recipe.compare:
            build_setup(recipe.of(variant), variant, clients_of(recipe.data, seed), seed)


def share_left(recipe: Recipe, path: Path, fresh: bool = False) -> float:
    """Return the share of a recipe's rounds that are still to be trained."""
    folder = ResultFolder(path, recipe)
    runs = [folder.run(variant, seed) for variant in recipe.compare for seed in recipe.train.seeds]
    done = (
        0
        if fresh
        else sum(recipe.train.rounds if run.finished else len(run.lines()) for run in runs)
    )
    return 1 - done / (recipe.train.rounds * len(runs))


def _errands(plan: Plan) -> list[Errand]:
    """List the runs seed by seed, so that a campaign that is cut short has all variants of the first
    seeds.

    Within a seed, variants of more methods come first: they take longer, and nobody should wait for
    the last.
    """
    found = [
        (place, -len(variant.methods), which, Errand(which, recipe, path, variant, seed))
        for which, (recipe, path) in enumerate(plan)
        for place, seed in enumerate(recipe.train.seeds)
        for variant in recipe.compare
    ]
    return [errand for *_, errand in sorted(found, key=lambda entry: entry[:3])]


@lru_cache(maxsize=2)
def clients_of(options: data.DataOptions, seed: int) -> data.Federation:
    """Load the clients of a recipe; runs that come one after the other often have the same."""
    return data.load(options, seed)


class Crew:
    """Processes that do one run after the other, each from its first round to its last; they start
    when needed.
    """

    def __init__(self, count: int | None = None) -> None:
        self.count = count or usable_cores()
        self.hands: dict[Connection, Any] = {}
        self.busy: dict[Connection, Errand] = {}

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *_: object) -> None:
        self._dismiss(list(self.hands))

    def rest(self) -> None:
        """Stop whoever is in the middle of a run: what they did is on disk."""
        self._dismiss(list(self.busy))

    def _dismiss(self, hands: Sequence[Connection]) -> None:
        processes = [self.hands.pop(connection) for connection in hands]
        self.busy.clear()
        for process in processes:
            process.kill()
        for process in processes:
            process.join()

    def _start(self, count: int) -> None:
        context = mp.get_context("spawn")
        for i in range(len(self.hands), min(count, self.count)):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=_serve, args=(theirs, product.maker()), name=f"fedbr-run-{i}", daemon=True
            )
            process.start()
            theirs.close()
            self.hands[ours] = process

    def work(self, todo: Sequence[Errand], watch: Watch) -> Iterator[Errand]:
        """Give out errands until all are done, and yield each when it is; the first failure ends
        it.
        """
        self._start(len(todo))
        waiting = list(todo)
        for connection in self.hands:
            self._next(connection, waiting)
        while self.busy:
            ready = wait(list(self.busy))
            for connection in [c for c in self.busy if c in ready]:
                with _lost():
                    kind, content = connection.recv()
                if kind == "line":
                    watch(*content)
                elif kind == "warning":
                    warnings.warn(content, RuntimeWarning, stacklevel=2)
                elif kind == "done":
                    yield self.busy.pop(connection)
                    self._next(connection, waiting)
                else:
                    raise (InputError if kind == "input" else RunError)(content)

    def _next(self, connection: Connection, waiting: list[Errand]) -> None:
        if waiting:
            with _lost():
                connection.send(waiting[0])
            self.busy[connection] = waiting.pop(0)


@contextmanager
def _lost() -> Iterator[None]:
    try:
        yield
    except (EOFError, OSError):
        raise RunError(
            "a process that trained was killed (out of memory?); start again to go on"
        ) from None


def _serve(connection: Connection, products: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    product.follow(products)
    threading.Thread(target=_die_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    keep_memory()

    warnings.showwarning = lambda message, *_: connection.send(("warning", str(message)))
    with suppress(EOFError, OSError):  # the parent is gone
        while True:
            errand = connection.recv()
            try:
                errand.run(lambda *what: connection.send(("line", what)))
                connection.send(("done", None))
            except InputError as error:
                connection.send(("input", str(error)))
            except RunError as error:
                connection.send(("run", str(error)))
            except OSError as error:  # such as a disk that is full
                connection.send(
                    ("run", f"{error.strerror or error}: {error.filename or ''}".rstrip(": "))
                )
            except Exception:
                connection.send(("run", traceback.format_exc()))


def _die_with_parent() -> None:
    """End when the parent does, however it ends: nobody else may then write to its folders."""
    parent = parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)
