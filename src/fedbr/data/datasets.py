"""Other people's data set objects as arrays: torch data sets, and those of Hugging Face's ``datasets``."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..core.errors import InputError

SAMPLES = ("image", "img", "x", "features", "pixel_values")
LABELS = ("label", "labels", "y", "fine_label")


def read_dataset(dataset: Any, name: str, owner: str = "") -> tuple[NDArray[Any], NDArray[Any], NDArray[Any] | None]:
    """Return samples, labels, and the clients' ids if a column is named; images get their channels first."""
    if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        raise InputError(
            f"{name}: {type(dataset).__name__} has no length or cannot be indexed; a map-style data set is wanted"
        )
    if not len(dataset):
        raise InputError(f"{name}: is empty")
    rows = [dataset[i] for i in range(len(dataset))]
    first = rows[0]
    if isinstance(first, dict):
        x, y = (_column(first, known, name) for known in (SAMPLES, LABELS))
        if owner and owner not in first:
            raise InputError(f"{name}: has no column {owner!r}, only {', '.join(first)}")
        ids = np.array([row[owner] for row in rows]) if owner else None
        return _stack([row[x] for row in rows], name), np.array([int(row[y]) for row in rows]), ids
    if owner:
        raise InputError(f"owner = {owner!r}: {name} has no columns; Federation.from_clients takes data per client")
    if not isinstance(first, tuple | list) or len(first) != 2:
        raise InputError(f"{name}: its items are {type(first).__name__}; pairs (x, y) or rows with columns are wanted")
    return _stack([row[0] for row in rows], name), np.array([int(row[1]) for row in rows]), None


def _column(row: dict[str, Any], known: tuple[str, ...], name: str) -> str:
    found = next((column for column in known if column in row), None)
    if found is None:
        raise InputError(f"{name}: has columns {', '.join(row)}; one of {', '.join(known)} is wanted")
    return found


def _stack(values: list[Any], name: str) -> NDArray[Any]:
    arrays = [np.asarray(v.detach().cpu()) if isinstance(v, Tensor) else np.asarray(v) for v in values]
    shapes = {a.shape for a in arrays}
    if len(shapes) > 1:
        one, other, *_ = sorted(shapes)
        raise InputError(
            f"{name}: samples of different shapes, such as {one} and {other}; bring them to one size first"
        )
    return channels_first(np.stack(arrays))


def channels_first(x: NDArray[Any]) -> NDArray[Any]:
    """Put channels first where images have them last, and give grey images of bytes their one channel."""
    if x.dtype == np.uint8 and x.ndim == 3:
        return x[:, None]
    if x.ndim == 4 and x.shape[-1] in (1, 3) and x.shape[1] not in (1, 3):
        return np.moveaxis(x, -1, 1)
    return x
