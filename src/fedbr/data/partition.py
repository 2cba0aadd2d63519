"""Divide the training samples among the clients: disjoint, complete, nobody left empty."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..util.errors import InputError, unknown

Labels = npt.NDArray[np.integer[Any]]
Indices = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class PartitionOptions(NamedTuple):
    """The options of the partitioners; each one reads only what it needs."""

    alpha: float = 0.1
    shards_per_client: int = 2
    owner: Indices | None = None  # the natural client of each sample


Partitioner = Callable[[Labels, int, np.random.Generator, PartitionOptions], list[Indices]]


def _check_alpha(alpha: object) -> None:
    if not isinstance(alpha, int | float) or not math.isfinite(alpha) or alpha <= 0:
        raise InputError(f"data.alpha = {alpha!r}: must be a finite number above 0")


def find_places(values: Labels, count: int) -> list[Indices]:
    """Return where each of the numbers below ``count`` stands.

    >>> [places.tolist() for places in find_places(np.array([1, 0, 1]), 3)]
    [[1], [0, 2], []]
    """
    order = np.argsort(values, kind="stable").astype(np.int64)
    ends = np.cumsum(np.bincount(values, minlength=count))
    return np.split(order, ends)[:-1]  # nothing is behind the last end


def _equal_sizes(total: int, parts: int) -> Indices:
    """Divide a number into whole ones that differ by one at most, the larger ones first."""
    return total // parts + (np.arange(parts) < total % parts).astype(np.int64)


def _cut(order: Indices, sizes: Indices) -> list[Indices]:
    """Give each client the next so many samples of an order."""
    return [np.sort(part) for part in np.split(order, np.cumsum(sizes)[:-1])]


def _shuffle(labels: Labels, rng: np.random.Generator) -> Indices:
    return rng.permutation(len(labels)).astype(np.int64)


def _shuffle_classes(labels: Labels, rng: np.random.Generator) -> Indices:
    """Order the samples class by class, each class at random."""
    order = _shuffle(labels, rng)
    return order[np.argsort(labels[order], kind="stable")]


def _draw_classes(
    size: int, shares: Floats, remaining: Indices, rng: np.random.Generator
) -> Indices:
    """Draw how many samples of each class a client gets, without replacement.

    Args:
        size: samples of the client.
        shares: the probability of each class.
        remaining: samples of each class that nobody has yet.
        rng: the generator of the split.
    """
    # A draw of an exhausted class is a rejected draw, and rejecting is renormalising the shares: so
    # clipping the multinomial and redrawing the excess has the distribution of drawing sample by
    # sample. Excess means that one more class is exhausted, so there are at most as many passes as
    # classes.
    counts = np.zeros_like(remaining)
    while size:
        room = remaining - counts
        classes = np.flatnonzero(room)
        weights = shares[classes]
        if not weights.sum() > 0:  # underflow or NaN
            weights = room[classes].astype(np.float64)
        drawn = rng.multinomial(size, weights / weights.sum())
        accepted = np.minimum(drawn, room[classes])
        counts[classes] += accepted
        size -= int(accepted.sum())
    return counts


def _split_by_dirichlet(
    labels: Labels,
    clients: int,
    rng: np.random.Generator,
    concentration: Callable[[Indices], Floats],
) -> list[Indices]:
    """Draw the class shares of one client after the other, over the classes that are left.

    Args:
        labels: the class of every sample.
        clients: how many there are; all get the same number of samples.
        rng: the generator of the split.
        concentration: of the Dirichlet distribution, from the samples that are left of each class.
    """
    order = _shuffle_classes(labels, rng)
    remaining = np.unique(labels, return_counts=True)[1].astype(np.int64)
    sizes = _equal_sizes(len(labels), clients)
    classes = []  # of every sample, client after client
    for size in sizes:
        shares = np.zeros(len(remaining))
        there = remaining > 0
        shares[there] = rng.dirichlet(concentration(remaining[there]))
        counts = _draw_classes(int(size), shares, remaining, rng)
        remaining = remaining - counts
        classes.append(np.repeat(np.arange(len(counts)), counts))
    by_client = np.empty_like(order)
    by_client[np.argsort(np.concatenate(classes), kind="stable")] = order
    return _cut(by_client, sizes)


def _iid(
    labels: Labels, clients: int, rng: np.random.Generator, options: PartitionOptions
) -> list[Indices]:
    """Deal the samples at random in equal parts."""
    return _cut(_shuffle(labels, rng), _equal_sizes(len(labels), clients))


def _lda(
    labels: Labels, clients: int, rng: np.random.Generator, options: PartitionOptions
) -> list[Indices]:
    """Draw each client's class shares from Dir(alpha) over the classes left; equal sizes."""
    alpha = options.alpha
    _check_alpha(alpha)
    return _split_by_dirichlet(labels, clients, rng, lambda counts: np.full(len(counts), alpha))


def _lda_prior(
    labels: Labels, clients: int, rng: np.random.Generator, options: PartitionOptions
) -> list[Indices]:
    """Draw as lda from Dir(alpha × share of what is left), more skewed (released FedBR code)."""
    alpha = options.alpha
    _check_alpha(alpha)
    return _split_by_dirichlet(labels, clients, rng, lambda counts: alpha * (counts / counts.sum()))


