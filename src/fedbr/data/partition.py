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


def _alpha(options: PartitionOptions) -> float:
    if not (
        isinstance(options.alpha, int | float)
        and math.isfinite(options.alpha)
        and options.alpha > 0
    ):
        raise InputError(f"data.alpha = {options.alpha!r}: must be a finite number above 0")
    return options.alpha


def find_places(values: Labels, count: int) -> list[Indices]:
    """Return where each of the numbers below ``count`` stands.

    >>> [places.tolist() for places in find_places(np.array([1, 0, 1]), 3)]
    [[1], [0, 2], []]
    """
    order = np.argsort(values, kind="stable").astype(np.int64)
    return np.split(order, np.cumsum(np.bincount(values, minlength=count)))[:-1]


def _equal(total: int, parts: int) -> Indices:
    return total // parts + (np.arange(parts) < total % parts).astype(np.int64)


def _cut(order: Indices, sizes: Indices) -> list[Indices]:
    return [np.sort(part) for part in np.split(order, np.cumsum(sizes)[:-1])]


def _shuffled(labels: Labels, rng: np.random.Generator) -> Indices:
    return rng.permutation(len(labels)).astype(np.int64)


def _by_class(labels: Labels, rng: np.random.Generator) -> Indices:
    order = _shuffled(labels, rng)
    return order[np.argsort(labels[order], kind="stable")]


def _draw(need: int, q: Floats, left: Indices, rng: np.random.Generator) -> Indices:
    # A draw of an exhausted class is a rejected draw, and rejecting is renormalising q: so clipping
    # the multinomial and redrawing the excess has the distribution of drawing sample by sample.
    # Excess means that one more class is exhausted, so there are at most as many passes as classes.
    taken = np.zeros_like(left)
    while need:
        room = left - taken
        rest = np.flatnonzero(room)
        weight = q[rest]
        if not weight.sum() > 0:  # underflow or NaN
            weight = room[rest].astype(np.float64)
        got = np.minimum(rng.multinomial(need, weight / weight.sum()), room[rest])
        taken[rest] += got
        need -= int(got.sum())
    return taken


def _dirichlet(
    labels: Labels,
    clients: int,
    rng: np.random.Generator,
    concentration: Callable[[Indices], Floats],
) -> list[Indices]:
    order = _by_class(labels, rng)
    left = np.unique(labels, return_counts=True)[1].astype(np.int64)
    sizes = _equal(len(labels), clients)
    drawn = []  # the class of every sample, client after client
    for need in sizes:
        q = np.zeros(len(left))
        q[left > 0] = rng.dirichlet(concentration(left[left > 0]))
        taken = _draw(int(need), q, left, rng)
        left = left - taken
        drawn.append(np.repeat(np.arange(len(left)), taken))
    dealt = np.empty_like(order)
    dealt[np.argsort(np.concatenate(drawn), kind="stable")] = order
    return _cut(dealt, sizes)


def _iid(
    labels: Labels, clients: int, rng: np.random.Generator, options: PartitionOptions
) -> list[Indices]:
    """Deal the samples at random in equal parts."""
    return _cut(_shuffled(labels, rng), _equal(len(labels), clients))


def _lda(
    labels: Labels, clients: int, rng: np.random.Generator, options: PartitionOptions
) -> list[Indices]:
    """Draw each client's class shares from Dir(alpha) over the classes that are left; equal
    sizes.
    """
    alpha = _alpha(options)
    return _dirichlet(labels, clients, rng, lambda left: np.full(len(left), alpha))


def _lda_prior(
    labels: Labels, clients: int, rng: np.random.Generator, options: PartitionOptions
) -> list[Indices]:
    """Draw as lda from Dir(alpha × share of what is left), far more skewed (the released FedBR
    code).
    """
    alpha = _alpha(options)
    return _dirichlet(labels, clients, rng, lambda left: alpha * (left / left.sum()))


