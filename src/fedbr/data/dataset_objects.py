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
from .readers import to_eight_bits
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
        train: training samples.
        test: test samples.
        owner: a column with the ids of natural clients, which the test set may lack.

    Raises:
        InputError: rows cannot be read, or do not fit together.
    """
    train_table = read_dataset(train, "train", owner)
    test_table = read_dataset(test, "test", owner, needed=False)
    class_names = train_table.class_names
    if train_table.y.dtype.kind == "U":
        names, y = np.unique(train_table.y, return_inverse=True)
        y_test = find_numbers(test_table.y, names, "test: label", "train: label")
        class_names = printable_names(names)
    else:
        y = as_classes(train_table.y, "train: label")
        y_test = as_classes(test_table.y, "test: label")
    samples = as_samples(train_table.x, y, "train")
    tests = as_samples(test_table.x, y_test, "test")
    check_alike(tests, samples, "test", "train")
    num_classes = max(count_classes(samples, tests), len(class_names or ()))
    if class_names is not None and len(class_names) < num_classes:
        class_names = None
    source = Source(samples, tests, num_classes, peak(samples), class_names=class_names)
    if train_table.owner is None:
        return source
    ids, owners = np.unique(train_table.owner, return_inverse=True)
    test_owners = None
    if test_table.owner is not None and set(test_table.owner.tolist()) <= set(ids.tolist()):
        test_owners = np.searchsorted(ids, test_table.owner)
    client_names = [str(name) for name in ids.tolist()]
    return replace(source, owner=owners, test_owner=test_owners, client_names=client_names)


def read_dataset(dataset: Any, name: str, owner: str = "", needed: bool = True) -> Table:
    """Read every row once.

    Args:
        dataset: of pairs (x, y), or of rows with columns.
        name: of the data set, for messages.
        owner: a column with clients' ids.
        needed: whether that column must be there.

    Raises:
        InputError: it is no map-style data set, or its rows cannot be read.
    """
    _check_kind(dataset, name)
    rows = [dataset[i] for i in range(len(dataset))]
    first = rows[0]
    if isinstance(first, dict):
        x = _find_column(first, SAMPLES, name)
        y = _find_column(first, LABELS, name)
        ids = None
        if owner in first:
            ids = _read_names([row[owner] for row in rows], f"{name}: {owner}")
        elif owner and needed:
            raise InputError(f"{name}: has no column {owner!r}, only {', '.join(first)}")
        labels = _read_names([row[y] for row in rows], f"{name}: {y}")
        samples = _read_samples([row[x] for row in rows], name)
        return Table(samples, labels, ids, _class_names(dataset, y))
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
    labels = _read_names([row[1] for row in rows], f"{name}: label")
    return Table(_read_samples([row[0] for row in rows], name), labels)


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


def _find_column(row: Mapping[str, object], candidates: Sequence[str], name: str) -> str:
    for column in candidates:
        if column in row:
            return column
    raise InputError(
        f"{name}: has columns {', '.join(row)}; expected one of {', '.join(candidates)}"
    )


def _class_names(dataset: Any, column: str) -> Sequence[str] | None:
    """Return what Hugging Face's ClassLabel calls the classes."""
    features = getattr(dataset, "features", None)
    if not isinstance(features, Mapping):
        return None
    return getattr(features.get(column), "names", None)


def _read_names(values: list[Any], name: str) -> NDArray[Any]:
    """Take one whole number or word from every row."""
    names = [_unwrap(value) for value in values]
    are_words = isinstance(names[0], str)
    for row, value in enumerate(names):
        if not isinstance(value, str | int | float) or isinstance(value, str) != are_words:
            shown = reprlib.repr(value)
            if hasattr(value, "shape"):
                shown = f"an array of shape {tuple(value.shape)}"
            raise InputError(
                f"{name} of row {row} is {shown}; expected whole numbers or words, one in each row"
            )
    return as_names(names, len(names), name)


def _unwrap(value: Any) -> Any:
    """Take the number out of an array that has only one."""
    if hasattr(value, "item") and math.prod(value.shape) == 1:
        return value.item()
    return value


def _read_samples(values: list[Any], name: str) -> Tensor:
    """Put the samples of all rows together."""
    ordered = True  # channels first, as torch has them
    pillow = sys.modules.get("PIL.Image")  # an image comes from a Pillow that is imported
    if pillow is not None and all(isinstance(value, pillow.Image) for value in values):
        arrays = _read_pictures(values, name)
    elif all(isinstance(value, Tensor) for value in values):
        arrays = values
    else:
        arrays, ordered = [np.asarray(value) for value in values], False
    shapes = {tuple(array.shape) for array in arrays}
    if len(shapes) > 1:
        one, other, *_ = sorted(shapes)
        raise InputError(
            f"{name}: samples of different shapes, such as {one} and {other}; bring them to one "
            "size first"
        )
    stacked = torch.stack(arrays) if isinstance(arrays[0], Tensor) else np.stack(arrays)
    return as_tensor(stacked, name, ordered=ordered)


def _read_pictures(images: list[Any], name: str) -> list[NDArray[Any]]:
    """Return one channel if all images are grey, else three."""
    eight_bit = []
    for row, image in enumerate(images):
        try:
            eight_bit.append(to_eight_bits(image))
        except (ValueError, OSError) as error:
            raise InputError(f"{name}: the image of row {row} cannot be used ({error})") from error
    if all(image.mode == "L" for image in eight_bit):
        return [np.asarray(image)[None] for image in eight_bit]
    return [np.asarray(image.convert("RGB")).transpose(2, 0, 1) for image in eight_bit]