def _classwise(
    labels: Labels, clients: int, rng: np.random.Generator, options: PartitionOptions
) -> list[Indices]:
    """Give each client its own block of classes; share classes only if there are more clients."""
    counts = np.unique(labels, return_counts=True)[1]
    order = _shuffle_classes(labels, rng)
    if clients <= len(counts):
        blocks = np.array_split(counts, clients)
        return _cut(order, np.array([block.sum() for block in blocks]))
    # The smallest class first: what it cannot take is shared by the larger ones, so with at most
    # one client per sample (checked) everybody finds a place.
    sharers = np.zeros_like(counts)
    free = clients
    for done, label in enumerate(np.argsort(counts, kind="stable")):
        sharers[label] = min(int(counts[label]), free // (len(counts) - done))
        free -= int(sharers[label])
    sizes = []
    for count, parts in zip(counts, sharers, strict=True):
        sizes.append(_equal_sizes(int(count), int(parts)))
    return _cut(order, np.concatenate(sizes))


def _shards(
    labels: Labels, clients: int, rng: np.random.Generator, options: PartitionOptions
) -> list[Indices]:
    """Sort by label, cut, and deal shards_per_client shards to each (McMahan et al. 2017)."""
    each = options.shards_per_client
    if not _is_count(each):
        raise InputError(f"data.shards_per_client = {each!r}: must be a whole number of at least 1")
    if clients * each > len(labels):
        raise InputError(
            f"data.shards_per_client = {each}: {clients} clients need {clients * each} shards, "
            f"only {len(labels)} training samples; at most {len(labels) // clients}"
        )
    shards = np.array_split(_shuffle_classes(labels, rng), clients * each)
    parts = []
    for numbers in rng.permutation(len(shards)).reshape(clients, each):
        part = np.concatenate([shards[number] for number in numbers])
        parts.append(np.sort(part))
    return parts


def _quantity(
    labels: Labels, clients: int, rng: np.random.Generator, options: PartitionOptions
) -> list[Indices]:
    """Draw the clients' sizes from Dir(alpha), at least one sample each; labels at random."""
    _check_alpha(options.alpha)
    shares = np.cumsum(rng.dirichlet(np.full(clients, options.alpha)))
    if not shares[-1] > 0:  # underflow or NaN
        shares = np.arange(1.0, clients + 1)
    to_share = len(labels) - clients  # one sample is everybody's
    ends = np.rint(shares / shares[-1] * to_share).astype(np.int64)
    return _cut(_shuffle(labels, rng), 1 + np.diff(ends, prepend=0))


def _domains(
    labels: Labels, clients: int, rng: np.random.Generator, options: PartitionOptions
) -> list[Indices]:
    """Leave every sample with the client that the data name: no split at all."""
    assert options.owner is not None
    return find_places(options.owner, clients)


PARTITIONS: dict[str, Partitioner] = {
    "iid": _iid,
    "lda": _lda,
    "lda-prior": _lda_prior,
    "classwise": _classwise,
    "shards": _shards,
    "quantity": _quantity,
    "domains": _domains,
}
CLIENTS = 10  # where neither the recipe nor the data say how many


def partition(
    name: str,
    labels: Labels,
    clients: int | None,
    rng: np.random.Generator,
    options: PartitionOptions,
) -> list[Indices]:
    """Return the sorted sample indices of each client.

    Args:
        name: in PARTITIONS.
        labels: the class of every sample.
        clients: how many; None: as many as the data name, or 10.
        rng: the generator of the split.
        options: what the partitioner reads.

    Raises:
        InputError: the name is unknown, or the samples cannot be split like this.

    >>> parts = partition("classwise", np.array([0, 1, 0, 1]), 2, np.random.default_rng(0),
    ...                   PartitionOptions())
    >>> [part.tolist() for part in parts]
    [[0, 2], [1, 3]]
    """
    if name not in PARTITIONS:
        raise unknown("data.partition", name, PARTITIONS)
    if clients is not None and not _is_count(clients):
        raise InputError(f"data.clients = {clients!r}: must be a whole number of at least 1")
    if name == "domains":
        clients = _count_owners(clients, options.owner)
    if clients is None:
        clients = CLIENTS
    if clients > len(labels):
        raise InputError(
            f"data.clients = {clients}: only {len(labels)} training samples; at most one client "
            "per sample"
        )
    return PARTITIONS[name](labels, clients, rng, options)


def _is_count(number: object) -> bool:
    """Say whether something is a whole number of at least 1."""
    if isinstance(number, bool) or not isinstance(number, int | np.integer):
        return False
    return int(number) >= 1


def _count_owners(clients: int | None, owner: Indices | None) -> int:
    """Return the number of clients that the data name."""
    if owner is None:
        others = ", ".join(name for name in PARTITIONS if name != "domains")
        raise InputError(f"data.partition = 'domains': these data name no clients; use {others}")
    count = int(owner.max()) + 1
    if clients not in (None, count):
        raise InputError(
            f"data.clients = {clients}: these data name {count} clients; leave it out, or split "
            "otherwise"
        )
    return count


def effective_classes(labels: Labels) -> float:
    """Return exp(entropy) of the class distribution: 1 for one class, K for K equal ones.

    >>> round(effective_classes(np.array([3, 5, 3, 5])), 6)
    2.0
    """
    counts = np.unique(labels, return_counts=True)[1]
    shares = counts / counts.sum()
    return float(np.exp(-(shares * np.log(shares)).sum()))


def split_hash(parts: list[Indices]) -> str:
    """Return 16 hex digits that identify a split on every platform.

    >>> split_hash([np.array([0, 2]), np.array([1])])
    '5898622a490e7300'
    """
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(np.asarray(part).astype("<i8").tobytes())
    return digest.hexdigest()[:16]
