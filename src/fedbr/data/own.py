"""The user's own data from files: an .npz with arrays, or folders of images."""

from __future__ import annotations

import zipfile
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..core.data import Samples
from ..core.errors import InputError
from ..core.rng import stream
from .archives import Tree
from .cache import cached
from .datasets import channels_first
from .federation import Source, check_alike, chosen
from .place import opened
from .readers import class_folders, read_images

TEST_SHARE = 0.2  # of every class and client, where there is no test set


def npz(path: str) -> Source:
    """Read x, y and perhaps x_test, y_test, client (of each training sample) from an .npz file."""
    arrays = _arrays(path)
    for key in ("x", "y"):
        if key not in arrays:
            raise InputError(f"data.path = {path!r}: has no array {key!r}, only {', '.join(arrays) or 'none'}")
    if ("x_test" in arrays) != ("y_test" in arrays):
        raise InputError(f"data.path = {path!r}: x_test and y_test go together")
    x, y = channels_first(arrays["x"]), arrays["y"]
    owner = arrays.get("client")
    for key, other in (("y", y), ("client", owner)):
        if other is not None and (other.ndim != 1 or len(other) != len(x)):
            raise InputError(
                f"data.path = {path!r}: {key} has shape {other.shape}; one value for each of {len(x)} samples"
            )
    names, classes = np.unique(_names(y, "y", path), return_inverse=True)
    owners = None if owner is None else np.unique(_names(owner, "client", path), return_inverse=True)[1]
    if "x_test" in arrays:
        y_test = _names(arrays["y_test"], "y_test", path)
        if len(strangers := np.setdiff1d(y_test, names)):
            raise InputError(f"data.path = {path!r}: y_test has {strangers[0]!r}, which y lacks")
        train = _samples(x, classes, path)
        test = _samples(channels_first(arrays["x_test"]), np.searchsorted(names, y_test), path)
        check_alike(test, train, "x_test", "x")
        return Source(train, test, len(names), _peak(x), owners)
    return _held_out(_samples(x, classes, path), len(names), _peak(x), owners)


def folder(path: str, size: int) -> Source:
    """Read <class>/<image> or <client>/<class>/<image>, in a folder or in an archive."""
    if not path:
        raise InputError("data.path = '': name the folder (or archive) with the images")
    with opened(path, "folder", "") as tree:
        found = class_folders(tree.names)
        if not found.items:
            raise InputError(f"data.path = {path!r}: has no images in class folders")
        x = decoded(tree, [item.name for item in found.items], size)
    y = np.array([found.classes.index(item.label) for item in found.items])
    owner = np.array([found.clients.index(item.client or "") for item in found.items]) if found.clients else None
    return _held_out(_samples(x, y, path), len(found.classes), 255.0, owner)


def decoded(tree: Tree, names: list[str], size: int) -> NDArray[np.uint8]:
    """Decode images to [n, 3, size, size]; the result is kept on disk for the next time."""
    contents = (part for name in names for part in (name, tree.read(name)))
    return cached(chain([f"images {size}"], contents), lambda: {"x": read_images(tree, names, size)})["x"]


def _arrays(path: str) -> dict[str, np.ndarray[Any, Any]]:
    if not path:
        raise InputError("data.path = '': name the .npz file")
    try:
        file = np.load(Path(path).expanduser(), allow_pickle=False)
        if isinstance(file, np.ndarray):
            raise InputError(f"data.path = {path!r}: a single array; an .npz with x and y is wanted")
        with file:
            return {key: file[key] for key in file.files}
    except OSError as error:
        raise InputError(f"data.path = {path!r}: cannot read it ({error.strerror or error})") from error
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        why = "it holds Python objects; save labels as y.astype(str)" if "llow_pickle" in str(error) else str(error)
        raise InputError(f"data.path = {path!r}: not an .npz of plain arrays ({why})") from error


def _names(values: np.ndarray[Any, Any], key: str, path: str) -> np.ndarray[Any, Any]:
    """Accept whole numbers and words as names of classes and clients."""
    if values.dtype.kind == "f":
        whole = np.isfinite(values) & (values == np.round(values))
        if not whole.all():
            raise InputError(f"data.path = {path!r}: {key} has {values[~whole][0]}; whole numbers or words are wanted")
    elif values.dtype.kind not in "iubUS":
        raise InputError(f"data.path = {path!r}: {key} is of type {values.dtype}; whole numbers or words are wanted")
    return values


def _samples(x: np.ndarray[Any, Any], classes: np.ndarray[Any, Any], path: str) -> Samples:
    if x.dtype != np.uint8 and x.dtype.kind != "f":
        raise InputError(f"data.path = {path!r}: samples of type {x.dtype}; bytes (pixels) or floats are wanted")
    if x.dtype.kind == "f" and not np.isfinite(x).all():
        raise InputError(f"data.path = {path!r}: some samples are not finite")
    if len(x) != len(classes) or not len(x):
        raise InputError(
            f"data.path = {path!r}: {len(x)} samples and {len(classes)} labels; one each, and at least one"
        )
    scale = 1 / 255 if x.dtype == np.uint8 else 1.0
    return Samples(torch.from_numpy(np.ascontiguousarray(x)), torch.from_numpy(classes.astype(np.int64)), scale=scale)


def _peak(x: np.ndarray[Any, Any]) -> float:
    return 255.0 if x.dtype == np.uint8 else 1.0


def _held_out(samples: Samples, num_classes: int, peak: float, owner: np.ndarray[Any, Any] | None) -> Source:
    """Hold out a share of every class (and client) for testing: the same for every seed."""
    groups = samples.y.numpy() + (0 if owner is None else num_classes * owner)
    held = chosen(groups, TEST_SHARE, stream(0, "own", "test"))
    if held.sum() == 0:
        raise InputError(f"data: {len(samples)} samples are too few to hold some out for testing; give a test set")
    owners = (None, None) if owner is None else (owner[~held], owner[held])
    return Source(samples.only(~held), samples.only(held), num_classes, peak, *owners)
