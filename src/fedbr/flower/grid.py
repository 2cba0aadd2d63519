"""Flower's side of a message: bytes in array records, sent to nodes and waited for."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from .types import Blobs, Config

if TYPE_CHECKING:  # which would import torch, in a process that may not need it
    from .roster import Transport

log = logging.getLogger("fedbr.flower")

RECORD = "fedbr"
BYTES = "fedbr.bytes"  # Flower asks how an array is written; it never reads it
POLL = 0.2  # seconds; Flower's own loop looks every three


class GridTransport:
    """Sends messages through a SuperLink; an answer that comes too late is never read.

    Args:
        grid: as Flower hands it to a ServerApp.
    """

    def __init__(self, grid: Grid) -> None:
        self.grid = grid

    def nodes(self) -> list[int]:
        """Return the nodes that are connected, the oldest first as Flower lists them."""
        return list(self.grid.get_node_ids())

    def exchange(
        self, kind: str, messages: Mapping[int, Blobs], timeout: float
    ) -> dict[int, Blobs | str]:
        """Send one message to each node.

        Args:
            kind: the component of Flower's ClientApp: "query", "train" or "evaluate".
            messages: by node.
            timeout: seconds to wait for answers.

        Returns:
            The answers that came in time, or in a line what is wrong with them, by node.
        """
        start = time.monotonic()
        waiting = self._push(kind, messages, timeout)
        push_seconds, pull_seconds = time.monotonic() - start, 0.0
        answers: dict[int, Blobs | str] = {}
        while waiting and time.monotonic() < start + timeout:
            pull_start = time.monotonic()
            for reply in self.grid.pull_messages(list(waiting)):
                answered = reply.metadata.reply_to_message_id
                if answered in waiting:
                    answers[waiting.pop(answered)] = _read_answer(reply)
                    pull_seconds += time.monotonic() - pull_start
                    pull_start = time.monotonic()
            if waiting:
                time.sleep(POLL)
        log.info(
            "%s: %d messages sent in %.1f s, %d answers fetched in %.1f s",
            kind,
            len(messages),
            push_seconds,
            len(answers),
            pull_seconds,
        )
        return answers

    def _push(self, kind: str, messages: Mapping[int, Blobs], timeout: float) -> dict[str, int]:
        """Send messages; return the node of each message's id."""
        waiting: dict[str, int] = {}
        # What several nodes get is one object, so that it is hashed and stored once.
        shared: dict[int, Array] = {}
        for node, blobs in messages.items():
            content = _write_content(blobs, shared)
            message = Message(content, dst_node_id=node, message_type=kind, ttl=timeout)
            for message_id in self.grid.push_messages([message]):
                if message_id:
                    waiting[message_id] = node
        return waiting


def _read_answer(reply: Message) -> Blobs | str:
    """Return what a node answered, or what is wrong with it in a line."""
    if reply.has_error():
        return f"Flower: {reply.error.reason}"
    try:
        return read_content(reply.content)
    except Exception as error:  # nothing that a node sends may stop the server
        return f"its answer is invalid ({type(error).__name__}: {error})"


def server_app(main: Callable[[Transport, Config], None]) -> ServerApp:
    """Make a ServerApp of a function.

    Args:
        main: is called once for the whole run, with its nodes and its configuration.
    """
    app = ServerApp()

    def act(grid: Grid, context: Context) -> None:
        main(GridTransport(grid), dict(context.run_config))

    app.main()(act)
    return app


def client_app(handle: Callable[[Blobs, Config], Blobs]) -> ClientApp:
    """Make a ClientApp of a function.

    Args:
        handle: answers a message, given the message and the node's settings.
    """
    app = ClientApp()

    def act(message: Message, context: Context) -> Message:
        blobs = handle(read_content(message.content), dict(context.node_config))
        return Message(_write_content(blobs, {}), reply_to=message)

    for component in (app.query, app.train, app.evaluate):
        component()(act)
    return app


def _write_content(blobs: Blobs, shared: dict[int, Array]) -> RecordDict:
    """Put bytes into a record.

    Args:
        blobs: the bytes.
        shared: arrays of earlier messages by the identity of their bytes; new ones are added.
    """
    arrays = {}
    for name, blob in blobs.items():
        arrays[name] = shared.setdefault(id(blob), Array("uint8", (len(blob),), BYTES, blob))
    return RecordDict({RECORD: ArrayRecord(arrays)})


def read_content(content: RecordDict) -> Blobs:
    """Return the bytes of a message."""
    return {name: bytes(array.data) for name, array in content.array_records[RECORD].items()}
