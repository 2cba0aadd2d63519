"""One process of a pool, and the messages between it and the pool."""

from __future__ import annotations

import signal
import traceback
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection

import torch
from torch import Tensor

from ..core.broadcast import Broadcast
from ..core.client import handle
from ..core.evaluation import Exam, Piece
from ..core.wire import Payload, Reply, pack, unpack
from ..util.errors import InputError, RunError
from ..util.processes import keep_memory
from ..util.tables import Json
from .base import Outcome
from .serial import SerialBackend

PREPARE = b"prepare"  # announces what stays the same during a run
BUFFER = b"buffer"  # announces a larger buffer in shared memory


def serve(connection: Connection) -> None:
    """Answer the messages of a pool, until it is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    keep_memory()
    backend: SerialBackend | None = None
    buffer = torch.empty(0, dtype=torch.uint8)
    with suppress(EOFError, OSError):  # the pool is gone
        while True:
            message = connection.recv_bytes()
            if message == BUFFER:
                buffer = connection.recv()
                continue
            try:
                if message == PREPARE:
                    setup, data, plan = connection.recv()
                    backend = SerialBackend(setup, data, plan, 1)
                    answer = pack({}, {})
                else:
                    assert backend is not None
                    answer = _answer(backend, message, buffer)
            except (EOFError, OSError):
                raise
            except Exception as error:  # whatever a method of the user's raises
                answer = _pack_error(error)
            connection.send_bytes(answer)


def _answer(backend: SerialBackend, message: bytes, buffer: Tensor) -> bytes:
    """Train a block, or test a model."""
    header, payloads = unpack(message)
    if header["shared_bytes"]:
        shared = buffer[: header["shared_bytes"]].numpy().tobytes()
        payloads |= unpack(shared)[1]
    if "exam" in header:
        return _test(backend, header, payloads)
    return _train(backend, header, payloads)


# Training: a message for a block, and its outcome.


def pack_shared_work(broadcast: Broadcast) -> bytes:
    """Write what all blocks receive."""
    return pack({}, {"payload": broadcast.payload, "shared": broadcast.shared})


def pack_work(shared_bytes: int, broadcast: Broadcast, states: Sequence[Payload]) -> bytes:
    """Write what one block receives beside the shared bytes."""
    header = {
        "shared_bytes": shared_bytes,
        "kind": broadcast.kind,
        "round": broadcast.round,
        "clients": broadcast.clients,
    }
    payloads = {}
    for client, state in zip(broadcast.clients, states, strict=True):
        payloads[f"state/{client}"] = state
    return pack(header, payloads)


def _train(backend: SerialBackend, header: Json, payloads: dict[str, Payload]) -> bytes:
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
    results: dict[str, Payload] = {}
    for reply, state in handle(backend.setup, backend.data, broadcast, states):
        facts = {"num_examples": reply.num_examples, "metrics": reply.metrics}
        replies.append({"client": reply.client, **facts})
        results[f"reply/{reply.client}"] = reply.payload
        results[f"state/{reply.client}"] = state
    return pack({"replies": replies}, results)


def unpack_outcome(answer: bytes) -> Outcome:
    """Read the outcome of a block."""
    header, payloads = unpack_answer(answer)
    outcome = []
    for fields in header["replies"]:
        client = fields["client"]
        reply = Reply(payload=payloads[f"reply/{client}"], **fields)
        outcome.append((reply, payloads[f"state/{client}"]))
    return outcome


# Testing: an exam, or a part of it, and its counts.


def pack_shared_exam(exam: Exam) -> bytes:
    """Write the model of an exam."""
    return pack({}, _exam_payloads(exam))


def pack_exam(shared_bytes: int, exam: Exam, pieces: Sequence[Piece]) -> bytes:
    """Write some pieces of an exam, and its model unless that is in the shared bytes."""
    header = {"shared_bytes": shared_bytes, "exam": pieces, "tallies": exam.tallies}
    return pack(header, {} if shared_bytes else _exam_payloads(exam))


def _exam_payloads(exam: Exam) -> dict[str, Payload]:
    return {"exam": {"exam": exam.model}}


def _test(backend: SerialBackend, header: Json, payloads: dict[str, Payload]) -> bytes:
    pieces = [Piece(*piece) for piece in header["exam"]]
    exam = Exam(payloads["exam"]["exam"], pieces, tuple(header["tallies"]))
    (answers,) = backend.test([exam])
    counts = torch.stack([answers[piece] for piece in pieces])
    return pack({}, {"counts": {"counts": {"pieces": counts}}})


def unpack_counts(answer: bytes) -> Tensor:
    """Read the counts of some pieces, in their order."""
    _, payloads = unpack_answer(answer)
    return payloads["counts"]["counts"]["pieces"]


# Errors.


def _pack_error(error: Exception) -> bytes:
    if isinstance(error, InputError):
        return pack({"error": str(error), "kind": "input"}, {})
    message = str(error)
    if not isinstance(error, RunError):
        message = f"{type(error).__name__}: {message}"
    return pack({"error": message, "kind": "run", "trace": traceback.format_exc()}, {})


def unpack_answer(answer: bytes) -> tuple[Json, dict[str, Payload]]:
    """Read an answer.

    Raises:
        InputError, RunError: what happened in the worker.
    """
    header, payloads = unpack(answer)
    if "error" in header:
        if header["kind"] == "input":
            raise InputError(header["error"])
        raise RunError(header["error"]) from RuntimeError(f"in a worker:\n{header['trace']}")
    return header, payloads
