"""Processes that train whole runs, one after the other."""

from __future__ import annotations

import signal
import threading
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any, Self

import torch
import torch.multiprocessing as mp

from ..core.records import RoundRecord
from ..util.errors import InputError, RunError
from ..util.processes import end_with_parent, keep_memory, usable_cores
from .plan import PlannedRun
from .watch import Watcher

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess


class Processes:
    """They start when there is work for them, and stay for the next.

    count: how many at most; None: one for every core that may be used.
    """

    def __init__(self, count: int | None = None) -> None:
        self.count = count or usable_cores()
        self._all: dict[Connection, BaseProcess] = {}
        self._busy: dict[Connection, PlannedRun] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._dismiss(list(self._all))

    @contextmanager
    def resting(self) -> Iterator[None]:
        """Stop whoever is in the middle of a run at the end: what they did is on disk."""
        try:
            yield
        finally:
            self._dismiss(list(self._busy))

    def work(self, todo: Sequence[PlannedRun], watch: Watcher) -> Iterator[PlannedRun]:
        """Give out runs until all are done, and yield each when it is; the first failure ends it."""
        self._start(len(todo))
        waiting = list(todo)
        for connection in self._all:
            self._next(connection, waiting, watch)
        while self._busy:
            ready = wait(list(self._busy))
            for connection in [c for c in self._busy if c in ready]:
                run = self._busy[connection]
                with _killed():
                    kind, content = connection.recv()
                if kind == "round":
                    watch.round_done(run, content)
                elif kind == "warning":
                    warnings.warn(content, RuntimeWarning, stacklevel=2)
                elif kind == "done":
                    del self._busy[connection]
                    yield run
                    self._next(connection, waiting, watch)
                else:
                    raise (InputError if kind == "input" else RunError)(content)

    def _start(self, count: int) -> None:
        context = mp.get_context("spawn")
        for i in range(len(self._all), min(count, self.count)):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=_serve, args=(theirs,), name=f"fedbr-run-{i}", daemon=True
            )
            process.start()
            theirs.close()
            self._all[ours] = process

    def _next(self, connection: Connection, waiting: list[PlannedRun], watch: Watcher) -> None:
        if waiting:
            with _killed():
                connection.send(waiting[0])
            self._busy[connection] = waiting.pop(0)
            watch.started(self._busy[connection])

    def _dismiss(self, connections: Sequence[Connection]) -> None:
        processes = [self._all.pop(connection) for connection in connections]
        self._busy.clear()
        for process in processes:
            process.kill()
        for process in processes:
            process.join()


@contextmanager
def _killed() -> Iterator[None]:
    try:
        yield
    except (EOFError, OSError):
        raise RunError(
            "a process that trained was killed (out of memory?); start again to go on"
        ) from None


class _Told(Watcher):
    """Sends every round to the parent."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def round_done(self, run: PlannedRun, record: RoundRecord) -> None:
        self.connection.send(("round", record))


def _serve(connection: Connection) -> None:
    from .engines import OneByOne, Work  # which uses this module
    from .runner import store_of

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    # Nobody but the parent may write to its folders, so we end when it does.
    threading.Thread(target=end_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    keep_memory()
    warnings.showwarning = lambda message, *_: connection.send(("warning", str(message)))
    watch = _Told(connection)
    with suppress(EOFError, OSError):  # the parent is gone
        while True:
            run: PlannedRun = connection.recv()
            store = store_of(run.experiment).run(run.variant, run.seed)
            try:
                OneByOne().play(Work(run, store), watch)
                answer: tuple[str, Any] = ("done", None)
            except InputError as error:
                answer = ("input", str(error))
            except RunError as error:
                answer = ("run", str(error))
            except OSError as error:  # such as a disk that is full
                words = f"{error.strerror or error}: {error.filename or ''}".rstrip(": ")
                answer = ("run", words)
            except Exception:
                answer = ("run", traceback.format_exc())
            connection.send(answer)
