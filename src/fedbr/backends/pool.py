"""Blocks spread over processes with one torch thread each. Messages are the bytes of the wire
format.
"""

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

from ..core.client import Setup, handle
from ..core.evaluation import Exam, Piece
from ..core.fast import product
from ..core.samples import Samples, TrainData
from ..core.wire import SHARED, Payload, Reply, Task, pack, unpack
from ..util.errors import InputError, RunError
from ..util.processes import keep_memory
from .base import Answers, LocalBackend, Work
from .memory import ClientMemory
from .serial import SerialBackend

PREPARE = b"prepare"  # announces the constants of a run
BOARD = b"board"  # announces a larger piece of shared memory


class WorkerPool:
    """Processes that stay alive from run to run; spawned, so that it works on every system."""

    def __init__(self, workers: int) -> None:
        context = mp.get_context("spawn")
        self.connections: list[Connection] = []
        self.processes: list[Any] = []
        self.board = torch.empty(
            0, dtype=torch.uint8
        )  # in shared memory: what all workers read in a round
        for i in range(workers):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=_work, args=(theirs, product.maker()), name=f"fedbr-worker-{i}", daemon=True
            )
            with (
                _no_interrupts()
            ):  # Ctrl-C is the parent's business, from the child's first moment on
                process.start()
            theirs.close()
            self.connections.append(ours)
            self.processes.append(process)

    def prepare(self, setup: Setup, data: TrainData, tests: Sequence[Samples]) -> None:
        """Give every worker the run's constants; tensors go through shared memory."""
        for connection in self.connections:
            self.send(connection, PREPARE)
            try:
                connection.send((setup, data, tests))
            except (pickle.PicklingError, AttributeError, TypeError) as error:
                raise InputError(
                    f"workers = {len(self.connections)}: cannot send the run there ({error}); use 1"
                ) from error
        for connection in self.connections:
            _unpack(self.receive(connection))

    def publish(self, blob: bytes) -> int:
        """Let all workers read the same bytes, which are copied once; only while none of them is at
        work.
        """
        if len(blob) > len(self.board):
            self.board = torch.empty(2 * len(blob), dtype=torch.uint8)
            self.board.share_memory_()  # type: ignore[no-untyped-call]
            for connection in self.connections:
                self.send(connection, BOARD)
                try:
                    connection.send(self.board)
                except OSError as error:
                    raise self._death(connection) from error
        self.board[: len(blob)] = torch.frombuffer(bytearray(blob), dtype=torch.uint8)
        return len(blob)

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
            return RunError(
                f"a worker process was killed by signal {-code}; is there enough memory?"
            )
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
    def __init__(
        self,
        setup: Setup,
        data: TrainData,
        tests: Sequence[Samples],
        block_size: int,
        pool: WorkerPool,
        memory: ClientMemory | None = None,
    ) -> None:
        super().__init__(setup, data, tests, block_size, memory)
        self.pool = pool
        pool.prepare(setup, data, tests)

    def test(self, exams: Sequence[Exam]) -> list[Tensor]:
        """Deal out the pieces; counts are whole numbers, so that it does not matter who counts
        what.
        """
        workers = len(self.pool.connections)
        hands = 2 * workers if len(exams) == 1 else 1  # many models are work enough for all
        dealt = [
            (i, asked[h::hands])
            for i, (_, asked) in enumerate(exams)
            for h in range(hands)
            if asked[h::hands]
        ]
        models = [{"exam": {"model": params}} for params, _ in exams]
        length = self.pool.publish(pack({}, models.pop())) if len(models) == 1 else 0
        own = models or [{}]
        blobs = self.pool.spread(
            pack({"common": length, "exam": some}, own[i]) for i, some in dealt
        )
        found: list[dict[Piece, Tensor]] = [{} for _ in exams]
        for (i, some), blob in zip(dealt, blobs, strict=True):
            found[i] |= zip(some, _unpack(blob)[1]["counts"]["right"]["pieces"], strict=True)
        return [
            torch.stack([right[piece] for piece in asked])
            if asked
            else torch.zeros(0, self.setup.spec.num_classes)
            for (_, asked), right in zip(exams, found, strict=True)
        ]

    def _answer(self, work: Sequence[Work]) -> Sequence[Answers]:
        """All tasks of a call bring the same payload, and all states what is shared: these go on
        the board.
        """
        if not work:
            return []
        (task, *_), (state, *_) = work[0]
        sections = {k: v for k, v in task.payload.items() if not k.startswith(SHARED)}
        length = self.pool.publish(pack({}, {"task": sections, "shared": _shared(state)}))
        order = sorted(
            range(len(work)), key=lambda i: -len(work[i][0])
        )  # large ones first: nobody waits for the last
        blobs = self.pool.spread(_pack_work(length, *work[i]) for i in order)
        answers = dict(zip(order, map(_unpack_answers, blobs), strict=True))
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


