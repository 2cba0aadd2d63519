"""Files that are whole or not there."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from .errors import InputError, RunError


def write(path: Path, content: str | bytes) -> None:
    """Write a file so that a kill at any moment leaves the old one or the new one."""
    temporary = path.with_name(f".{path.name}.new")
    with temporary.open("wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


@contextmanager
def reading(path: Path, what: str = "") -> Iterator[None]:
    """Say in one line that a file of a result folder is gone or damaged."""
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        reason = (
            "it is not there"
            if isinstance(error, FileNotFoundError)
            else " ".join(str(error).split())
        )
        raise RunError(
            f"{path}: cannot be read{what and f', {what}'} ({reason}); put it back as it was, or "
            "--fresh to start over"
        ) from error


def dump(value: Any) -> str:
    """Write JSON for people and programs alike."""
    return json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def read_json(path: Path, missing: dict[str, Any]) -> dict[str, Any]:
    """Read a table of a result folder.

    missing: what to return where there is no file. Raises RunError for one that is damaged.
    """
    if not path.exists():
        return missing
    with reading(path):
        values: dict[str, Any] = json.loads(path.read_text("utf-8"))
        return values


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file; InputError if it is none."""
    return parse_toml(path.read_bytes(), path)


def parse_toml(content: bytes, path: Path) -> dict[str, Any]:
    """Parse the content of a TOML file; InputError, which names the path, if it is none."""
    try:
        return tomllib.loads(content.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not TOML ({error})") from error
