"""A process of the node that stays, with everything imported.

Flower starts a new process for every message, which would import torch every time. It only brings
the message here, so nothing heavy may be imported at the head of this file.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path

from .types import Blobs, Config

# The environment variable by which Flower's processes know where it listens: a file that only this
# user can open.
SOCKET = "FEDBR_NODE_SOCKET"


def reply_in_daemon(blobs: Blobs, config: Config, fallback: Callable[[], Blobs]) -> Blobs:
    """Let the process that stays answer a message.

    Args:
        blobs: the message.
        config: the node's settings, as Flower has them.
        fallback: answers where there is no such process, or it died.
    """
    if address := os.environ.get(SOCKET):
        with suppress(OSError, EOFError), Client(address, "AF_UNIX") as connection:
            _send(connection, blobs, config)
            answer, _ = _receive(connection)
            return answer
    return fallback()


def main(address: str) -> None:
    """Answer messages, one after the other, until the process is ended or its parent is gone."""
    from ..util.processes import end_with_parent
    from .app import reply_here

    threading.Thread(target=end_with_parent, daemon=True).start()
    with Listener(address, "AF_UNIX", backlog=8) as listener:
        Path(address).chmod(0o600)
        while True:
            # After a failure, Flower's process answers by itself.
            with suppress(Exception), listener.accept() as connection:
                blobs, config = _receive(connection)
                _send(connection, reply_here(blobs, config), {})


def _send(connection: Connection, blobs: Blobs, config: Config) -> None:
    header = {"names": list(blobs), "config": dict(config)}
    connection.send_bytes(json.dumps(header).encode())
    for blob in blobs.values():
        connection.send_bytes(blob)


def _receive(connection: Connection) -> tuple[Blobs, Config]:
    header = json.loads(connection.recv_bytes())
    blobs = {name: connection.recv_bytes() for name in header["names"]}
    return blobs, header["config"]


if __name__ == "__main__":
    main(sys.argv[1])
