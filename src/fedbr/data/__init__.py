"""The data sets: one file each, and the table by which recipes name them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ..core.errors import InputError, unknown
from ..core.rng import stream
from . import digits, proxy
from .federation import Federation, Source, hold_out, rotate_clients, split
from .partition import PARTITIONS, PartitionOptions

__all__ = ["DATASETS", "PARTITIONS", "Dataset", "Federation", "PartitionOptions", "load"]


@dataclass(frozen=True)
class Dataset:
    """How to load a data set, and what to do with its clients once it is split."""

    load: Callable[[], Source]
    summary: str
    arrange: Callable[[Federation], Federation] = lambda federation: federation


DATASETS: dict[str, Dataset] = {
    "digits": Dataset(digits.load, "1,797 handwritten digits, 8 x 8 pixels; comes with scikit-learn"),
    "rotated-digits": Dataset(
        digits.load,
        "digits; client i and its test set are rotated by 15 * i degrees",
        lambda federation: rotate_clients(federation, 15.0),
    ),
}


def load(
    name: str,
    clients: int,
    partition: str,
    options: PartitionOptions,
    proxy_name: str,
    seed: int,
    holdout: float = 0.0,
) -> Federation:
    """Make the federation of a recipe; with ``holdout`` it is tested on that share of the training samples."""
    if name not in DATASETS:
        raise unknown("data.name", name, DATASETS)
    dataset = DATASETS[name]
    source = dataset.load()
    if holdout:
        train, test = hold_out(source.train, holdout, stream(seed, "holdout"))
        if not len(test) or not len(train):
            raise InputError(f"data.holdout = {holdout}: leaves nothing to train or to test on")
        source = replace(source, train=train, test=test)
    return dataset.arrange(split(source, clients, partition, options, seed, proxy.load(proxy_name, source)))
