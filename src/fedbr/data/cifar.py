"""CIFAR-10 and CIFAR-100 (Krizhevsky, 2009): images of 32 x 32 pixels, from the official binary version."""

from __future__ import annotations

import numpy as np
import torch

from ..core.data import Augment, Samples
from .archives import Tree
from .federation import Source
from .place import opened
from .readers import read_cifar

# Mean and standard deviation of the training images' channels, from 0 to 1.
MOMENTS_10 = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
MOMENTS_100 = (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)


def load10(path: str) -> Source:
    """Read the five training batches and the test batch."""
    with opened(path, "cifar10", "cifar-10-") as tree:
        train, test = (
            _samples(tree, names, 1, (9,), MOMENTS_10)
            for names in ([f"data_batch_{i}.bin" for i in range(1, 6)], ["test_batch.bin"])
        )
    return Source(train, test, num_classes=10, peak=255.0)


def load100(path: str) -> Source:
    """Read the fine labels; training images are cropped and mirrored at random whenever they are drawn."""
    with opened(path, "cifar100", "cifar-100-") as tree:
        train = _samples(tree, ["train.bin"], 2, (19, 99), MOMENTS_100, Augment(pad=4, flip=True))
        test = _samples(tree, ["test.bin"], 2, (19, 99), MOMENTS_100)
    return Source(train, test, num_classes=100, peak=255.0)


def _samples(
    tree: Tree,
    names: list[str],
    label_bytes: int,
    maximum: tuple[int, ...],
    moments: tuple[tuple[float, ...], tuple[float, ...]],
    augment: Augment | None = None,
) -> Samples:
    found = [tree.need(name) for name in names]
    read = [read_cifar(name, tree.read(name), label_bytes, maximum) for name in found]
    x, y = (torch.from_numpy(np.concatenate([part[i] for part in read])) for i in (0, 1))
    mean, spread = (torch.tensor(values).view(3, 1, 1) for values in moments)
    return Samples(x, y[:, -1].long(), scale=1 / (255 * spread), shift=-mean / spread, augment=augment)
