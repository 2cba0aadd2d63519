"""The command line: one module per command, which parses, calls and prints."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import warnings
from typing import Any


def main() -> None:
    """Run the command line; every way out has its exit code."""
    # Until a command has its libraries, an interrupt must not surface as an error in the middle of
    # an import.
    signal.signal(signal.SIGINT, lambda *_: leave())
    from .app import call

    _tell_warnings()
    code = call(sys.argv[1:])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(code)


def _tell_warnings() -> None:
    """Show ours as a line, once each, whatever the command does; a progress bar has its own way."""
    usual, said = warnings.showwarning, set[str]()

    def tell(message: Warning | str, category: type[Warning], *more: Any, **others: Any) -> None:
        if category is not RuntimeWarning:
            usual(message, category, *more, **others)
        elif str(message) not in said:
            said.add(str(message))
            print(f"fedbr: {message}", file=sys.stderr)

    warnings.showwarning = tell


def interruptible() -> None:
    """Let Ctrl-C, and the signal of a cluster or a service manager, interrupt what runs: the
    imports are done.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)


def leave(begun: bool = True) -> None:
    """End at once after Ctrl-C: all that matters is on disk, and libraries take their time to
    unload.
    """
    again = shlex.join(["fedbr", *(a for a in sys.argv[1:] if a != "--fresh")])
    sys.stdout.flush()
    state = (
        "every finished round is safe. Go on with"
        if begun
        else "nothing was trained yet. Begin again with"
    )
    os.write(2, f"\nfedbr: interrupted; {state}: {again}\n".encode())
    os._exit(130)
