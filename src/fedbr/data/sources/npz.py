"""The user's own data from files: an .npz with arrays, or folders of images."""

from __future__ import annotations

import difflib
import zipfile
import zlib
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ...core.rng import stream
from ...core.samples import Index, Samples
from ...util.errors import InputError
from ..archives import Tree
from ..arrays import as_names, as_samples, as_tensor, check_alike, numbered, peak, words
from ..cache import cached
from ..federation import Source
from ..holdout import TEST_SHARE, held_out
from ..place import opened
from ..readers import ClassFolders, class_folders, read_images

ARRAYS = ("x", "y", "x_test", "y_test", "client")
TRAIN = {"train", "training"}
TEST = {"test", "testing", "val", "valid", "validation"}


def npz(path: str) -> Source:
    """Read x, y and perhaps x_test, y_test, client (of each training sample) from an .npz file."""
    arrays, where = _arrays(path), f"data.path = {path!r}"
    x = as_tensor(arrays["x"], f"{where}: x")
    names, y = np.unique(as_names(arrays["y"], len(x), f"{where}: y"), return_inverse=True)
    train = as_samples(x, y, f"{where}: x")
    owner, client_names = None, None
    if "client" in arrays:
        clients, owner = np.unique(
            as_names(arrays["client"], len(x), f"{where}: client"), return_inverse=True
        )
        client_names = [str(name) for name in clients.tolist()]
    if "x_test" not in arrays:
        return _held_out(train, len(names), owner, words(names), client_names)
    x_test = as_tensor(arrays["x_test"], f"{where}: x_test")
    y_test = numbered(
        as_names(arrays["y_test"], len(x_test), f"{where}: y_test"), names, f"{where}: y_test", "y"
    )
    test = as_samples(x_test, y_test, f"{where}: x_test")
    check_alike(test, train, f"{where}: x_test", "x")
    return Source(train, test, len(names), peak(train), owner, None, words(names), client_names)


def folder(path: str, size: int) -> Source:
    """Read <class>/<image>, <client>/<class>/<image> or train and test/<class>/<image>, in a folder
    or an archive.
    """
    if not path:
        raise InputError("data.path = '': name the folder (or archive) with the images")
    with opened(path, "folder", "") as tree:
        found = class_folders(tree.files)
        if not found.items:  # an archive beside the folder that came out of it has nothing new
            found = class_folders(tree.names)
        if not found.items:
            raise InputError(f"data.path = {path!r}: has no images in class folders")
        tested = _tested(found, path)
        x = torch.from_numpy(decoded(tree, [item.name for item in found.items], size))
    numbers = {label: number for number, label in enumerate(found.classes)}
    samples = as_samples(x, np.array([numbers[item.label] for item in found.items]), path)
    if tested is not None:
        train, test = samples.only(~tested), samples.only(tested)
        return Source(train, test, len(found.classes), peak(train), class_names=found.classes)
    places = {client: place for place, client in enumerate(found.clients)}
    owner = np.array([places[item.client or ""] for item in found.items]) if places else None
    return _held_out(samples, len(found.classes), owner, found.classes, found.clients or None)


def _tested(found: ClassFolders, path: str) -> NDArray[np.bool_] | None:
    """Say which images are for testing, where the folders are train and test instead of clients."""
    sides = {client.lower() for client in found.clients}
    if not sides <= TRAIN | TEST or not sides & TRAIN or not sides & TEST:
        return None
    if len(found.clients) > 2:
        raise InputError(
            f"data.path = {path!r}: has {', '.join(found.clients)}; train and one of the others are wanted"
        )
    tested = np.array([(item.client or "").lower() in TEST for item in found.items])
    trained = {item.label for item, test in zip(found.items, tested, strict=True) if not test}
    for item in found.items:
        if item.label not in trained:
            raise InputError(
                f"data.path = {path!r}: {item.name} is of class {item.label!r}, which is not trained on"
            )
    return tested


def decoded(tree: Tree, names: list[str], size: int) -> NDArray[np.uint8]:
    """Decode images to [n, 3, size, size]; the result is kept on disk for the next time."""
    contents = (part for name in names for part in (name, tree.read(name)))
    return cached(
        chain([f"upright RGB images {size}"], contents),
        lambda: {"x": read_images(tree, names, size)},
    )["x"]


def _arrays(path: str) -> dict[str, NDArray[Any]]:
    if not path:
        raise InputError("data.path = '': name the .npz file")
    where = f"data.path = {path!r}"
    try:
        file = np.load(Path(path).expanduser(), allow_pickle=False)
        if isinstance(file, np.ndarray):
            raise InputError(f"{where}: a single array; an .npz with x and y is wanted")
        with file:
            arrays = {key: file[key] for key in ARRAYS if key in file.files}
            for stranger in set(file.files) - set(ARRAYS):
                if close := difflib.get_close_matches(stranger.lower(), ARRAYS, n=1, cutoff=0.75):
                    raise InputError(
                        f"{where}: has an array {stranger!r}; did you mean {close[0]!r}?"
                    )
            if missing := [key for key in ("x", "y") if key not in arrays]:
                raise InputError(
                    f"{where}: has no array {missing[0]!r}, only {', '.join(file.files) or 'none'}"
                )
    except OSError as error:
        raise InputError(f"{where}: cannot be read ({error.strerror or error})") from error
    except InputError:
        raise
    except (ValueError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(f"{where}: not an .npz of plain arrays ({_why(str(error))})") from error
    if raw := [key for key, array in arrays.items() if not isinstance(array, np.ndarray)]:
        raise InputError(
            f"{where}: not an .npz of plain arrays ({raw[0]} is not in NumPy's format)"
        )
    if ("x_test" in arrays) != ("y_test" in arrays):
        raise InputError(f"{where}: x_test and y_test go together")
    return arrays


def _why(error: str) -> str:
    if "Object arrays" in error:
        return "it holds Python objects; save labels as y.astype(str)"
    if "llow_pickle" in error:  # what NumPy takes every unknown file for
        return "it is another kind of file"
    return " ".join(error.split())


def _held_out(
    samples: Samples,
    num_classes: int,
    owner: Index | None,
    class_names: list[str] | None,
    client_names: list[str] | None,
) -> Source:
    """Hold out a share of every class (and client) for testing: the same for every seed."""
    held = held_out(samples.y.numpy(), TEST_SHARE, stream(0, "own", "test"), owner)
    if not held.any():
        raise InputError(
            f"data: {len(samples)} samples are too few to hold some out for testing; give a test set"
        )
    train, test = samples.only(~held), samples.only(held)
    owner, test_owner = (None, None) if owner is None else (owner[~held], owner[held])
    return Source(
        train, test, num_classes, peak(samples), owner, test_owner, class_names, client_names
    )
