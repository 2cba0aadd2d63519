"""MNIST (LeCun, Cortes, Burges): 60,000 + 10,000 digits of 28 x 28 pixels, from the IDX files."""

from __future__ import annotations

import gzip
import hashlib
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch

from ...core.samples import Samples
from ...util.errors import InputError
from ..dataset import Dataset
from ..files import Tree, open_files
from ..published import Published, RemoteFile
from ..readers import read_idx
from ..source import Source
from ..transforms import turn_clients
from ..unpack import GZIP

CLASSES = [str(digit) for digit in range(10)]


def load(path: str) -> Source:
    """Read the four files, plain or gzip, wherever they lie below the folder."""
    with _open(path) as tree:
        train, test = (_read_part(tree, prefix) for prefix in ("train", "t10k"))
    return Source(train, test, num_classes=10, peak=255.0, class_names=CLASSES)


def _open(path: str) -> AbstractContextManager[Tree]:
    labels = _endings("train", "labels")
    return open_files(path, "mnist", "mnist", lambda tree: tree.find(*labels) is not None)


def _endings(prefix: str, kind: str) -> list[str]:
    """Return how a file may be called: as published, unpacked, or with the dot of some copies."""
    code = {"images": "idx3", "labels": "idx1"}[kind]
    names = []
    for dash in "-.":
        name = f"{prefix}-{kind}{dash}{code}-ubyte"
        names += [name, f"{name}.gz"]
    return names


def _read_part(tree: Tree, prefix: str) -> Samples:
    arrays = []
    for kind, dimensions, maximum in (("images", 3, 255), ("labels", 1, 9)):
        name = tree.need(*_endings(prefix, kind))
        arrays.append(torch.from_numpy(read_idx(name, tree.read(name), dimensions, maximum)))
    images, labels = arrays
    if len(images) != len(labels) or not len(labels) or images.shape[1:] != (28, 28):
        raise InputError(
            f"{tree.path}: {prefix} has images of shape {tuple(images.shape)} and {len(labels)} "
            "labels; expected as many of both, and 28 x 28 pixels"
        )
    return Samples(images.unsqueeze(1), labels.long(), scale=1 / 255)


@dataclass(frozen=True)
class PublishedMnist(Published):
    """Four files, known by what they hold: copies are compressed in many ways."""

    def compare(self, path: str) -> bool | None:
        with _open(path) as tree:
            for file in self.files:
                prefix, kind, *_ = file.name.split("-")
                content = tree.read(tree.need(*_endings(prefix, kind)))
                if content.startswith(GZIP):
                    content = gzip.decompress(content)
                if hashlib.md5(content, usedforsecurity=False).hexdigest() != file.content_md5:
                    return False
        return True


def _remote(name: str, size: int, md5: str, content_md5: str) -> RemoteFile:
    mirrors = (
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
    )
    return RemoteFile(name, size, md5, [mirror + name for mirror in mirrors], content_md5)


PUBLISHED = PublishedMnist(
    "mnist",
    files=(
        _remote(
            "train-images-idx3-ubyte.gz",
            size=9_912_422,
            md5="f68b3c2dcbeaaa9fbdd348bbdeb94873",
            content_md5="6bbc9ace898e44ae57da46a324031adb",
        ),
        _remote(
            "train-labels-idx1-ubyte.gz",
            size=28_881,
            md5="d53e105ee54ea40749a09fcbcd1e9432",
            content_md5="a25bea736e30d166cdddb491f175f624",
        ),
        _remote(
            "t10k-images-idx3-ubyte.gz",
            size=1_648_877,
            md5="9fb629c4189551a2d022fa330f9573f3",
            content_md5="2646ac647ad5339dbf082846283269ea",
        ),
        _remote(
            "t10k-labels-idx1-ubyte.gz",
            size=4_542,
            md5="ec29112dd5afa0611ce80d1b7f02629c",
            content_md5="27ae3e4e09519cfbb04c329615203637",
        ),
    ),
    records=(60_000, 10_000),
)

ROTATED = Dataset(
    summary="MNIST; client i and its test set are rotated by 15 * i degrees",
    load=lambda options: load(options.path),
    arrange=turn_clients,
    published=PUBLISHED,
    uses=frozenset({"path"}),
    paper="LeCun, Bottou, Bengio, Haffner. Gradient-Based Learning Applied to Document "
    "Recognition, 1998",
)