def _classwise(
    labels: Labels, clients: int, rng: np.random.Generator, options: PartitionOptions
) -> list[Indices]:
    """Give each client its own block of classes; share classes only if there are more clients."""
    counts = np.unique(labels, return_counts=True)[1]
    order = _by_class(labels, rng)
    if clients <= len(counts):
        return _cut(order, np.array([block.sum() for block in np.array_split(counts, clients)]))
    # The smallest class first: what it cannot take is shared by the larger ones, so with at most
    # one client per sample (checked) everybody finds a place.
    sharers = np.zeros_like(counts)
    free = clients
    for done, label in enumerate(np.argsort(counts, kind="stable")):
        sharers[label] = min(int(counts[label]), free // (len(counts) - done))
        free -= int(sharers[label])
    return _cut(
        order,
        np.concatenate([_equal(int(c), int(s)) for c, s in zip(counts, sharers, strict=True)]),
    )


def _shards(
    labels: Labels, clients: int, rng: np.random.Generator, options: PartitionOptions
) -> list[Indices]:
    """Sort by label, cut into equal shards and deal shards_per_client to each (McMahan et al.
    2017).
    """
    each = options.shards_per_client
    if not _whole(each):
        raise InputError(f"data.shards_per_client = {each!r}: must be a whole number of at least 1")
    if clients * each > len(labels):
        raise InputError(
            f"data.shards_per_client = {each}: {clients} clients need {clients * each} shards, "
            f"only {len(labels)} training samples; at most {len(labels) // clients}"
        )
    shards = np.array_split(_by_class(labels, rng), clients * each)
    dealt = rng.permutation(len(shards)).reshape(clients, each)
    return [np.sort(np.concatenate([shards[shard] for shard in own])) for own in dealt]


def _quantity(
    labels: Labels, clients: int, rng: np.random.Generator, options: PartitionOptions
) -> list[Indices]:
    """Draw the clients' sizes from Dir(alpha), at least one sample each; labels at random."""
    edges = np.cumsum(rng.dirichlet(np.full(clients, _alpha(options))))
    if not edges[-1] > 0:  # underflow or NaN
        edges = np.arange(1.0, clients + 1)
    edges = np.rint(edges / edges[-1] * (len(labels) - clients)).astype(np.int64)
    return _cut(_shuffled(labels, rng), 1 + np.diff(edges, prepend=0))


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

    Raises:
        InputError: the name is unknown, or the samples cannot be split like this.

    >>> parts = partition("classwise", np.array([0, 1, 0, 1]), 2, np.random.default_rng(0),
    ...                   PartitionOptions())
    >>> [part.tolist() for part in parts]
    [[0, 2], [1, 3]]
    """
    if name not in PARTITIONS:
        raise unknown("data.partition", name, PARTITIONS)
    if clients is not None and not _whole(clients):
        raise InputError(f"data.clients = {clients!r}: must be a whole number of at least 1")
    if name == "domains":
        clients = _natural(clients, options.owner)
    clients = CLIENTS if clients is None else clients
    if clients > len(labels):
        raise InputError(
            f"data.clients = {clients}: only {len(labels)} training samples; at most one client "
            "per sample"
        )
    return PARTITIONS[name](labels, clients, rng, options)


def _whole(number: object) -> bool:
    return (
        isinstance(number, int | np.integer) and not isinstance(number, bool) and int(number) >= 1
    )


def _natural(clients: int | None, owner: Indices | None) -> int:
    """Return the number of clients that the data name."""
    if owner is None:
        others = ", ".join(n for n in PARTITIONS if n != "domains")
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
    p = counts / counts.sum()
    return float(np.exp(-(p * np.log(p)).sum()))


def split_hash(parts: list[Indices]) -> str:
    """Return 16 hex digits that identify a split on every platform."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(np.asarray(part).astype("<i8").tobytes())
    return digest.hexdigest()[:16]
