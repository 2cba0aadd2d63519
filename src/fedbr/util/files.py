"""Files that are whole or not there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from .errors import RunError


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
            f"{path}: cannot be read{what and f', {what}'} ({reason}); put it back as it was, or --fresh to start over"
        ) from error
