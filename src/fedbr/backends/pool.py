"""Blocks spread over processes with one torch thread each.

Messages to and from the processes are bytes of the wire format (``worker``).
"""

from __future__ import annotations

import pickle
import signal
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from typing import Any

import torch
import torch.multiprocessing as mp

from ..core.evaluation import Answers, Exam, Piece, TestPlan
from ..core.samples import TrainData
from ..core.setup import Setup
from ..util.errors import InputError, RunError
from .base import LocalBackend, Outcome, Work
from .memory import ClientMemory
from .worker import (
    BUFFER,
    PREPARE,
    pack_exam,
    pack_shared_exam,
    pack_shared_work,
    pack_work,
    serve,
    unpack_answer,
    unpack_counts,
    unpack_outcome,
)


class WorkerPool:
    """Processes that stay alive from run to run.

    They are spawned, which works on every system.
    """

    def __init__(self, workers: int) -> None:
        context = mp.get_context("spawn")
        self.connections: list[Connection] = []
        self.processes: list[Any] = []
        # In shared memory: what all workers read in a round.
        self.buffer = torch.empty(0, dtype=torch.uint8)
        for i in range(workers):
            connection, child_connection = context.Pipe()
            process = context.Process(
                target=serve, args=(child_connection,), name=f"fedbr-worker-{i}", daemon=True
            )
            with _ignore_interrupts():  # the parent alone handles Ctrl-C, from the start
                process.start()
            child_connection.close()
            self.connections.append(connection)
            self.processes.append(process)

    def prepare(self, setup: Setup, data: TrainData, plan: TestPlan) -> None:
        """Give every worker what stays the same during a run; tensors go through shared memory.

        Raises:
            InputError: it cannot be sent, such as a model that is defined in a function.
        """
        for connection in self.connections:
            self.send(connection, PREPARE)
            try:
                connection.send((setup, data, plan))
            except (pickle.PicklingError, AttributeError, TypeError) as error:
                raise InputError(
                    f"workers = {len(self.connections)}: cannot send the run there ({error}); use 1"
                ) from error
        for connection in self.connections:
            unpack_answer(self.receive(connection))

    def share(self, blob: bytes) -> int:
        """Copy bytes to the shared buffer, where all workers read them; return their number.

        No worker may be busy meanwhile.
        """
        if len(blob) > len(self.buffer):
            self.buffer = torch.empty(2 * len(blob), dtype=torch.uint8)
            self.buffer.share_memory_()  # type: ignore[no-untyped-call]
            for connection in self.connections:
                self.send(connection, BUFFER)
                try:
                    connection.send(self.buffer)
                except OSError as error:
                    raise self._explain_death(connection) from error
        self.buffer[: len(blob)] = torch.frombuffer(bytearray(blob), dtype=torch.uint8)
        return len(blob)

    def spread(self, work: Iterable[bytes]) -> list[bytes]:
        """Give work to idle workers, and return the answers in the order of the work."""
        waiting = enumerate(work)
        idle = list(self.connections)
        busy: dict[Connection, int] = {}
        answers: dict[int, bytes] = {}
        while True:
            while idle and (item := next(waiting, None)) is not None:
                index, blob = item
                connection = idle.pop()
                busy[connection] = index
                self.send(connection, blob)
            if not busy:
                return [answers[i] for i in range(len(answers))]
            for ready in wait(list(busy)):
                assert isinstance(ready, Connection)
                answers[busy.pop(ready)] = self.receive(ready)
                idle.append(ready)

    def send(self, connection: Connection, blob: bytes) -> None:
        """Send bytes to a worker; RunError if it has ended."""
        try:
            connection.send_bytes(blob)
        except OSError as error:
            raise self._explain_death(connection) from error

    def receive(self, connection: Connection) -> bytes:
        """Receive bytes from a worker; RunError if it has ended."""
        try:
            return connection.recv_bytes()
        except (EOFError, OSError) as error:
            raise self._explain_death(connection) from error

    def _explain_death(self, connection: Connection) -> RunError:
        """Say in one line why a worker has ended."""
        process = self.processes[self.connections.index(connection)]
        process.join(timeout=1)
        code = process.exitcode
        if code is not None and code < 0:
            return RunError(
                f"a worker process was killed by signal {-code}; is there enough memory?"
            )
        return RunError(
            f"a worker process ended (exit code {code}); scripts that use workers need "
            '`if __name__ == "__main__":` around the call'
        )

    def close(self) -> None:
        """Stop all workers."""
        for process in self.processes:
            process.kill()  # it holds nothing that is not here too

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class PoolBackend(LocalBackend):
    """Trains blocks in the processes of a pool."""

    def __init__(
        self,
        setup: Setup,
        data: TrainData,
        plan: TestPlan,
        block_size: int,
        pool: WorkerPool,
        memory: ClientMemory | None = None,
    ) -> None:
        super().__init__(setup, data, plan, block_size, memory)
        self.pool = pool
        pool.prepare(setup, data, plan)

    def test(self, exams: Sequence[Exam]) -> list[Answers]:
        """Spread the pieces of all exams over the processes; counts only add up."""
        workers = len(self.pool.connections)
        shares = 2 * workers if len(exams) == 1 else 1  # many models are work enough for all
        parts: list[tuple[int, Sequence[Piece]]] = []  # an exam, and some of its pieces
        for i, exam in enumerate(exams):
            for share in range(shares):
                pieces = exam.pieces[share::shares]
                if pieces:
                    parts.append((i, pieces))
        shared_bytes = 0
        if len(exams) == 1:
            shared_bytes = self.pool.share(pack_shared_exam(exams[0]))
        blobs = self.pool.spread(pack_exam(shared_bytes, exams[i], pieces) for i, pieces in parts)
        answers: list[dict[Piece, torch.Tensor]] = [{} for _ in exams]
        for (i, pieces), blob in zip(parts, blobs, strict=True):
            answers[i] |= zip(pieces, unpack_counts(blob), strict=True)
        return list(answers)

    def _answer(self, work: Sequence[Work]) -> Sequence[Outcome]:
        """Share what all blocks receive, and spread the blocks over the processes."""
        if not work:
            return []
        broadcast, _ = work[0]
        shared_bytes = self.pool.share(pack_shared_work(broadcast))
        # Large blocks first: nobody waits for the last.
        order = sorted(range(len(work)), key=lambda i: -len(work[i][1]))
        blobs = self.pool.spread(pack_work(shared_bytes, *work[i]) for i in order)
        outcomes: dict[int, Outcome] = {}
        for i, blob in zip(order, blobs, strict=True):
            outcomes[i] = unpack_outcome(blob)
        return [outcomes[i] for i in range(len(work))]


@contextmanager
def _ignore_interrupts() -> Iterator[None]:
    """Ignore SIGINT; a process that is started meanwhile ignores it, too."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set a handler, and only it is interrupted
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
