"""MNIST (LeCun, Cortes, Burges): 60,000 + 10,000 digits of 28 x 28 pixels, from the official IDX
files.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

import torch

from ...core.samples import Samples
from ...util.errors import InputError
from ..archives import Tree
from ..federation import Source
from ..place import opened
from ..readers import read_idx

DIGITS = [str(digit) for digit in range(10)]


def load(path: str) -> Source:
    """Read the four files, plain or gzip, wherever they lie below the folder."""
    with files(path) as tree:
        train, test = (_part(tree, prefix) for prefix in ("train", "t10k"))
    return Source(train, test, num_classes=10, peak=255.0, class_names=DIGITS)


def files(path: str) -> AbstractContextManager[Tree]:
    """Open the place where they lie."""
    return opened(
        path, "mnist", "mnist", lambda tree: tree.find(*endings("train", "labels")) is not None
    )


def endings(prefix: str, kind: str) -> list[str]:
    """Return how the file of a part may be called: as published, unpacked, or with the dot of some
    copies.
    """
    stem, code = f"{prefix}-{kind}", {"images": "idx3", "labels": "idx1"}[kind]
    return [f"{stem}{dash}{code}-ubyte{ending}" for dash in "-." for ending in ("", ".gz")]


def _part(tree: Tree, prefix: str) -> Samples:
    arrays = []
    for kind, dimensions, maximum in (("images", 3, 255), ("labels", 1, 9)):
        name = tree.need(*endings(prefix, kind))
        arrays.append(torch.from_numpy(read_idx(name, tree.read(name), dimensions, maximum)))
    images, labels = arrays
    if len(images) != len(labels) or not len(labels) or images.shape[1:] != (28, 28):
        raise InputError(
            f"{tree.path}: {prefix} has images of shape {tuple(images.shape)} and {len(labels)} labels; as many of "
            "both, and 28 x 28 pixels are expected"
        )
    return Samples(images.unsqueeze(1), labels.long(), scale=1 / 255)
