"""The command line: one module per command, which parses, calls and prints."""

from __future__ import annotations

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
    sys.exit(code)
