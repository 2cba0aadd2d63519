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

from ..core.broadcast import Broadcast
from ..core.client import handle
from ..core.evaluation import Answers, Exam, Piece, TestPlan
from ..core.samples import TrainData
from ..core.setup import Setup
from ..core.wire import Payload, Reply, pack, unpack
from ..util.errors import InputError, RunError
from ..util.processes import keep_memory
from .base import LocalBackend, Outcome, Work
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
                target=_work, args=(theirs,), name=f"fedbr-worker-{i}", daemon=True
            )
            with (
                _no_interrupts()
            ):  # Ctrl-C is the parent's business, from the child's first moment on
                process.start()
            theirs.close()
            self.connections.append(ours)
            self.processes.append(process)

    def prepare(self, setup: Setup, data: TrainData, plan: TestPlan) -> None:
        """Give every worker the run's constants; tensors go through shared memory."""
        for connection in self.connections:
            self.send(connection, PREPARE)
            try:
                connection.send((setup, data, plan))
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
    """Gives blocks to the processes of a pool."""

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
        """Deal out the pieces; as counts only add up, it does not matter who counts what."""
        workers = len(self.pool.connections)
        shares = 2 * workers if len(exams) == 1 else 1  # many models are work enough for all
        dealt = []
        for i, exam in enumerate(exams):
            for share in range(shares):
                if some := exam.pieces[share::shares]:
                    dealt.append((i, some))
        models: list[Payload] = [{"exam": exam.model} for exam in exams]
        on_board = self.pool.publish(pack({}, {"exam": models[0]})) if len(models) == 1 else 0

        def question(i: int, some: Sequence[Piece]) -> bytes:
            header = {"common": on_board, "exam": some, "tallies": exams[i].tallies}
            return pack(header, {} if on_board else {"exam": models[i]})

        blobs = self.pool.spread(question(i, some) for i, some in dealt)
        answers: list[dict[Piece, torch.Tensor]] = [{} for _ in exams]
        for (i, some), blob in zip(dealt, blobs, strict=True):
            counts = _unpack(blob)[1]["counts"]["counts"]["pieces"]
            answers[i] |= zip(some, counts, strict=True)
        return list(answers)

    def _answer(self, work: Sequence[Work]) -> Sequence[Outcome]:
        """Put what all blocks receive on the board, and spread the blocks over the processes."""
        if not work:
            return []
        broadcast = work[0][0]
        common = {"payload": broadcast.payload, "shared": broadcast.shared}
        length = self.pool.publish(pack({}, common))
        # Large blocks first: nobody waits for the last.
        order = sorted(range(len(work)), key=lambda i: -len(work[i][1]))
        blobs = self.pool.spread(_pack_work(length, *work[i]) for i in order)
        outcomes = dict(zip(order, map(_unpack_outcome, blobs), strict=True))
        return [outcomes[i] for i in range(len(work))]


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
    keep_memory()
    backend: SerialBackend | None = None
    board = torch.empty(0, dtype=torch.uint8)
    with suppress(EOFError, OSError):  # the parent is gone
        while True:
            blob = connection.recv_bytes()
            if blob == BOARD:
                board = connection.recv()
                continue
            try:
                if blob == PREPARE:
                    setup, data, plan = connection.recv()
                    backend = SerialBackend(setup, data, plan, 1)
                    answer = pack({}, {})
                else:
                    assert backend is not None
                    header, own = unpack(blob)
                    if header["common"]:
                        own |= unpack(board[: header["common"]].numpy().tobytes())[1]
                    respond = _exam if "exam" in header else _train
                    answer = respond(backend, header, own)
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


def _exam(backend: SerialBackend, header: dict[str, Any], payloads: dict[str, Payload]) -> bytes:
    pieces = [Piece(*piece) for piece in header["exam"]]
    exam = Exam(payloads["exam"]["exam"], pieces, tuple(header["tallies"]))
    (answers,) = backend.test([exam])
    counts = torch.stack([answers[piece] for piece in pieces])
    return pack({}, {"counts": {"counts": {"pieces": counts}}})


def _train(backend: SerialBackend, header: dict[str, Any], payloads: dict[str, Payload]) -> bytes:
    clients = header["clients"]
    broadcast = Broadcast(
        header["kind"],
        header["round"],
        tuple(clients),
        payloads["payload"],
        payloads["shared"],
    )
    states = [payloads[f"state/{client}"] for client in clients]
    replies = []
    kept: dict[str, Payload] = {}
    for reply, state in handle(backend.setup, backend.data, broadcast, states):
        facts = {"num_examples": reply.num_examples, "metrics": reply.metrics}
        replies.append({"client": reply.client, **facts})
        kept |= {f"reply/{reply.client}": reply.payload, f"state/{reply.client}": state}
    return pack({"replies": replies}, kept)


def _pack_work(common: int, broadcast: Broadcast, states: Sequence[Payload]) -> bytes:
    header = {
        "common": common,
        "kind": broadcast.kind,
        "round": broadcast.round,
        "clients": broadcast.clients,
    }
    own = {f"state/{c}": state for c, state in zip(broadcast.clients, states, strict=True)}
    return pack(header, own)


def _unpack_outcome(blob: bytes) -> Outcome:
    header, payloads = _unpack(blob)
    outcome = []
    for fields in header["replies"]:
        client = fields["client"]
        reply = Reply(payload=payloads[f"reply/{client}"], **fields)
        outcome.append((reply, payloads[f"state/{client}"]))
    return outcome


def _unpack(blob: bytes) -> tuple[dict[str, Any], dict[str, Payload]]:
    """Read an answer, or raise what happened in the worker."""
    header, payloads = unpack(blob)
    if "error" in header:
        if header["kind"] == "input":
            raise InputError(header["error"])
        raise RunError(header["error"]) from RuntimeError(f"in a worker:\n{header['trace']}")
    return header, payloads
