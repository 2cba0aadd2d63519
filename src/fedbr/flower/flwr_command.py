"""Call ``flwr``, Flower's own command line, and write the connection that it uses."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from ..util.errors import InputError, RunError
from ..util.files import write
from .programs import environment, find_program

NAME = "fedbr"  # of the connection, in Flower's config.toml
TIMEOUT = 120.0  # seconds for the SuperLink to answer


def write_connection(home: Path, address: str, keys: Path | None) -> None:
    """Write where the SuperLink is, for the flwr command.

    Args:
        home: the folder of Flower's own files.
        address: HOST:PORT of the SuperLink.
        keys: the folder with ca.crt; None: without TLS.

    Raises:
        InputError: there is no ca.crt.
    """
    home.mkdir(parents=True, exist_ok=True)
    safety = "insecure = true"
    if keys is not None:
        certificate = check_key(keys / "ca.crt").absolute()
        safety = f'root-certificates = "{certificate}"'
    lines = [
        "[superlink]",
        f'default = "{NAME}"',
        "",
        f"[superlink.{NAME}]",
        f'address = "{address}"',
        safety,
    ]
    write(home / "config.toml", "\n".join(lines) + "\n")


def register(home: Path, public_key: Path) -> None:
    """Register a node at the SuperLink; one that is registered already stays.

    Raises:
        RunError: the SuperLink refuses the key.
    """
    done = flwr(home, "supernode", "register", str(public_key), NAME)
    if done.returncode and "already" not in done.stdout + done.stderr:
        reason = clean_output(done.stdout + done.stderr)
        raise RunError(f"{public_key.name}: cannot be registered ({reason})")


def flwr(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Call Flower's own command line.

    Args:
        home: the folder of Flower's own files.
        words: the command and its arguments.

    Raises:
        RunError: the SuperLink does not answer.
    """
    command = [find_program("flwr"), *words]
    try:
        return subprocess.run(
            command,
            env=environment(home),
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise RunError(
            f"flwr {words[0]}: the SuperLink did not answer in {TIMEOUT:.0f} s"
        ) from error


def check_key(file: Path) -> Path:
    """Return a file of keys.

    Raises:
        InputError: it is not there.
    """
    if not file.exists():
        raise InputError(
            f"--keys {file.parent}: has no {file.name}; make it with fedbr flower keys"
        )
    return file


def clean_output(text: str) -> str:
    """Return the end of what Flower's command line printed, without colours and frames."""
    return " ".join(re.sub(r"[^\x20-\x7e]+", " ", text).split())[-300:]
