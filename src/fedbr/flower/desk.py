"""A process of the node that stays: Flower starts a new one for every message, which would import
torch every time.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any

Blobs = dict[str, bytes]
SOCKET = "FEDBR_DESK"  # where it listens, told to Flower's processes; a file that only this user can open


def at_desk(blobs: Blobs, config: Mapping[str, Any], otherwise: Callable[[], Blobs]) -> Blobs:
    """Let the process that stays answer a message; where there is none, or it died, answer here."""
    if address := os.environ.get(SOCKET):
        with suppress(OSError, EOFError), Client(address, "AF_UNIX") as connection:
            _send(connection, blobs, config)
            return _receive(connection)[0]
    return otherwise()


def main(address: str) -> None:
    """Answer messages, one after the other, until the process is ended or its parent is gone."""
    from .app import reply_here

    end_with_parent()
    with Listener(address, "AF_UNIX", backlog=8) as listener:
        Path(address).chmod(0o600)
        while True:
            with (
                suppress(Exception),
                listener.accept() as connection,
            ):  # then Flower's process answers by itself
                blobs, config = _receive(connection)
                _send(connection, reply_here(blobs, config), {})


def end_with_parent() -> None:
    """End this process when the one that started it is gone; Flower's own would wait for each other
    for ever.
    """
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)  # nothing is here that is not on disk too

    threading.Thread(target=watch, daemon=True).start()


def _send(connection: Connection, blobs: Blobs, config: Mapping[str, Any]) -> None:
    connection.send_bytes(json.dumps({"names": list(blobs), "config": dict(config)}).encode())
    for blob in blobs.values():
        connection.send_bytes(blob)


def _receive(connection: Connection) -> tuple[Blobs, dict[str, Any]]:
    header = json.loads(connection.recv_bytes())
    return {name: connection.recv_bytes() for name in header["names"]}, header["config"]


if __name__ == "__main__":
    main(sys.argv[1])
