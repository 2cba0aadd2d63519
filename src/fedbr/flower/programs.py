"""Flower's programs as processes of ours: safe settings, logs in files, and nothing left behind."""

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
from ..util.processes import ending_with_us

SAFE = {  # nothing is sent to anybody but the SuperLink, and nothing is installed
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2",  # seconds; the default is one, in every round
}
PATIENCE = 15.0  # seconds until a process that was asked to end is killed


class Programs:
    """Programs that end when this object does."""

    def __init__(self, home: Path) -> None:
        self.home = home  # Flower's files: connections, installed apps, keys of the session
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.logs: dict[str, Path] = {}
        self._folders: list[tempfile.TemporaryDirectory[str]] = []

    def start(
        self, name: str, line: Sequence[str], log: Path, settings: Mapping[str, str] | None = None
    ) -> None:
        """Start a program, in place of one of that name; what it prints goes to a file."""
        if name in self.running:
            self.stop(name)
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as file:
            self.running[name] = subprocess.Popen(
                [line[0] if Path(line[0]).is_absolute() else program(line[0]), *line[1:]],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=environment(self.home) | dict(settings or {}),
                start_new_session=True,  # Ctrl-C is for us; we end them
                preexec_fn=ending_with_us(),
            )
        self.logs[name] = log

    def private_folder(self) -> Path:
        """Make a folder that only this user can enter, and that goes at the end."""
        self._folders.append(tempfile.TemporaryDirectory(prefix="fedbr-"))
        return Path(self._folders[-1].name)

    def check(self, besides: str = "") -> None:
        """Raise RunError if one of them has ended.

        besides: the name of one that may.
        """
        for name, process in self.running.items():
            if name != besides and (code := process.poll()) is not None:
                log = self.logs[name]
                raise RunError(
                    f"{name} ended with code {code}: {last_words(log)}; all of it: {log}"
                )

    def stop(self, name: str) -> None:
        """End one, and all that it started."""
        self.running[name].terminate()
        self._gone(name)

    def _gone(self, name: str) -> None:
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
        """End all, the last one first."""
        for process in self.running.values():
            process.terminate()
        for name in reversed(list(self.running)):
            self._gone(name)
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


def program(name: str) -> str:
    """Find one of Flower's programs, beside this Python before anywhere else."""
    beside = shutil.which(name, path=str(Path(sys.executable).parent))
    path = beside or shutil.which(name)
    if path is None:
        raise InputError(f"{name}: Flower is not installed; pip install 'fedbr[flower]'")
    return path


def last_words(log: Path, start: int = 0) -> str:
    """Return what a program complained of last, or its last line.

    start: the place in its log from which on to look.
    """
    text = log.read_bytes()[start:].decode("utf-8", "replace") if log.exists() else ""
    plain = (re.sub(r"\x1b\[\d*m", "", line).strip() for line in text.splitlines())
    lines = [line for line in plain if line]
    errors = [i for i, line in enumerate(lines) if line.startswith("ERROR")]
    chosen = lines[errors[-1] : errors[-1] + 3] if errors else lines[-1:]
    return " ".join(" ".join(chosen).removeprefix("ERROR :").split()) or "it said nothing"


def free_port() -> int:
    """Find a port of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def listens(host: str, port: int) -> bool:
    """Say whether somebody listens there."""
    with suppress(OSError), socket.create_connection((host, port), timeout=1):
        return True
    return False


def wait_until(
    ready: Callable[[], bool], seconds: float, what: str, check: Callable[[], None]
) -> None:
    """Wait for something.

    what: the same in words. check: is called meanwhile, and raises when there is no use in waiting.
    """
    end = time.monotonic() + seconds
    while not ready():
        check()
        if time.monotonic() > end:
            raise RunError(f"waited {seconds:.0f} s for {what}")
        time.sleep(0.1)
