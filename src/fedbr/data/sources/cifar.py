"""CIFAR-10 and CIFAR-100 (Krizhevsky, 2009): images of 32 x 32 pixels, from the binary version."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np
import torch

from ...core.samples import Augment, Samples
from ...util.errors import InputError
from ..dataset import Dataset
from ..files import Tree, open_files
from ..published import Published, RemoteFile, md5_of
from ..readers import Bytes, read_cifar
from ..source import Source
from ..transforms import turn_images

CLASSES_10 = (
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
)


@dataclass(frozen=True)
class Version:
    """What differs between CIFAR-10 and CIFAR-100."""

    name: str
    train: Sequence[str]  # names of files
    test: str
    largest: tuple[int, ...]  # label, for each byte of labels; the last one is the class
    mean: tuple[float, ...]  # of the training images' channels, from 0 to 1
    spread: tuple[float, ...]  # their standard deviation
    names: str  # file with the names of the classes
    others: str  # other versions, which cannot be read


TEN = Version(
    "cifar10",
    train=[f"data_batch_{i}.bin" for i in range(1, 6)],
    test="test_batch.bin",
    largest=(9,),
    mean=(0.4914, 0.4822, 0.4465),
    spread=(0.2470, 0.2435, 0.2616),
    names="batches.meta.txt",
    others="cifar-10-(batches-py|batches-mat|python|matlab)",
)
HUNDRED = Version(
    "cifar100",
    train=["train.bin"],
    test="test.bin",
    largest=(19, 99),
    mean=(0.5071, 0.4865, 0.4409),
    spread=(0.2673, 0.2564, 0.2762),
    names="fine_label_names.txt",
    others="cifar-100-(python|matlab)",
)


def load10(path: str) -> Source:
    """Read the five training batches and the test batch."""
    with _open(path, TEN) as tree:
        train = _read_samples(tree, TEN, TEN.train)
        test = _read_samples(tree, TEN, [TEN.test])
        names = _read_names(tree, TEN, 10) or CLASSES_10
    return Source(train, test, num_classes=10, peak=255.0, class_names=names)


def load100(path: str) -> Source:
    """Read the fine labels; training images are cropped and mirrored whenever they are drawn."""
    with _open(path, HUNDRED) as tree:
        train = _read_samples(tree, HUNDRED, HUNDRED.train, Augment(pad=4, flip=True))
        test = _read_samples(tree, HUNDRED, [HUNDRED.test])
        names = _read_names(tree, HUNDRED, 100)
    return Source(train, test, num_classes=100, peak=255.0, class_names=names)


def _open(path: str, version: Version) -> AbstractContextManager[Tree]:
    hint = version.name.replace("cifar", "cifar-") + "-"
    first = version.train[0]
    return open_files(path, version.name, hint, lambda tree: tree.find(first) is not None)


def _read_samples(
    tree: Tree, version: Version, files: Sequence[str], augment: Augment | None = None
) -> Samples:
    parts = [_read(tree, version, file) for file in files]
    x = torch.from_numpy(np.concatenate([images for images, _ in parts]))
    y = torch.from_numpy(np.concatenate([labels for _, labels in parts]))
    mean, spread = (torch.tensor(v).view(3, 1, 1) for v in (version.mean, version.spread))
    scale, shift = 1 / (255 * spread), -mean / spread
    return Samples(x, y[:, -1].long(), scale, shift, augment)


def _read(tree: Tree, version: Version, file: str) -> tuple[Bytes, Bytes]:
    name = tree.find(file)
    if name is None:
        other = re.search(version.others, " ".join(tree.names), re.IGNORECASE)
        if other:
            raise InputError(
                f"{tree.path}: has no {file}, only {other[0]}; expected the binary version"
            )
        name = tree.need(file)
    content = tree.read(name)
    if not content:
        raise InputError(f"{name}: is empty")
    return read_cifar(name, content, len(version.largest), version.largest)


def _read_names(tree: Tree, version: Version, count: int) -> list[str] | None:
    """Read the names of the classes, if they lie beside the records."""
    first = version.train[0]
    name = tree.need(first).removesuffix(first) + version.names
    # An archive that lies beside the records stays closed.
    if name not in (tree.names if "!/" in name else tree.files):
        return None
    names = tree.read(name).decode("utf-8", "replace").split()
    return names if len(names) == count else None


@dataclass(frozen=True)
class PublishedCifar(Published):
    """One archive."""

    version: Version = TEN

    def compare(self, path: str) -> bool | None:
        with _open(path, self.version) as tree:
            archive, inside, _ = tree.need(self.version.train[0]).partition("!/")
        if not inside:
            return None
        file = tree.path if tree.path.is_file() else tree.path / archive
        return md5_of(file) == self.files[0].md5


def _publish(version: Version, name: str, size: int, md5: str) -> Published:
    file = RemoteFile(name, size, md5, [f"https://www.cs.toronto.edu/~kriz/{name}"])
    return PublishedCifar(version.name, [file], records=(50_000, 10_000), version=version)


PUBLISHED_10 = _publish(
    TEN, "cifar-10-binary.tar.gz", size=170_052_171, md5="c32a1d4ab5d03f1284b67883e8d87530"
)
PUBLISHED_100 = _publish(
    HUNDRED, "cifar-100-binary.tar.gz", size=168_513_733, md5="03b5dce01913d631647c71ecec9e9cb8"
)
PAPER = "Krizhevsky. Learning Multiple Layers of Features from Tiny Images, 2009"

CLEAN_10 = Dataset(
    summary="CIFAR-10 as it is",
    load=lambda options: load10(options.path),
    published=PUBLISHED_10,
    uses=frozenset({"path"}),
    paper=PAPER,
)
ROTATED_10 = Dataset(
    summary="CIFAR-10; every client has its own mix of ten angles, the test set comes at each of "
    "them",
    load=lambda options: load10(options.path),
    arrange=turn_images,
    published=PUBLISHED_10,
    uses=frozenset({"path", "rotation"}),
    paper=PAPER,
)
CIFAR100 = Dataset(
    summary="CIFAR-100, cropped and mirrored at random whenever an image is drawn",
    load=lambda options: load100(options.path),
    partition="lda",
    published=PUBLISHED_100,
    uses=frozenset({"path"}),
    paper=PAPER,
)
