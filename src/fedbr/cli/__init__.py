"""The command line: one module per command, which parses, calls and prints."""

from __future__ import annotations

import os
import signal
import sys


def main() -> None:
    """Run the command line; every way out has its exit code."""
    try:
        from .app import call

        code = call(sys.argv[1:])
    except KeyboardInterrupt:  # before a command could say how to go on
        code = 130
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if code == 130:  # all that matters is on disk: do not make an impatient user wait for libraries to unload
        sys.stdout.flush()
        os._exit(code)
    sys.exit(code)
