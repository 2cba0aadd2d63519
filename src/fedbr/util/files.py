"""Read and write files; what is written is whole or not there."""

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
from .tables import Json, TomlTable


def write(path: Path, content: str | bytes) -> None:
    """Write a file; a kill at any moment leaves the old content or the new one."""
    temporary = path.with_name(f".{path.name}.new")
    with temporary.open("wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


@contextmanager
def reading(path: Path, what: str = "") -> Iterator[None]:
    """Turn any error in reading a file of a result folder into one line.

    Args:
        path: the file.
        what: what the file holds, such as "which holds the memory of client 3".

    Raises:
        RunError: the file is not there, or damaged.
    """
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        reason = " ".join(str(error).split())
        if isinstance(error, FileNotFoundError):
            reason = "it is not there"
        description = f", {what}" if what else ""
        raise RunError(
            f"{path}: cannot be read{description} ({reason}); put it back as it was, or --fresh to "
            "start over"
        ) from error


def dump(value: Any) -> str:
    """Write a value as indented JSON.

    >>> print(dump({"rounds": 5}), end="")
    {
     "rounds": 5
    }
    """
    return json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def read_json(path: Path, missing: Json) -> Json:
    """Read a JSON file of a result folder.

    Args:
        missing: what to return if there is no file.

    Raises:
        RunError: the file is damaged.
    """
    if not path.exists():
        return missing
    with reading(path):
        values: Json = json.loads(path.read_text("utf-8"))
        return values


def read_toml(path: Path) -> TomlTable:
    """Read a TOML file.

    Raises:
        InputError: the file is not TOML.
    """
    return parse_toml(path.read_bytes(), path)


def parse_toml(content: bytes, path: Path) -> TomlTable:
    """Parse the content of a TOML file.

    Args:
        path: the file, which errors name.

    Raises:
        InputError: the content is not TOML.
    """
    try:
        return tomllib.loads(content.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not TOML ({error})") from error


def refuse_foreign(folder: Path, is_ours: bool) -> None:
    """Refuse a place for results where somebody else's files are; leave it as it is.

    Args:
        folder: where results are to go; it need not exist.
        is_ours: whether what is there was created by fedbr for the same purpose.

    Raises:
        InputError: the place is a file, or a folder with visible files that are not ours.
    """
    if not folder.exists():
        return
    if not folder.is_dir():
        raise InputError(f"--out {folder}: is not a folder")
    if not is_ours and any(not entry.name.startswith(".") for entry in folder.iterdir()):
        raise InputError(
            f"--out {folder}: is not empty and was not created by fedbr; choose another folder"
        )