def _work(connection: Connection, products: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    product.follow(products)
    torch.set_num_threads(1)
    keep_memory()
    desk: SerialBackend | None = None
    board = torch.empty(0, dtype=torch.uint8)
    with suppress(EOFError, OSError):  # the parent is gone
        while True:
            blob = connection.recv_bytes()
            if blob == BOARD:
                board = connection.recv()
                continue
            try:
                if blob == PREPARE:
                    setup, data, tests = connection.recv()
                    desk = SerialBackend(setup, data, tests, 1)
                    answer = pack({}, {})
                else:
                    assert desk is not None
                    header, own = unpack(blob)
                    if header["common"]:
                        own |= unpack(board[: header["common"]].numpy().tobytes())[1]
                    answer = (
                        _exam(desk, header, own) if "exam" in header else _tasks(desk, header, own)
                    )
            except (EOFError, OSError):
                raise
            except InputError as error:
                answer = pack({"error": str(error), "kind": "input"}, {})
            except Exception as error:  # whatever a method of the user's raises must reach the user
                trace = traceback.format_exc()
                words = (
                    str(error)
                    if isinstance(error, RunError)
                    else f"{type(error).__name__}: {error}"
                )
                answer = pack({"error": words, "kind": "run", "trace": trace}, {})
            connection.send_bytes(answer)


def _exam(desk: SerialBackend, header: dict[str, Any], payloads: dict[str, Payload]) -> bytes:
    asked = [Piece(*piece) for piece in header["exam"]]
    (right,) = desk.test([(payloads["exam"]["model"], asked)])
    return pack({}, {"counts": {"right": {"pieces": right}}})


def _tasks(desk: SerialBackend, header: dict[str, Any], payloads: dict[str, Payload]) -> bytes:
    tasks = [Task(payload=payloads["task"], **fields) for fields in header["tasks"]]
    states = [payloads[f"state/{i}"] | payloads["shared"] for i in range(len(tasks))]
    answers = handle(desk.setup, desk.data, tasks, states)
    replies = [
        {"client": r.client, "num_examples": r.num_examples, "metrics": r.metrics}
        for r, _ in answers
    ]
    found: dict[str, Payload] = {}
    for i, (reply, state) in enumerate(answers):
        found |= {f"reply/{i}": reply.payload, f"state/{i}": state}
    return pack({"replies": replies}, found)


def _pack_work(common: int, tasks: Sequence[Task], states: Sequence[Payload]) -> bytes:
    fields = [{"kind": t.kind, "client": t.client, "round": t.round, "last": t.last} for t in tasks]
    own = ({k: v for k, v in s.items() if not k.startswith(SHARED)} for s in states)
    return pack({"common": common, "tasks": fields}, {f"state/{i}": s for i, s in enumerate(own)})


def _shared(state: Payload) -> Payload:
    return {k: v for k, v in state.items() if k.startswith(SHARED)}


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
