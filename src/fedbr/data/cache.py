"""A cache on disk of what was made from files, keyed by content."""

from __future__ import annotations

import hashlib
import os
import threading
import zlib
from collections.abc import Callable, Iterable
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import platformdirs
import safetensors.numpy
from numpy.typing import NDArray
from safetensors import SafetensorError

Arrays = dict[str, NDArray[Any]]

CACHE_VERSION = "1"  # part of every key: raise it when the meaning of what is stored changes
CHECKSUM = "fedbr-crc32"  # beside the arrays, since safetensors has none


def cache_folder() -> Path:
    """Return $FEDBR_CACHE, or else our folder where the platform keeps such things."""
    if folder := os.environ.get("FEDBR_CACHE"):
        return Path(folder).expanduser()
    return platformdirs.user_cache_path("fedbr", appauthor=False)


def load_or_make(key_parts: Iterable[bytes | str], make: Callable[[], Arrays]) -> Arrays:
    """Return what ``make`` makes, from disk if it was made before from the same parts.

    Args:
        key_parts: all that the arrays depend on.
        make: makes the arrays.

    >>> load_or_make(["three zeros"], lambda: {"x": np.zeros(3)})["x"]
    array([0., 0., 0.])
    """
    path = cache_folder() / f"{_hash(key_parts)}.safetensors"
    arrays = _load(path)
    if arrays is None:
        arrays = {}
        for key, array in make().items():
            # safetensors writes the memory as it lies there, whatever the strides.
            arrays[key] = np.asarray(array, array.dtype.newbyteorder("="), order="C")
        _store(path, arrays)
    return arrays


def _hash(key_parts: Iterable[bytes | str]) -> str:
    digest = hashlib.sha256()
    for part in chain([CACHE_VERSION], key_parts):
        content = part.encode("utf-8", "surrogateescape") if isinstance(part, str) else part
        # The length, so that parts cannot run together.
        digest.update(f"{type(part).__name__} {len(content)} ".encode())
        digest.update(content)
    return digest.hexdigest()


def _checksum(arrays: Arrays) -> NDArray[np.uint32]:
    total = 0
    for key, array in sorted(arrays.items()):
        total = zlib.crc32(f"{key} {array.dtype.str} {array.shape}".encode(), total)
        total = zlib.crc32(array.reshape(-1).view(np.uint8).data, total)
    return np.array(total, np.uint32)


def _load(path: Path) -> Arrays | None:
    try:
        arrays = dict(safetensors.numpy.load_file(path))
        return arrays if arrays.pop(CHECKSUM) == _checksum(arrays) else None
    except Exception:  # not there, or damaged in whatever way
        return None


def _store(path: Path, arrays: Arrays) -> None:
    temporary = path.with_name(f".{path.stem}-{os.getpid()}-{threading.get_ident()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            safetensors.numpy.save_file({**arrays, CHECKSUM: _checksum(arrays)}, temporary)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except (OSError, SafetensorError):
        pass  # a cache that cannot be written only costs time
