"""Other people's data set objects as arrays: torch data sets, and those of Hugging Face's
``datasets``.
"""

from __future__ import annotations

import math
import reprlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..util.errors import InputError
from .arrays import as_names, as_tensor
from .readers import plain

SAMPLES = ("image", "img", "x", "features", "pixel_values")
LABELS = ("label", "labels", "y", "fine_label")


class Table(NamedTuple):
    """What is in a data set: images have their channels first, labels and owners are whole numbers
    or words.
    """

    x: Tensor
    y: NDArray[Any]
    owner: NDArray[Any] | None = None
    class_names: Sequence[str] | None = None


def read_dataset(dataset: Any, name: str, owner: str = "", *, needed: bool = True) -> Table:
    """Read every row once; ``owner`` is a column with clients' ids, which may be missing if it is
    not needed.
    """
    if isinstance(dataset, Mapping):
        splits = sorted(map(str, dataset), key=lambda split: split != name)
        raise InputError(
            f"{name}: holds {', '.join(splits)}; choose a split, such as ds[{(splits or [name])[0]!r}]"
        )
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
        if owner and owner not in first and needed:
            raise InputError(f"{name}: has no column {owner!r}, only {', '.join(first)}")
        ids = _names([row[owner] for row in rows], f"{name}: {owner}") if owner in first else None
        labels = _names([row[y] for row in rows], f"{name}: {y}")
        return Table(_stack([row[x] for row in rows], name), labels, ids, _class_names(dataset, y))
    if owner and needed:
        raise InputError(
            f"owner = {owner!r}: {name} has no columns; Federation.from_clients takes data per client"
        )
    if not isinstance(first, tuple | list) or len(first) != 2:
        raise InputError(
            f"{name}: its items are {type(first).__name__}; pairs (x, y) or rows with columns are wanted"
        )
    return Table(
        _stack([row[0] for row in rows], name), _names([row[1] for row in rows], f"{name}: label")
    )


def _column(row: dict[str, Any], known: tuple[str, ...], name: str) -> str:
    found = next((column for column in known if column in row), None)
    if found is None:
        raise InputError(
            f"{name}: has columns {', '.join(row)}; one of {', '.join(known)} is wanted"
        )
    return found


def _class_names(dataset: Any, column: str) -> Sequence[str] | None:
    """Return what Hugging Face's ClassLabel calls the classes."""
    features = getattr(dataset, "features", None)
    return getattr(features.get(column), "names", None) if isinstance(features, Mapping) else None


def _names(values: list[Any], name: str) -> NDArray[Any]:
    """Take one whole number or word from every row."""
    found = [v.item() if hasattr(v, "item") and math.prod(v.shape) == 1 else v for v in values]
    for row, value in enumerate(found):
        if not isinstance(value, str | int | float) or isinstance(value, str) != isinstance(
            found[0], str
        ):
            shown = (
                f"an array of shape {tuple(value.shape)}"
                if hasattr(value, "shape")
                else reprlib.repr(value)
            )
            raise InputError(
                f"{name} of row {row} is {shown}; whole numbers or words, one in each row, are wanted"
            )
    return as_names(found, len(found), name)


def _stack(values: list[Any], name: str) -> Tensor:
    pillow = sys.modules.get("PIL.Image")  # an image comes from a Pillow that is imported
    if pillow is not None and all(isinstance(v, pillow.Image) for v in values):
        arrays, ordered = _pictures(values, name), True
    elif all(isinstance(v, Tensor) for v in values):
        arrays, ordered = values, True  # as torch has it: channels first
    else:
        arrays, ordered = [np.asarray(v) for v in values], False
    shapes = {tuple(a.shape) for a in arrays}
    if len(shapes) > 1:
        one, other, *_ = sorted(shapes)
        raise InputError(
            f"{name}: samples of different shapes, such as {one} and {other}; bring them to one size first"
        )
    stacked = torch.stack(arrays) if isinstance(arrays[0], Tensor) else np.stack(arrays)
    return as_tensor(stacked, name, ordered=ordered)


def _pictures(images: list[Any], name: str) -> list[NDArray[Any]]:
    """Return one channel if all images are grey, else three."""
    eight_bit = []
    for row, image in enumerate(images):
        try:
            eight_bit.append(plain(image))
        except (ValueError, OSError) as error:
            raise InputError(f"{name}: the image of row {row} cannot be used ({error})") from error
    if all(image.mode == "L" for image in eight_bit):
        return [np.asarray(image)[None] for image in eight_bit]
    return [np.asarray(image.convert("RGB")).transpose(2, 0, 1) for image in eight_bit]
