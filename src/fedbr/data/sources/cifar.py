"""CIFAR-10 and CIFAR-100 (Krizhevsky, 2009): images of 32 x 32 pixels, from the official binary
version.
"""

from __future__ import annotations

import re
from contextlib import AbstractContextManager

import numpy as np
import torch

from ...core.samples import Augment, Samples
from ...util.errors import InputError
from ..archives import Tree
from ..federation import Source
from ..place import opened
from ..readers import Bytes, read_cifar

# Mean and standard deviation of the training images' channels, from 0 to 1.
MOMENTS_10 = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
MOMENTS_100 = (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)
FIRST = {"cifar10": "data_batch_1.bin", "cifar100": "train.bin"}  # by which the files are known
NAMES_10 = [
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
]
OTHERS = {
    1: "cifar-10-(batches-py|batches-mat|python|matlab)",
    2: "cifar-100-(python|matlab)",
}  # by label bytes


def load10(path: str) -> Source:
    """Read the five training batches and the test batch."""
    batches = [f"data_batch_{i}.bin" for i in range(1, 6)]
    with files(path, "cifar10") as tree:
        train, test = (
            _samples(tree, names, 1, (9,), MOMENTS_10) for names in (batches, ["test_batch.bin"])
        )
        names = _class_names(tree, FIRST["cifar10"], "batches.meta.txt", 10) or NAMES_10
    return Source(train, test, num_classes=10, peak=255.0, class_names=names)


def load100(path: str) -> Source:
    """Read the fine labels; training images are cropped and mirrored at random whenever they are
    drawn.
    """
    with files(path, "cifar100") as tree:
        train = _samples(tree, ["train.bin"], 2, (19, 99), MOMENTS_100, Augment(pad=4, flip=True))
        test = _samples(tree, ["test.bin"], 2, (19, 99), MOMENTS_100)
        names = _class_names(tree, FIRST["cifar100"], "fine_label_names.txt", 100)
    return Source(train, test, num_classes=100, peak=255.0, class_names=names)


def files(path: str, name: str) -> AbstractContextManager[Tree]:
    """Open the place where they lie."""
    return opened(
        path,
        name,
        name.replace("cifar", "cifar-") + "-",
        lambda tree: tree.find(FIRST[name]) is not None,
    )


def _samples(
    tree: Tree,
    names: list[str],
    label_bytes: int,
    maximum: tuple[int, ...],
    moments: tuple[tuple[float, ...], tuple[float, ...]],
    augment: Augment | None = None,
) -> Samples:
    read = [_read(tree, name, label_bytes, maximum) for name in names]
    x, y = (torch.from_numpy(np.concatenate([part[i] for part in read])) for i in (0, 1))
    mean, spread = (torch.tensor(values).view(3, 1, 1) for values in moments)
    return Samples(
        x, y[:, -1].long(), scale=1 / (255 * spread), shift=-mean / spread, augment=augment
    )


def _read(
    tree: Tree, ending: str, label_bytes: int, maximum: tuple[int, ...]
) -> tuple[Bytes, Bytes]:
    name = tree.find(ending)
    if name is None and (
        other := re.search(OTHERS[label_bytes], " ".join(tree.names), re.IGNORECASE)
    ):
        raise InputError(
            f"{tree.path}: has no {ending}, only {other[0]}; the binary version is wanted"
        )
    name = name or tree.need(ending)
    content = tree.read(name)
    if not content:
        raise InputError(f"{name}: is empty")
    return read_cifar(name, content, label_bytes, maximum)


def _class_names(tree: Tree, first: str, ending: str, count: int) -> list[str] | None:
    """Read the names of the classes, if they lie beside the records."""
    name = tree.need(first).removesuffix(first) + ending
    if name not in (
        tree.names if "!/" in name else tree.files
    ):  # an archive that lies there too stays closed
        return None
    names = tree.read(name).decode("utf-8", "replace").split()
    return names if len(names) == count else None
