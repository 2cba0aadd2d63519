"""The data sets: one file each, and the table by which recipes name them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ..core.rng import stream
from ..util.errors import InputError, unknown
from . import proxy
from .federation import Federation, Source, split
from .holdout import held_out
from .options import DataOptions
from .partition import PARTITIONS, PartitionOptions
from .rotation import rotate_clients, rotate_images
from .shrinking import shrunk
from .sources import cifar, digits, mnist, own, pacs

__all__ = [
    "DATASETS",
    "PARTITIONS",
    "DataOptions",
    "Dataset",
    "Federation",
    "PartitionOptions",
    "load",
]


Arrange = Callable[[Federation, DataOptions, int], Federation]


@dataclass(frozen=True)
class Dataset:
    """How to load a data set, and what to do with its clients once it is split."""

    summary: str
    load: Callable[[DataOptions], Source]
    arrange: Arrange = lambda federation, options, seed: federation
    partition: str = "lda-prior"  # where the recipe does not say
    files: str = ""  # what `fedbr data get` calls its files, for those that need files
    uses: frozenset[str] = frozenset()  # options of its own
    paper: str = ""


def _turned(federation: Federation, options: DataOptions, seed: int) -> Federation:
    return rotate_clients(federation, 15.0)


def _spun(federation: Federation, options: DataOptions, seed: int) -> Federation:
    return rotate_images(federation, [15.0 * i for i in range(10)], options.rotation, seed)


PATH = frozenset({"path"})
DIGITS = "Alpaydin, Kaynak. Optical Recognition of Handwritten Digits, UCI 1998"
CIFAR = "Krizhevsky. Learning Multiple Layers of Features from Tiny Images, 2009"
DATASETS: dict[str, Dataset] = {
    "digits": Dataset(
        "1,797 handwritten digits, 8 x 8 pixels; comes with scikit-learn", lambda o: digits.load(), paper=DIGITS
    ),
    "rotated-digits": Dataset(
        "digits; client i and its test set are rotated by 15 * i degrees",
        lambda o: digits.load(), _turned, paper=DIGITS,
    ),
    "rotated-mnist": Dataset(
        "MNIST; client i and its test set are rotated by 15 * i degrees",
        lambda o: mnist.load(o.path), _turned, files="mnist", uses=PATH,
        paper="LeCun, Bottou, Bengio, Haffner. Gradient-Based Learning Applied to Document Recognition, 1998",
    ),
    "rotated-cifar10": Dataset(
        "CIFAR-10; every client has its own mix of ten angles, the test set comes at each of them",
        lambda o: cifar.load10(o.path), _spun, files="cifar10", uses=PATH | {"rotation"}, paper=CIFAR,
    ),
    "clean-cifar10": Dataset(
        "CIFAR-10 as it is", lambda o: cifar.load10(o.path), files="cifar10", uses=PATH, paper=CIFAR
    ),
    "cifar100": Dataset(
        "CIFAR-100, cropped and mirrored at random whenever an image is drawn",
        lambda o: cifar.load100(o.path), partition="lda", files="cifar100", uses=PATH, paper=CIFAR,
    ),
    "pacs": Dataset(
        "PACS, four styles of images in eight clients: each style in two by class",
        lambda o: pacs.load(o.path, o.size, o.unseen), partition="domains", files="pacs",
        uses=PATH | {"size", "unseen"},
        paper="Li, Yang, Song, Hospedales. Deeper, Broader and Artier Domain Generalization, ICCV 2017",
    ),
    "npz": Dataset(
        "yours: an .npz with x, y and perhaps x_test, y_test, client", lambda o: own.npz(o.path), uses=PATH
    ),
    "folder": Dataset(
        "yours: images in class folders, or in client/class folders",
        lambda o: own.folder(o.path, o.size), uses=PATH | {"size"},
    ),
}  # fmt: skip


def load(options: DataOptions, seed: int) -> Federation:
    """Make the federation of a recipe."""
    if options.name not in DATASETS:
        raise unknown("data.name", options.name, DATASETS)
    dataset = DATASETS[options.name]
    source = shrunk(dataset.load(options), options.shrink)
    if options.holdout:
        source = _tuning(source, options.holdout, seed)
    knobs = PartitionOptions(options.alpha, options.shards_per_client)
    name = options.partition or dataset.partition
    clients = split(source, options.clients, name, knobs, seed, proxy.load(options.proxy, source))
    return dataset.arrange(clients, options, seed)


def _tuning(source: Source, share: float, seed: int) -> Source:
    """Test on a share of the training samples, so that the test set stays unseen."""
    held = held_out(source.train.y.numpy(), share, stream(seed, "holdout"), source.owner)
    if not held.any():
        raise InputError(
            f"data.holdout = {share}: leaves nothing to test on, of {len(source.train)} training samples"
        )
    owners = (None, None) if source.owner is None else (source.owner[~held], source.owner[held])
    test = replace(source.train.only(held), augment=None)
    return replace(
        source, train=source.train.only(~held), test=test, owner=owners[0], test_owner=owners[1]
    )
