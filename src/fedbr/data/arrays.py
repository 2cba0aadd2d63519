"""Arrays that users bring: one check for all of them, and the form in which samples are stored."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..core.samples import Index, Samples
from ..util.errors import InputError

PIXELS = (torch.uint8,)
FLOATS = (torch.float16, torch.float32, torch.float64)


def as_tensor(x: Any, name: str, *, ordered: bool = False) -> Tensor:
    """Check samples that a user brings, bytes or floats, [samples, ...].

    Args:
        x: the samples.
        name: of the samples, for messages.
        ordered: whether images have their channels first; if not, these are put there.

    Raises:
        InputError: they are of another type, or have no values.
    """
    tensor = _native(x, name)
    if tensor.dim() < 2 or 0 in tensor.shape[1:]:
        raise InputError(
            f"{name}: shape {tuple(tensor.shape)}; expected samples with one value or more each"
        )
    if tensor.dtype in FLOATS and not torch.isfinite(tensor).all():
        raise InputError(f"{name}: some samples are not finite")
    if tensor.dtype == torch.uint8 and tensor.dim() == 3:
        return tensor.unsqueeze(1)
    return tensor if ordered else channels_first(tensor, name)


def _native(x: Any, name: str) -> Tensor:
    if isinstance(x, Tensor):
        tensor = x.detach().cpu()
        if tensor.is_floating_point() and tensor.dtype not in FLOATS:
            tensor = tensor.float()
        if tensor.dtype not in PIXELS + FLOATS:
            raise InputError(
                f"{name}: samples of type {tensor.dtype}; expected bytes (pixels) or floats"
            )
        return tensor
    array = _array(x, name)
    if array.dtype.kind == "f":
        dtype = array.dtype.newbyteorder("=")
        if array.dtype.itemsize > 8:  # torch has none that is longer
            dtype = np.dtype(np.float64)
        array = array.astype(dtype, copy=False)
    elif array.dtype != np.uint8:
        raise InputError(
            f"{name}: samples of type {array.dtype}; expected bytes (pixels) or floats"
        )
    return torch.from_numpy(np.asarray(array, order="C"))  # torch takes no negative strides


def _array(values: Any, name: str) -> NDArray[Any]:
    try:
        if isinstance(values, Tensor):
            values = values.detach().cpu()
        return np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(
            f"{name}: not an array of numbers ({' '.join(str(error).split())})"
        ) from error


def channels_first(x: Tensor, name: str) -> Tensor:
    """Put channels first where images have them last; in doubt, they stay as they are.

    >>> channels_first(torch.zeros(2, 8, 8, 3), "x").shape
    torch.Size([2, 3, 8, 8])
    """
    if x.dim() != 4 or x.shape[1] in (1, 3):
        return x
    if x.shape[-1] in (1, 3):
        return x.movedim(-1, 1).contiguous()
    if x.dtype == torch.uint8 and x.shape[-1] in (2, 4) and x.shape[1] > x.shape[-1]:
        raise InputError(
            f"{name}: images of shape {tuple(x.shape[1:])}; expected 1 or 3 channels: "
            f"without alpha, x[..., :{x.shape[-1] - 1}]"
        )
    return x


def as_samples(x: Tensor, classes: Index, name: str, least: int = 1) -> Samples:
    """Join samples and their classes; the model sees bytes from 0 to 1."""
    if len(x) != len(classes) or len(x) < least:
        raise InputError(
            f"{name}: {len(x)} samples and {len(classes)} labels; expected one label for each, and "
            "at least one"
        )
    scale = 1 / 255 if x.dtype == torch.uint8 else 1.0
    return Samples(x, torch.from_numpy(classes.astype(np.int64)), scale)


def as_classes(y: Any, name: str) -> Index:
    """Check the numbers of classes, one for each sample."""
    labels = _array(y, name)
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise InputError(
            f"{name}: type {labels.dtype}, shape {labels.shape}; expected whole numbers from 0, "
            "one for each sample"
        )
    classes: Index = labels.astype(np.int64)
    if len(classes) and classes.min() < 0:
        raise InputError(f"{name}: has {classes.min()}; expected whole numbers from 0")
    return classes


def as_names(values: Any, count: int, name: str) -> NDArray[Any]:
    """Check the names of classes or clients, whole numbers or words, one for each sample."""
    names = _array(values, name)
    if names.shape != (count,):
        raise InputError(
            f"{name} has shape {names.shape}; expected one value for each of {count} samples"
        )
    if names.dtype.kind == "f":
        whole = np.isfinite(names) & (names == np.round(names)) & (np.abs(names) < 2**53)
        if not whole.all():
            raise InputError(f"{name} has {names[~whole][0]}; expected whole numbers or words")
        return names.astype(np.int64)
    if names.dtype.kind == "b":
        return names.astype(np.int64)
    if names.dtype.kind == "S":
        return np.char.decode(names, "utf-8", "backslashreplace")
    if names.dtype.kind not in "iuU":
        raise InputError(f"{name} is of type {names.dtype}; expected whole numbers or words")
    return names


def find_numbers(values: NDArray[Any], names: NDArray[Any], name: str, other: str) -> Index:
    """Return the place of every value among the sorted names; refuse one that is not there."""
    if (values.dtype.kind == "U") != (names.dtype.kind == "U"):
        raise InputError(
            f"{name} is of type {values.dtype}, {other} of {names.dtype}; expected numbers or "
            "words, but the same"
        )
    unknown = np.setdiff1d(values, names).tolist()
    if unknown:
        raise InputError(f"{name} has {unknown[0]!r}, which {other} lacks")
    return np.searchsorted(names, values)


def printable_names(names: NDArray[Any]) -> list[str] | None:
    """Return names in print; None if they are the numbers from 0.

    >>> printable_names(np.array([3, 5])), printable_names(np.array([0, 1]))
    (['3', '5'], None)
    """
    if names.dtype.kind != "U" and np.array_equal(names, np.arange(len(names))):
        return None
    return [str(name) for name in names.tolist()]


def read_pair(x: Any, y: Any, name: str, labels: str, least: int = 1) -> Samples:
    """Read samples and their classes as users give them.

    Args:
        x: the samples.
        y: the classes.
        name: of the samples, for messages.
        labels: of the classes, for messages.
        least: how many samples there must be.
    """
    return as_samples(as_tensor(x, name), as_classes(y, labels), name, least)


def as_pairs(values: Any, name: str) -> list[tuple[Any, Any]]:
    """List what must be pairs (x, y)."""
    pairs = list(values) if isinstance(values, Iterable) else [values]
    for pair in pairs:
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise InputError(f"{name}: {type(pair).__name__} where a pair (x, y) is expected")
    return pairs


def join(by_client: Sequence[Samples]) -> tuple[Samples, dict[int, Index]]:
    """Put the samples of all clients together.

    Returns:
        The samples, and where those of each client are.

    >>> some = Samples(torch.zeros(2, 3), torch.tensor([0, 1]))
    >>> together, parts = join([some, some])
    >>> len(together), parts[1].tolist()
    (4, [2, 3])
    """
    x = torch.cat([samples.x for samples in by_client])
    y = torch.cat([samples.y for samples in by_client])
    parts: dict[int, Index] = {}
    start = 0
    for client, samples in enumerate(by_client):
        parts[client] = np.arange(start, start + len(samples))
        start += len(samples)
    return replace(by_client[0], x=x, y=y), parts


def read_proxy(proxy: Any, train: Samples) -> Samples | None:
    """Read public samples, which must be like those that are trained on."""
    if proxy is None:
        return None
    x = as_tensor(proxy, "proxy")
    public = replace(train, x=x, y=torch.zeros(len(x), dtype=torch.long))
    check_alike(public, train, "proxy", "x")
    return public


def peak(samples: Samples) -> float:
    """Return the stored value of a white pixel."""
    return 255.0 if samples.x.dtype == torch.uint8 else 1.0


def check_alike(a: Samples, b: Samples, name: str, other: str) -> None:
    """Refuse samples of another shape or type."""
    if a.x.shape[1:] != b.x.shape[1:] or a.x.dtype != b.x.dtype:
        raise InputError(
            f"{name}: samples of shape {tuple(a.x.shape[1:])} and type {a.x.dtype}; "
            f"those of {other} have {tuple(b.x.shape[1:])} and {b.x.dtype}"
        )


def count_classes(*samples: Samples) -> int:
    """Return the largest class and one; refuse labels that are no numbering."""
    labels = torch.cat([some.y for some in samples])
    count, distinct = int(labels.max()) + 1, len(torch.unique(labels))
    if count > 100 + 10 * distinct:
        raise InputError(
            f"labels: only {distinct} different ones, but up to {count - 1}; number the classes "
            "from 0"
        )
    trained = torch.unique(samples[0].y)
    if len(trained) < count:
        missing = sorted(set(range(count)) - set(trained.tolist()))
        listed = ", ".join(map(str, missing[:5])) + (", ..." if len(missing) > 5 else "")
        warnings.warn(
            f"labels: {len(missing)} of {count} classes without a training sample ({listed}); the "
            "model has an output for each, and classes are numbered from 0",
            RuntimeWarning,
            stacklevel=3,
        )
    if len(trained) > max(20, len(samples[0]) / 3):
        warnings.warn(
            f"labels: {len(trained)} classes among {len(samples[0])} training samples; are these "
            "quantities? fedbr trains classifiers only",
            RuntimeWarning,
            stacklevel=3,
        )
    return count
