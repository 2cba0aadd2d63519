"""Arrays of the user's own, from an .npz file."""

from __future__ import annotations

import difflib
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...util.errors import InputError
from ..arrays import (
    as_names,
    as_samples,
    as_tensor,
    check_alike,
    find_numbers,
    peak,
    printable_names,
)
from ..dataset import Dataset
from ..holdout import with_test
from ..source import Source

ARRAYS = ("x", "y", "x_test", "y_test", "client")


def load(path: str) -> Source:
    """Read x, y and perhaps x_test, y_test, client (of each training sample) from an .npz file."""
    where = f"data.path = {path!r}"
    arrays = _read_arrays(path, where)
    x = as_tensor(arrays["x"], f"{where}: x")
    names, y = np.unique(as_names(arrays["y"], len(x), f"{where}: y"), return_inverse=True)
    train = as_samples(x, y, f"{where}: x")
    owner, client_names = None, None
    if "client" in arrays:
        ids = as_names(arrays["client"], len(x), f"{where}: client")
        clients, owner = np.unique(ids, return_inverse=True)
        client_names = [str(name) for name in clients.tolist()]
    if "x_test" not in arrays:
        return with_test(train, len(names), owner, printable_names(names), client_names)
    x_test = as_tensor(arrays["x_test"], f"{where}: x_test")
    labels = as_names(arrays["y_test"], len(x_test), f"{where}: y_test")
    test = as_samples(
        x_test, find_numbers(labels, names, f"{where}: y_test", "y"), f"{where}: x_test"
    )
    check_alike(test, train, f"{where}: x_test", "x")
    return Source(
        train,
        test,
        len(names),
        peak(train),
        owner,
        class_names=printable_names(names),
        client_names=client_names,
    )


def _read_arrays(path: str, where: str) -> dict[str, NDArray[Any]]:
    if not path:
        raise InputError("data.path = '': name the .npz file")
    try:
        file = np.load(Path(path).expanduser(), allow_pickle=False)
        if isinstance(file, np.ndarray):
            raise InputError(f"{where}: a single array; expected an .npz with x and y")
        with file:
            _check_names(file.files, where)
            arrays = {key: file[key] for key in ARRAYS if key in file.files}
    except OSError as error:
        raise InputError(f"{where}: cannot be read ({error.strerror or error})") from error
    except InputError:
        raise
    except (ValueError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(f"{where}: not an .npz of plain arrays ({_reason(error)})") from error
    for key, array in arrays.items():
        if not isinstance(array, np.ndarray):
            raise InputError(
                f"{where}: not an .npz of plain arrays ({key} is not in NumPy's format)"
            )
    return arrays


def _check_names(names: list[str], where: str) -> None:
    """Refuse a file that lacks an array, or seems to misspell one."""
    for name in set(names) - set(ARRAYS):
        close = difflib.get_close_matches(name.lower(), ARRAYS, n=1, cutoff=0.75)
        if close:
            raise InputError(f"{where}: has an array {name!r}; did you mean {close[0]!r}?")
    for key in ("x", "y"):
        if key not in names:
            raise InputError(f"{where}: has no array {key!r}, only {', '.join(names) or 'none'}")
    if ("x_test" in names) != ("y_test" in names):
        raise InputError(f"{where}: x_test and y_test go together")


def _reason(error: Exception) -> str:
    words = str(error)
    if "Object arrays" in words:
        return "it holds Python objects; save labels as y.astype(str)"
    if "llow_pickle" in words:  # what NumPy takes every unknown file for
        return "it is another kind of file"
    return " ".join(words.split())


NPZ = Dataset(
    summary="yours: an .npz with x, y and perhaps x_test, y_test, client",
    load=lambda options: load(options.path),
    uses=frozenset({"path"}),
)
