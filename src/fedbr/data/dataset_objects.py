"""Other people's data set objects: torch data sets, and those of Hugging Face's ``datasets``."""

from __future__ import annotations

import math
import reprlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..util.errors import InputError
from .arrays import (
    as_classes,
    as_names,
    as_samples,
    as_tensor,
    check_alike,
    count_classes,
    find_numbers,
    peak,
    printable_names,
)
from .readers import plain
from .source import Source

SAMPLES = ("image", "img", "x", "features", "pixel_values")
LABELS = ("label", "labels", "y", "fine_label")


class Table(NamedTuple):
    """What is in a data set: samples (images have their channels first), labels and owners.

    Labels and owners are whole numbers or words.
    """

    x: Tensor
    y: NDArray[Any]
    owner: NDArray[Any] | None = None
    class_names: Sequence[str] | None = None


def read_datasets(train: Any, test: Any, owner: str = "") -> Source:
    """Read two data sets, and number their classes and clients.

    Words are numbered in their sorted order; classes that are numbers stay as they are.

    Args:
        owner: a column with the ids of natural clients, which the test set may lack.
    """
    given, tested = read_dataset(train, "train", owner), read_dataset(test, "test", owner, False)
    class_names = given.class_names
    if given.y.dtype.kind == "U":
        names, y = np.unique(given.y, return_inverse=True)
        y_test = find_numbers(tested.y, names, "test: label", "train: label")
        class_names = printable_names(names)
    else:
        y, y_test = as_classes(given.y, "train: label"), as_classes(tested.y, "test: label")
    samples, tests = as_samples(given.x, y, "train"), as_samples(tested.x, y_test, "test")
    check_alike(tests, samples, "test", "train")
    num_classes = max(count_classes(samples, tests), len(class_names or ()))
    if class_names is not None and len(class_names) < num_classes:
        class_names = None
    source = Source(samples, tests, num_classes, peak(samples), class_names=class_names)
    if given.owner is None:
        return source
    ids, owners = np.unique(given.owner, return_inverse=True)
    test_owners = None
    if tested.owner is not None and set(tested.owner.tolist()) <= set(ids.tolist()):
        test_owners = np.searchsorted(ids, tested.owner)
    client_names = [str(name) for name in ids.tolist()]
    return replace(source, owner=owners, test_owner=test_owners, client_names=client_names)


def read_dataset(dataset: Any, name: str, owner: str = "", needed: bool = True) -> Table:
    """Read every row once.

    Args:
        name: how messages call the data set.
        owner: a column with clients' ids.
        needed: whether that column must be there.
    """
    _check_kind(dataset, name)
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
            f"owner = {owner!r}: {name} has no columns; Federation.from_clients takes data per "
            "client"
        )
    if not isinstance(first, tuple | list) or len(first) != 2:
        raise InputError(
            f"{name}: its items are {type(first).__name__}; expected pairs (x, y) or rows with "
            "columns"
        )
    labels = _names([row[1] for row in rows], f"{name}: label")
    return Table(_stack([row[0] for row in rows], name), labels)


def _check_kind(dataset: Any, name: str) -> None:
    """Refuse what is no map-style data set with samples."""
    if isinstance(dataset, Mapping):
        splits = sorted(map(str, dataset), key=lambda split: split != name)
        first = (splits or [name])[0]
        raise InputError(
            f"{name}: holds {', '.join(splits)}; choose a split, such as ds[{first!r}]"
        )
    if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        raise InputError(
            f"{name}: {type(dataset).__name__} has no length or cannot be indexed; expected a "
            "map-style data set"
        )
    if not len(dataset):
        raise InputError(f"{name}: is empty")


def _column(row: dict[str, Any], known: tuple[str, ...], name: str) -> str:
    for column in known:
        if column in row:
            return column
    raise InputError(f"{name}: has columns {', '.join(row)}; expected one of {', '.join(known)}")


def _class_names(dataset: Any, column: str) -> Sequence[str] | None:
    """Return what Hugging Face's ClassLabel calls the classes."""
    features = getattr(dataset, "features", None)
    return getattr(features.get(column), "names", None) if isinstance(features, Mapping) else None


def _names(values: list[Any], name: str) -> NDArray[Any]:
    """Take one whole number or word from every row."""
    plain_values = [_plain_value(value) for value in values]
    are_words = isinstance(plain_values[0], str)
    for row, value in enumerate(plain_values):
        if not isinstance(value, str | int | float) or isinstance(value, str) != are_words:
            shown = reprlib.repr(value)
            if hasattr(value, "shape"):
                shown = f"an array of shape {tuple(value.shape)}"
            raise InputError(
                f"{name} of row {row} is {shown}; expected whole numbers or words, one in each row"
            )
    return as_names(plain_values, len(plain_values), name)


def _plain_value(value: Any) -> Any:
    """Take the number out of an array that has only one."""
    return value.item() if hasattr(value, "item") and math.prod(value.shape) == 1 else value


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
            f"{name}: samples of different shapes, such as {one} and {other}; bring them to one "
            "size first"
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
