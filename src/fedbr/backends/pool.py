"""Cohorts spread over processes with one torch thread each. Messages are the bytes of the wire format."""

from __future__ import annotations

import pickle
import signal
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from typing import Any

import torch
import torch.multiprocessing as mp

from ..core.client import Job, handle
from ..core.data import TrainData
from ..core.errors import InputError, RunError
from ..core.wire import SHARED, Payload, Reply, Task, pack, unpack
from .base import Answers, Cohort, LocalBackend

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

    def prepare(self, job: Job, data: TrainData) -> None:
        """Give every worker the run's constants; tensors go through shared memory."""
        for connection in self.connections:
            self.send(connection, PREPARE)
            try:
                connection.send((job, data))
            except (pickle.PicklingError, AttributeError, TypeError) as error:
                raise InputError(
                    f"workers = {len(self.connections)}: cannot send the run there ({error}); use 1"
                ) from error
        for connection in self.connections:
            _unpack_answers(self.receive(connection))

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
    def __init__(self, job: Job, data: TrainData, cohort: int, pool: WorkerPool) -> None:
        super().__init__(job, data, cohort)
        self.pool = pool
        pool.prepare(job, data)

    def _answer(self, work: Sequence[Cohort]) -> Sequence[Answers]:
        waiting = list(range(len(work)))[::-1]
        busy: dict[Connection, int] = {}
        idle = list(self.pool.connections)
        answers: dict[int, Answers] = {}
        while waiting or busy:
            while waiting and idle:
                connection, i = idle.pop(), waiting.pop()
                self.pool.send(connection, _pack_work(*work[i]))
                busy[connection] = i
            for ready in wait(list(busy)):
                assert isinstance(ready, Connection)
                answers[busy.pop(ready)] = _unpack_answers(self.pool.receive(ready))
                idle.append(ready)
        return [answers[i] for i in range(len(work))]


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
    job: Job | None = None
    data: TrainData | None = None
    with suppress(EOFError, OSError):  # the parent is gone
        while True:
            blob = connection.recv_bytes()
            try:
                if blob == PREPARE:
                    job, data = connection.recv()
                    answer = pack({"replies": []}, {})
                else:
                    assert job is not None
                    assert data is not None
                    answer = _answer(job, data, blob)
            except (EOFError, OSError):
                raise
            except InputError as error:
                answer = pack({"error": str(error), "kind": "input"}, {})
            except Exception as error:  # whatever a method of the user's raises must reach the user
                trace = traceback.format_exc()
                answer = pack({"error": f"{type(error).__name__}: {error}", "kind": "run", "trace": trace}, {})
            connection.send_bytes(answer)


def _answer(job: Job, data: TrainData, blob: bytes) -> bytes:
    answers = handle(job, data, *_unpack_work(blob))
    replies = [{"client": r.client, "num_examples": r.num_examples, "metrics": r.metrics} for r, _ in answers]
    payloads: dict[str, Payload] = {}
    for i, (reply, state) in enumerate(answers):
        payloads |= {f"reply/{i}": reply.payload, f"state/{i}": state}
    return pack({"replies": replies}, payloads)


def _pack_work(tasks: list[Task], states: list[Payload]) -> bytes:
    header = [{"kind": t.kind, "client": t.client, "round": t.round, "last": t.last} for t in tasks]
    payload = {k: v for k, v in tasks[0].payload.items() if not k.startswith(SHARED)}  # those are in the states
    return pack(header, {"task": payload} | {f"state/{i}": s for i, s in enumerate(states)})


def _unpack_work(blob: bytes) -> tuple[list[Task], list[Payload]]:
    header, payloads = unpack(blob)
    tasks = [Task(payload=payloads["task"], **fields) for fields in header]
    return tasks, [payloads[f"state/{i}"] for i in range(len(tasks))]


def _unpack_answers(blob: bytes) -> Answers:
    header, payloads = unpack(blob)
    if "error" in header:
        if header["kind"] == "input":
            raise InputError(header["error"])
        raise RunError(header["error"]) from RuntimeError(f"in a worker:\n{header['trace']}")
    return [
        (Reply(payload=payloads[f"reply/{i}"], **fields), payloads[f"state/{i}"])
        for i, fields in enumerate(header["replies"])
    ]
