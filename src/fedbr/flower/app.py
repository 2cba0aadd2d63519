"""The components that Flower loads: its app directory is a pyproject.toml that points here.

Nothing heavy is imported before it is needed: Flower starts a process for every message.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from .daemon import reply_in_daemon
from .grid import client_app, server_app
from .types import Blobs, Config

if TYPE_CHECKING:  # which would import torch
    from .roster import Transport


def _serve(transport: Transport, config: Config) -> None:
    from ..util.processes import end_with_parent
    from .server import serve
    from .settings import read_run_settings

    # Flower's own processes would wait for each other for ever.
    threading.Thread(target=end_with_parent, daemon=True).start()
    run = read_run_settings(config)
    serve(transport, run.recipe, run.out, run.settings, run.fresh)


def reply_here(blobs: Blobs, config: Config) -> Blobs:
    """Answer a message in this process.

    Args:
        blobs: the message.
        config: the node's settings, as Flower has them.
    """
    from ..util.errors import InputError
    from .messages import Answer
    from .node import reply_to
    from .settings import read_node_settings
    from .site import site_of

    try:
        settings = read_node_settings(config)
    except InputError as error:  # such as a data file that was moved away
        return Answer(error=str(error)).write()
    return reply_to(blobs, settings, site_of(settings))


def _reply(blobs: Blobs, config: Config) -> Blobs:
    return reply_in_daemon(blobs, config, lambda: reply_here(blobs, config))


server = server_app(_serve)
client = client_app(_reply)
