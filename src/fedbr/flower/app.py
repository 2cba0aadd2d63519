"""The components that Flower loads: its app directory is a pyproject.toml that points here.

Nothing heavy is imported before it is needed: Flower starts a process for every message.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from .daemon import reply_in_daemon
from .grid import client_app, server_app

if TYPE_CHECKING:
    from .messages import Blobs
    from .roster import Transport


def _serve(transport: Transport, config: dict[str, Any]) -> None:
    from ..util.processes import end_with_parent
    from .server import serve
    from .settings import run_settings

    # Flower's own processes would wait for each other for ever.
    threading.Thread(target=end_with_parent, daemon=True).start()
    chosen = run_settings(config)
    serve(transport, chosen.recipe, chosen.out, chosen.settings, chosen.fresh)


def reply_here(blobs: Blobs, config: dict[str, Any]) -> Blobs:
    """Answer a message in this process."""
    from ..util.errors import InputError
    from .messages import Answer
    from .node import reply_to
    from .settings import node_settings
    from .site import site_of

    try:
        settings = node_settings(config)
    except InputError as error:  # such as a data file that was moved away
        return Answer(error=str(error)).write()
    return reply_to(blobs, settings, site_of(settings))


def _reply(blobs: Blobs, config: dict[str, Any]) -> Blobs:
    return reply_in_daemon(blobs, config, lambda: reply_here(blobs, config))


server = server_app(_serve)
client = client_app(_reply)
