"""Cohorts spread over processes with one torch thread each. Messages are the bytes of the wire format."""

from __future__ import annotations

import pickle
import signal
import threading
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from typing import Any

import torch
import torch.multiprocessing as mp
from torch import Tensor

from ..core.client import Job, handle
from ..core.data import Samples, TrainData
from ..core.errors import InputError, RunError
from ..core.testing import Exam, Piece
from ..core.wire import SHARED, Payload, Reply, State, Task, pack, unpack
from .base import Answers, Cohort, LocalBackend
from .serial import SerialBackend

PREPARE = b"prepare"  # announces the constants of a run


class WorkerPool:
    """Processes that stay alive from run to run; spawned, so that it works on every system."""

    def __init__(self, workers: int) -> None:
        context = mp.get_context("spawn")
        self.connections: list[Connection] = []
        self.processes: list[Any] = []
        for i in range(workers):
            ours, theirs = context.Pipe()
            process = context.Process(target=_work, args=(theirs,), name=f"fedbr-worker-{i}", daemon=True)
            with _no_interrupts():  # Ctrl-C is the parent's business, from the child's first moment on
                process.start()
            theirs.close()
            self.connections.append(ours)
            self.processes.append(process)

    def prepare(self, job: Job, data: TrainData, tests: Sequence[Samples]) -> None:
        """Give every worker the run's constants; tensors go through shared memory."""
        for connection in self.connections:
            self.send(connection, PREPARE)
            try:
                connection.send((job, data, tests))
            except (pickle.PicklingError, AttributeError, TypeError) as error:
                raise InputError(
                    f"workers = {len(self.connections)}: cannot send the run there ({error}); use 1"
                ) from error
        for connection in self.connections:
            _unpack(self.receive(connection))

    def spread(self, work: Iterable[bytes]) -> list[bytes]:
        """Give work to whoever is idle; return the answers in the order of the work."""
        waiting, idle = enumerate(work), list(self.connections)
        busy: dict[Connection, int] = {}
        answers: dict[int, bytes] = {}
        while True:
            while idle and (item := next(waiting, None)) is not None:
                busy[idle[-1]] = item[0]
                self.send(idle.pop(), item[1])
            if not busy:
                return [answers[i] for i in range(len(answers))]
            for ready in wait(list(busy)):
                assert isinstance(ready, Connection)
                answers[busy.pop(ready)] = self.receive(ready)
                idle.append(ready)

    def send(self, connection: Connection, blob: bytes) -> None:
        try:
            connection.send_bytes(blob)
        except OSError as error:
            raise self._death(connection) from error

    def receive(self, connection: Connection) -> bytes:
        try:
            return connection.recv_bytes()
        except (EOFError, OSError) as error:
            raise self._death(connection) from error

    def _death(self, connection: Connection) -> RunError:
        process = self.processes[self.connections.index(connection)]
        process.join(timeout=1)
        code = process.exitcode
        if code is not None and code < 0:
            return RunError(f"a worker process was killed by signal {-code}; is there enough memory?")
        return RunError(
            f'a worker process ended (exit code {code}); scripts that use workers need `if __name__ == "__main__":` '
            "around the call"
        )

    def close(self) -> None:
        for process in self.processes:
            process.kill()  # they hold nothing that is not here too

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class PoolBackend(LocalBackend):
    def __init__(self, job: Job, data: TrainData, tests: Sequence[Samples], cohort: int, pool: WorkerPool) -> None:
        super().__init__(job, data, tests, cohort)
        self.pool = pool
        pool.prepare(job, data, tests)

    def test(self, exams: Sequence[Exam]) -> list[Tensor]:
        """Deal out the pieces; counts are whole numbers, so that it does not matter who counts what."""
        hands = max(1, -(-2 * len(self.pool.connections) // len(exams)))  # a model goes to each worker about twice
        dealt = [(i, asked[h::hands]) for i, (_, asked) in enumerate(exams) for h in range(hands) if asked[h::hands]]
        blobs = self.pool.spread(_pack_exam(exams[i][0], some) for i, some in dealt)
        found: list[dict[Piece, Tensor]] = [{} for _ in exams]
        for (i, some), blob in zip(dealt, blobs, strict=True):
            found[i] |= zip(some, _unpack(blob)[1]["counts"]["right"]["pieces"], strict=True)
        return [torch.stack([right[piece] for piece in asked]) for (_, asked), right in zip(exams, found, strict=True)]

    def _answer(self, work: Sequence[Cohort]) -> Sequence[Answers]:
        return [_unpack_answers(blob) for blob in self.pool.spread(_pack_work(*cohort) for cohort in work)]


@contextmanager
def _no_interrupts() -> Iterator[None]:
    """Ignore SIGINT, which a process that is started meanwhile inherits."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may, and only it is interrupted
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _work(connection: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    desk: SerialBackend | None = None
    with suppress(EOFError, OSError):  # the parent is gone
        while True:
            blob = connection.recv_bytes()
            try:
                if blob == PREPARE:
                    job, data, tests = connection.recv()
                    desk = SerialBackend(job, data, tests, 1)
                    answer = pack({}, {})
                else:
                    assert desk is not None
                    answer = _answer(desk, *unpack(blob))
            except (EOFError, OSError):
                raise
            except InputError as error:
                answer = pack({"error": str(error), "kind": "input"}, {})
            except Exception as error:  # whatever a method of the user's raises must reach the user
                trace = traceback.format_exc()
                answer = pack({"error": f"{type(error).__name__}: {error}", "kind": "run", "trace": trace}, {})
            connection.send_bytes(answer)


def _answer(desk: SerialBackend, header: dict[str, Any], payloads: dict[str, Payload]) -> bytes:
    if "exam" in header:
        asked = [Piece(*piece) for piece in header["exam"]]
        (right,) = desk.test([(payloads["exam"]["model"], asked)])
        return pack({}, {"counts": {"right": {"pieces": right}}})
    tasks = [Task(payload=payloads["task"], **fields) for fields in header["tasks"]]
    answers = handle(desk.job, desk.data, tasks, [payloads[f"state/{i}"] for i in range(len(tasks))])
    replies = [{"client": r.client, "num_examples": r.num_examples, "metrics": r.metrics} for r, _ in answers]
    found: dict[str, Payload] = {}
    for i, (reply, state) in enumerate(answers):
        found |= {f"reply/{i}": reply.payload, f"state/{i}": state}
    return pack({"replies": replies}, found)


def _pack_exam(params: State, asked: Sequence[Piece]) -> bytes:
    return pack({"exam": asked}, {"exam": {"model": params}})


def _pack_work(tasks: Sequence[Task], states: Sequence[Payload]) -> bytes:
    fields = [{"kind": t.kind, "client": t.client, "round": t.round, "last": t.last} for t in tasks]
    payload = {k: v for k, v in tasks[0].payload.items() if not k.startswith(SHARED)}  # those are in the states
    return pack({"tasks": fields}, {"task": payload} | {f"state/{i}": s for i, s in enumerate(states)})


def _unpack_answers(blob: bytes) -> Answers:
    header, payloads = _unpack(blob)
    return [
        (Reply(payload=payloads[f"reply/{i}"], **fields), payloads[f"state/{i}"])
        for i, fields in enumerate(header["replies"])
    ]


def _unpack(blob: bytes) -> tuple[dict[str, Any], dict[str, Payload]]:
    """Read an answer, or raise what happened in the worker."""
    header, payloads = unpack(blob)
    if "error" in header:
        if header["kind"] == "input":
            raise InputError(header["error"])
        raise RunError(header["error"]) from RuntimeError(f"in a worker:\n{header['trace']}")
    return header, payloads
