"""MNIST (LeCun, Cortes, Burges): 60,000 + 10,000 digits of 28 x 28 pixels, from the official IDX files."""

from __future__ import annotations

import torch

from ..core.data import Samples
from ..core.errors import InputError
from .archives import Tree
from .federation import Source
from .place import opened
from .readers import read_idx

PARTS = {"train": "train", "test": "t10k"}  # ours -> as the files are named


def load(path: str) -> Source:
    """Read the four files, plain or gzip, wherever they lie below the folder."""
    with opened(path, "mnist", "mnist") as tree:
        train, test = (_part(tree, prefix) for prefix in PARTS.values())
    return Source(train, test, num_classes=10, peak=255.0)


def _part(tree: Tree, prefix: str) -> Samples:
    arrays = []
    for kind, dimensions in (("images", 3), ("labels", 1)):
        stems = [f"{prefix}-{kind}-idx{dimensions}-ubyte", f"{prefix}-{kind}.idx{dimensions}-ubyte"]
        name = tree.need(*(stem + ending for stem in stems for ending in ("", ".gz")))
        arrays.append(torch.from_numpy(read_idx(name, tree.read(name), dimensions)))
    images, labels = arrays
    if len(images) != len(labels) or not len(labels) or images.shape[1:] != (28, 28) or int(labels.max()) > 9:
        raise InputError(
            f"{tree.path}: {prefix} has images of shape {tuple(images.shape)} and {len(labels)} labels up to "
            f"{int(labels.max()) if len(labels) else '-'}; as many of both, 28 x 28 and classes 0 to 9 are expected"
        )
    return Samples(images.unsqueeze(1), labels.long(), scale=1 / 255)
