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
    """Processes that train whole runs; they start when there is work, and wait for more.

    Args:
        count: how many at most; None: one for every core that may be used.
    """

    def __init__(self, count: int | None = None) -> None:
        self.count = count or usable_cores()
        self._processes: dict[Connection, BaseProcess] = {}
        self._busy: dict[Connection, PlannedRun] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop(list(self._processes))

    @contextmanager
    def stop_at_end(self) -> Iterator[None]:
        """Stop processes that are in the middle of a run at the end; what they did is on disk."""
        try:
            yield
        finally:
            self._stop(list(self._busy))

    def work(self, todo: Sequence[PlannedRun], watch: Watcher) -> Iterator[PlannedRun]:
        """Train runs, and yield each when it is finished.

        Raises:
            InputError, RunError: of the first run that fails; the others are given up.
        """
        self._start(len(todo))
        waiting = list(todo)
        for connection in self._processes:
            self._send_next(connection, waiting, watch)
        while self._busy:
            ready = wait(list(self._busy))
            for connection in list(self._busy):
                if connection not in ready:
                    continue
                run = self._busy[connection]
                with _explain_death():
                    kind, content = connection.recv()
                if kind == "round":
                    watch.round_done(run, content)
                elif kind == "warning":
                    warnings.warn(content, RuntimeWarning, stacklevel=2)
                elif kind == "done":
                    del self._busy[connection]
                    yield run
                    self._send_next(connection, waiting, watch)
                elif kind == "input":
                    raise InputError(content)
                else:
                    raise RunError(content)

    def _start(self, count: int) -> None:
        context = mp.get_context("spawn")
        for i in range(len(self._processes), min(count, self.count)):
            connection, child_connection = context.Pipe()
            process = context.Process(
                target=_serve, args=(child_connection,), name=f"fedbr-run-{i}", daemon=True
            )
            process.start()
            child_connection.close()
            self._processes[connection] = process

    def _send_next(self, connection: Connection, waiting: list[PlannedRun], watch: Watcher) -> None:
        if not waiting:
            return
        with _explain_death():
            connection.send(waiting[0])
        run = waiting.pop(0)
        self._busy[connection] = run
        watch.started(run)

    def _stop(self, connections: Sequence[Connection]) -> None:
        processes = [self._processes.pop(connection) for connection in connections]
        self._busy.clear()
        for process in processes:
            process.kill()
        for process in processes:
            process.join()


@contextmanager
def _explain_death() -> Iterator[None]:
    """Say in one line that a process is gone."""
    try:
        yield
    except (EOFError, OSError):
        raise RunError(
            "a process that trained was killed (out of memory?); start again to go on"
        ) from None


class _Sender(Watcher):
    """Sends every round to the parent process."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def round_done(self, run: PlannedRun, record: RoundRecord) -> None:
        self.connection.send(("round", record))


def _serve(connection: Connection) -> None:
    """Train the runs that the parent sends, until it is gone."""
    from .engines import OneByOne, Work  # which uses this module
    from .runner import store_of

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    # Nobody but the parent may write to its folders, so we end when it does.
    threading.Thread(target=end_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    keep_memory()
    warnings.showwarning = lambda message, *_: connection.send(("warning", str(message)))
    watch = _Sender(connection)
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
                reason = f"{error.strerror or error}: {error.filename or ''}".rstrip(": ")
                answer = ("run", reason)
            except Exception:
                answer = ("run", traceback.format_exc())
            connection.send(answer)
