"""Start Flower's programs with safe settings and logs in files, and leave none of them behind."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from ..util.errors import InputError, RunError
from ..util.processes import make_child_setup

SAFE = {  # nothing is sent to anybody but the SuperLink, and nothing is installed
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2",  # seconds; the default is one, in every round
}
PATIENCE = 15.0  # seconds until a process that was asked to end is killed


class Programs:
    """Programs that end when this object is closed.

    Args:
        home: the folder of Flower's own files.
    """

    def __init__(self, home: Path) -> None:
        self.home = home  # Flower's files: connections, installed apps, keys of the session
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.logs: dict[str, Path] = {}
        self._folders: list[tempfile.TemporaryDirectory[str]] = []

    def start(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """Start a program, in place of one of that name.

        Args:
            name: what to call it.
            command: its command line.
            log: the file to which what it prints is appended.
            settings: environment variables, beside those of all programs.
        """
        if name in self.running:
            self.stop(name)
        log.parent.mkdir(parents=True, exist_ok=True)
        first, *arguments = command
        if not Path(first).is_absolute():
            first = find_program(first)
        with log.open("ab") as file:
            self.running[name] = subprocess.Popen(
                [first, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=environment(self.home) | dict(settings or {}),
                start_new_session=True,  # Ctrl-C is for us; we end them
                preexec_fn=make_child_setup(),
            )
        self.logs[name] = log

    def private_folder(self) -> Path:
        """Make a folder that only this user can enter, and that is removed at the end."""
        self._folders.append(tempfile.TemporaryDirectory(prefix="fedbr-"))
        return Path(self._folders[-1].name)

    def check(self, besides: str = "") -> None:
        """Check that all programs run.

        Args:
            besides: the name of one that may have ended.

        Raises:
            RunError: one has ended.
        """
        for name, process in self.running.items():
            code = process.poll()
            if name != besides and code is not None:
                log = self.logs[name]
                raise RunError(
                    f"{name} ended with code {code}: {last_message(log)}; all of it: {log}"
                )

    def stop(self, name: str) -> None:
        """End a program, and all that it started."""
        self.running[name].terminate()
        self._wait_for_end(name)

    def _wait_for_end(self, name: str) -> None:
        """Wait for one that was asked to end.

        It is asked once only: Flower takes a second signal for an order to drop everything.
        """
        process = self.running.pop(name)
        with suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def close(self) -> None:
        """End all programs, the last one first."""
        for process in self.running.values():
            process.terminate()
        for name in reversed(list(self.running)):
            self._wait_for_end(name)
        while self._folders:
            self._folders.pop().cleanup()

    def __enter__(self) -> Programs:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def environment(home: Path) -> dict[str, str]:
    """Return the environment of Flower's programs, which find each other beside this Python."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    return {
        **os.environ,
        **SAFE,
        "FLWR_HOME": str(home.absolute()),
        "PATH": path,
        "PYTHONUNBUFFERED": "1",
    }


def find_program(name: str) -> str:
    """Return the path of one of Flower's programs, beside this Python before anywhere else.

    Raises:
        InputError: Flower is not installed.
    """
    beside = shutil.which(name, path=str(Path(sys.executable).parent))
    path = beside or shutil.which(name)
    if path is None:
        raise InputError(f"{name}: Flower is not installed; pip install 'fedbr[flower]'")
    return path


def last_message(log: Path, start: int = 0) -> str:
    """Return the last error that a program printed, or its last line.

    Args:
        log: what it printed.
        start: the byte of the log from which on to look.
    """
    text = log.read_bytes()[start:].decode("utf-8", "replace") if log.exists() else ""
    lines = []
    for line in text.splitlines():
        plain = re.sub(r"\x1b\[\d*m", "", line).strip()
        if plain:
            lines.append(plain)
    errors = [i for i, line in enumerate(lines) if line.startswith("ERROR")]
    last_lines = lines[errors[-1] : errors[-1] + 3] if errors else lines[-1:]
    message = " ".join(last_lines).removeprefix("ERROR :")
    return " ".join(message.split()) or "it printed nothing"


def free_port() -> int:
    """Return a port of this machine that is not in use."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def is_listening(host: str, port: int) -> bool:
    """Say whether a program listens at an address."""
    with suppress(OSError), socket.create_connection((host, port), timeout=1):
        return True
    return False


def wait_until(
    ready: Callable[[], bool], seconds: float, what: str, check: Callable[[], None]
) -> None:
    """Wait for something.

    Args:
        ready: says whether it has come.
        seconds: how long to wait.
        what: the same in words.
        check: is called meanwhile, and raises when there is no use in waiting.

    Raises:
        RunError: it did not come in time.
    """
    end = time.monotonic() + seconds
    while not ready():
        check()
        if time.monotonic() > end:
            raise RunError(f"waited {seconds:.0f} s for {what}")
        time.sleep(0.1)
