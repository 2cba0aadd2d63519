"""Data sets and how they are split over clients: which samples there are, and who has which.

To add a data set: a file in ``sources/`` that reads it, with a ``Dataset``, and a line in DATASETS.
What models make of the samples lives elsewhere; nothing here trains, tests or sends anything.
"""

from __future__ import annotations

from ..util.errors import unknown
from . import proxy
from .dataset import Dataset
from .federation import Federation, split
from .holdout import for_tuning
from .options import DataOptions
from .partition import PARTITIONS, PartitionOptions
from .sources import cifar, digits, folder, mnist, npz, pacs
from .transforms import shrink

__all__ = [
    "DATASETS",
    "PARTITIONS",
    "DataOptions",
    "Dataset",
    "Federation",
    "PartitionOptions",
    "load",
]

DATASETS: dict[str, Dataset] = {
    "digits": digits.DIGITS,
    "rotated-digits": digits.ROTATED,
    "rotated-mnist": mnist.ROTATED,
    "rotated-cifar10": cifar.ROTATED_10,
    "clean-cifar10": cifar.CLEAN_10,
    "cifar100": cifar.CIFAR100,
    "pacs": pacs.PACS,
    "npz": npz.NPZ,
    "folder": folder.FOLDER,
}


def load(options: DataOptions, seed: int) -> Federation:
    """Make the federation of a recipe.

    Args:
        options: the recipe's section [data].
        seed: of the split; the same one gives the same clients on every machine.

    Raises:
        InputError: a name is unknown, files are not there or damaged, or options do not fit.

    >>> load(DataOptions(name="digits", clients=5, partition="iid"), seed=0)
    Federation(5 clients, 1438 samples of shape (1, 8, 8))
    """
    if options.name not in DATASETS:
        raise unknown("data.name", options.name, DATASETS)
    dataset = DATASETS[options.name]
    source = shrink(dataset.load(options), options.shrink)
    if options.holdout:
        source = for_tuning(source, options.holdout, seed)
    partition = options.partition or dataset.partition
    partition_options = PartitionOptions(options.alpha, options.shards_per_client)
    public = proxy.load(options.proxy, source)
    federation = split(source, options.clients, partition, partition_options, seed, public)
    return dataset.arrange(federation, options, seed)
