"""Flower's side of a message: bytes in array records, sent to nodes and waited for."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

if TYPE_CHECKING:  # which would import torch, in a process that may not need it
    from .messages import Blobs
    from .roster import Transport

log = logging.getLogger("fedbr.flower")

RECORD = "fedbr"
BYTES = "fedbr.bytes"  # Flower asks how an array is written; it never reads it
POLL = 0.2  # seconds; Flower's own loop looks every three


class GridTransport:
    """Sends messages through a SuperLink; an answer that comes too late is never looked at."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid

    def nodes(self) -> list[int]:
        """Return the nodes that are there, the oldest first as Flower lists them."""
        return list(self.grid.get_node_ids())

    def exchange(
        self, kind: str, messages: Mapping[int, Blobs], timeout: float
    ) -> dict[int, Blobs | str]:
        """Send one message to each node; return the answers that come in time."""
        begin = time.monotonic()
        waiting: dict[str, int] = {}
        # What several nodes get is one object, so that it is hashed and stored once.
        shared: dict[int, Array] = {}
        for node, blobs in messages.items():
            message = Message(
                _content(blobs, shared), dst_node_id=node, message_type=kind, ttl=timeout
            )
            for sent in self.grid.push_messages([message]):
                if sent:
                    waiting[sent] = node
        pushed, fetched = time.monotonic() - begin, 0.0
        answers: dict[int, Blobs | str] = {}
        while waiting and time.monotonic() < begin + timeout:
            look = time.monotonic()
            for reply in self.grid.pull_messages(list(waiting)):
                if (answered := reply.metadata.reply_to_message_id) in waiting:
                    answers[waiting.pop(answered)] = _answer(reply)
                    fetched += time.monotonic() - look
                    look = time.monotonic()
            if waiting:
                time.sleep(POLL)
        text = "%s: %d messages sent in %.1f s, %d answers fetched in %.1f s"
        log.info(text, kind, len(messages), pushed, len(answers), fetched)
        return answers


def _answer(reply: Message) -> Blobs | str:
    """Return what a node answered, or what is wrong with it in a line."""
    if reply.has_error():
        return f"Flower: {reply.error.reason}"
    try:
        return read(reply.content)
    except Exception as error:  # nothing that a node sends may stop the server
        return f"its answer makes no sense ({type(error).__name__}: {error})"


def server_app(main: Callable[[Transport, dict[str, Any]], None]) -> ServerApp:
    """Make a ServerApp that gives its nodes, and the run's configuration, to a function.

    main: is called with them once, for the whole run.
    """
    app = ServerApp()

    def act(grid: Grid, context: Context) -> None:
        main(GridTransport(grid), dict(context.run_config))

    app.main()(act)
    return app


def client_app(handle: Callable[[Blobs, dict[str, Any]], Blobs]) -> ClientApp:
    """Make a ClientApp that gives a message's bytes, and the node's settings, to a function."""
    app = ClientApp()

    def act(message: Message, context: Context) -> Message:
        blobs = handle(read(message.content), dict(context.node_config))
        return Message(_content(blobs, {}), reply_to=message)

    for verb in (app.query, app.train, app.evaluate):
        verb()(act)
    return app


def _content(blobs: Blobs, shared: dict[int, Array]) -> RecordDict:
    arrays = {}
    for name, blob in blobs.items():
        arrays[name] = shared.setdefault(id(blob), Array("uint8", (len(blob),), BYTES, blob))
    return RecordDict({RECORD: ArrayRecord(arrays)})


def read(content: RecordDict) -> Blobs:
    """Return the bytes of a message."""
    return {name: bytes(array.data) for name, array in content.array_records[RECORD].items()}
