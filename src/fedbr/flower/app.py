"""The components that Flower loads: its app directory is a pyproject.toml that points here.

Nothing heavy is imported before it is needed: Flower starts a process for every message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .desk import at_desk, end_with_parent
from .grid import client_app, server_app

if TYPE_CHECKING:
    from .messages import Blobs
    from .roster import Carrier


def _serve(carrier: Carrier, config: dict[str, Any]) -> None:
    from .server import serve
    from .settings import run_settings

    end_with_parent()
    chosen = run_settings(config)
    serve(carrier, chosen.recipe, chosen.out, chosen.settings, chosen.fresh)


def reply_here(blobs: Blobs, config: dict[str, Any]) -> Blobs:
    """Answer a message in this process."""
    from .. import __version__
    from ..util.errors import InputError
    from .messages import answer
    from .node import reply_to
    from .settings import node_settings
    from .site import site_of

    try:
        settings = node_settings(config)
    except InputError as error:  # such as a data file that was moved away
        return answer({"clients": [], "version": __version__, "error": str(error)})
    return reply_to(blobs, settings, site_of(settings))


server = server_app(_serve)
client = client_app(lambda blobs, config: at_desk(blobs, config, lambda: reply_here(blobs, config)))
