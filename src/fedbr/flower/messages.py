"""What server and nodes say to each other, as named pieces of bytes of the wire format."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any

from ..core.wire import Payload, Reply, Task, pack, unpack

Blobs = dict[
    str, bytes
]  # a message: "ask" or "answer" with the header, and payloads that others may share

ASK, ANSWER, TASK, EXAM, SHARED = "ask", "answer", "task", "exam", "shared/"


def ask(header: Mapping[str, Any], **parts: bytes) -> Blobs:
    """Write a question; ``parts`` are the same for every node, so that Flower stores and sends them
    once.
    """
    return {ASK: pack(header, {}), **parts}


def header_of(blobs: Mapping[str, bytes], name: str) -> dict[str, Any]:
    """Read the header of a question or an answer."""
    header, _ = unpack(blobs[name])
    if not isinstance(header, dict):
        raise ValueError(f"{name}: the header is no table")
    return header


def sections(payload: Payload) -> bytes:
    """Write what all clients receive."""
    return pack({}, {"all": payload})


def read_sections(blob: bytes) -> Payload:
    """Read what ``sections`` wrote."""
    return unpack(blob)[1]["all"]


def name_of(blob: bytes) -> str:
    """Name a payload by its content."""
    return sha256(blob).hexdigest()[:32]


def answer(header: Mapping[str, Any], replies: Sequence[Reply] = ()) -> Blobs:
    """Write a node's answer with its clients' replies."""
    fields = [
        {"client": r.client, "num_examples": r.num_examples, "metrics": r.metrics} for r in replies
    ]
    payloads = {f"reply/{i}": reply.payload for i, reply in enumerate(replies)}
    return {ANSWER: pack({**header, "replies": fields}, payloads)}


def read_answer(blobs: Mapping[str, bytes]) -> tuple[dict[str, Any], list[Reply]]:
    """Read what ``answer`` wrote; whoever wrote it, only replies of the right form come out."""
    header, payloads = unpack(blobs[ANSWER])
    replies = [
        Reply(
            client=int(fields["client"]),
            num_examples=int(fields["num_examples"]),
            payload=payloads.get(f"reply/{i}", {}),
            metrics={str(k): float(v) for k, v in fields["metrics"].items()},
        )
        for i, fields in enumerate(header.pop("replies"))
    ]
    return header, replies


def one_line(text: str, most: int = 1000) -> str:
    """Make one line of what somebody else wrote, so that a log stays one."""
    return " ".join("".join(c if c.isprintable() else " " for c in text[:most]).split())


def task_fields(tasks: Iterable[Task]) -> list[list[int]]:
    """Write who is asked, and when each of them trained before."""
    return [[task.client, task.last] for task in tasks]


def ranges(clients: Iterable[int]) -> str:
    """Write numbers for people: 0-4, 7."""
    found: list[list[int]] = []
    for client in sorted(set(clients)):
        if found and client == found[-1][1] + 1:
            found[-1][1] = client
        else:
            found.append([client, client])
    return ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in found)
