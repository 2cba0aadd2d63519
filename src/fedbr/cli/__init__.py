"""The command line: one module per command, which parses, calls and prints.

Nothing is trained, judged or drawn here: what a command does, Python can call without it.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
import warnings

from .warning_lines import WarningLines


def main() -> None:
    """Run the command line; every way out has its exit code."""
    # Until a command has its libraries, an interrupt must not surface in the middle of an import.
    signal.signal(signal.SIGINT, lambda *_: leave())
    from .app import call

    warnings.showwarning = WarningLines(lambda text: print(text, file=sys.stderr))
    code = call(sys.argv[1:])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(code)


def interruptible() -> None:
    """Let Ctrl-C and the signal of a cluster interrupt what runs: the imports are done."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)


def leave(begun: bool = True) -> None:
    """End at once after Ctrl-C: what matters is on disk, and libraries take long to unload."""
    again = shlex.join(["fedbr", *(a for a in sys.argv[1:] if a != "--fresh")])
    sys.stdout.flush()
    state = (
        "every finished round is safe. Go on with"
        if begun
        else "nothing was trained yet. Begin again with"
    )
    os.write(2, f"\nfedbr: interrupted; {state}: {again}\n".encode())
    os._exit(130)
