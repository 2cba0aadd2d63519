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
    """Run the command line and exit with its code: 0, 1 (the run), 2 (the input), 130 (Ctrl-C)."""
    # Until a command has its libraries, an interrupt must not surface in the middle of an import.
    signal.signal(signal.SIGINT, lambda *_: leave())
    from .app import call

    warnings.showwarning = WarningLines(lambda text: print(text, file=sys.stderr))
    code = call(sys.argv[1:])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(code)


def interruptible() -> None:
    """Let Ctrl-C, and a cluster's SIGTERM, raise KeyboardInterrupt: the imports are done."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)


def leave(begun: bool = True) -> None:
    """End the process after Ctrl-C, with exit code 130.

    It ends at once: results are on disk, and libraries take long to unload.

    Args:
        begun: whether training has begun, so that there are finished rounds.
    """
    arguments = [argument for argument in sys.argv[1:] if argument != "--fresh"]
    command = shlex.join(["fedbr", *arguments])
    state = "nothing was trained yet. Begin again with"
    if begun:
        state = "every finished round is safe. Go on with"
    sys.stdout.flush()
    os.write(2, f"\nfedbr: interrupted; {state}: {command}\n".encode())
    os._exit(130)
