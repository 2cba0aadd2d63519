"""A federation: which client trains on which samples, and on what the global model is tested."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..core.data import Index, Samples, TrainData
from ..core.errors import InputError
from ..core.rng import stream
from .datasets import read_dataset
from .partition import PartitionOptions, effective_classes, partition, split_hash


@dataclass(frozen=True)
class Source:
    """A data set before it is split: training and test samples in their stored form."""

    train: Samples
    test: Samples
    num_classes: int
    peak: float = 1.0  # the stored value of a white pixel
    owner: Index | None = None  # the natural client of each training sample, where there are such
    test_owner: Index | None = None  # and of each test sample
    class_names: Sequence[str] | None = None  # in the order of their numbers, where they have names
    client_names: Sequence[str] | None = None  # of the natural clients


@dataclass(frozen=True, repr=False)
class Federation:
    """Clients as index arrays over one array of samples, and test sets: one for all, one each, or shared in parts."""

    train: TrainData
    tests: Sequence[Samples]
    proxy: Samples | None = None  # public samples that belong to nobody
    mix: Tensor | None = None  # [clients, tests], if clients are mixes of the test sets
    class_names: Sequence[str] | None = None
    client_names: Sequence[str] | None = None

    def __post_init__(self) -> None:
        clients = len(self.train.parts)
        trained = set(np.unique(self.train.samples.y.numpy()).tolist())
        for test in self.tests:
            if trained.isdisjoint(np.unique(test.y.numpy()).tolist()):
                raise InputError("test: none of its classes is among those of the training samples")
        if self.mix is None and len(self.tests) not in (1, clients):
            raise InputError(f"tests = {len(self.tests)}: one for all, or one for each of {clients} clients")

    @property
    def shares(self) -> list[dict[int, float]] | None:
        """For each client, what part of its distribution a test set is; None: there is one for all."""
        if self.mix is not None:
            return [{t: share for t, share in enumerate(row) if share > 0} for row in self.mix.tolist()]
        return [{client: 1.0} for client in range(len(self.tests))] if len(self.tests) > 1 else None

    def __repr__(self) -> str:
        return f"Federation({len(self.train.parts)} clients, {len(self.train.samples)} samples of shape {self.shape})"

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.train.samples.x.shape[1:])

    @property
    def num_classes(self) -> int:
        return self.train.num_classes

    @property
    def sizes(self) -> list[int]:
        return [len(part) for part in self.train.parts.values()]

    @cached_property
    def distinct(self) -> list[int]:
        """How many different samples each client has: copies hide nothing."""
        x = self.train.samples.x.flatten(1).numpy() + 0  # -0.0 is no other pixel
        return [len({x[i].tobytes() for i in part}) for part in self.train.parts.values()]

    @cached_property
    def content(self) -> str:
        """16 hex digits that identify the samples themselves, training and test."""
        digest = sha256()
        for samples in (self.train.samples, *{id(t): t for t in self.tests}.values()):
            for tensor in (samples.x, samples.y):
                digest.update(f"{tensor.dtype} {tuple(tensor.shape)} ".encode())
                digest.update(tensor.contiguous().numpy().data)
        return digest.hexdigest()[:16]

    @property
    def label_mix(self) -> Tensor:
        """The share of each class among each client's training samples: [clients, classes]."""
        y = self.train.samples.y
        counts = [torch.bincount(y[torch.from_numpy(p)], minlength=self.num_classes) for p in self.train.parts.values()]
        return torch.stack([c / c.sum() for c in counts])

    def some_tests(self, size: int | None, seed: int) -> list[Samples]:
        """Return about so many samples of every test set, the same share of each class; nothing if that is all."""
        if size is None or size >= max(map(len, self.tests)):
            return []
        rng = stream(seed, "some tests")
        parts = {id(test): test.only(chosen(test.y.numpy(), size / len(test), rng, least=1)) for test in self.tests}
        return [parts[id(test)] for test in self.tests]

    def describe(self) -> dict[str, Any]:
        """Return what identifies the split: its hash, and each client's size and effective number of classes."""
        parts = list(self.train.parts.values())
        y = self.train.samples.y.numpy()
        return {
            "hash": split_hash(parts),
            "sizes": self.sizes,
            "effective_classes": [round(effective_classes(y[p]), 4) for p in parts],
        }

    @classmethod
    def from_arrays(
        cls,
        x: Any,
        y: Any,
        x_test: Any,
        y_test: Any,
        *,
        clients: int = 10,
        partition: str = "lda",
        alpha: float = 0.1,
        shards_per_client: int = 2,
        seed: int = 0,
        proxy: Any = None,
    ) -> Federation:
        """Split arrays (NumPy or torch; bytes are taken as pixels from 0 to 255) over clients."""
        train, test = _samples(x, y, "x"), _samples(x_test, y_test, "x_test")
        check_alike(test, train, "x_test", "x")
        options = PartitionOptions(alpha, shards_per_client)
        source = Source(train, test, _num_classes(train, test), 255.0 if train.x.dtype == torch.uint8 else 1.0)
        return split(source, clients, partition, options, seed, _public(proxy, train))

    @classmethod
    def from_datasets(
        cls,
        train: Any,
        test: Any,
        *,
        clients: int | None = None,
        partition: str = "lda",
        alpha: float = 0.1,
        shards_per_client: int = 2,
        seed: int = 0,
        proxy: Any = None,
        owner: str = "",
    ) -> Federation:
        """Take torch data sets of (x, y), or Hugging Face ones with an image (or x) and a label column.

        ``owner`` names a column with natural client ids, for ``partition="domains"``. Everything is read once, here.
        """
        x, y, ids = read_dataset(train, "train", owner)
        x_test, y_test, _ = read_dataset(test, "test")
        tried, tested = _samples(x, y, "train"), _samples(x_test, y_test, "test")
        check_alike(tested, tried, "test", "train")
        owners = None if ids is None else np.unique(ids, return_inverse=True)[1]
        peak = 255.0 if tried.x.dtype == torch.uint8 else 1.0
        source = Source(tried, tested, _num_classes(tried, tested), peak, owners)
        options = PartitionOptions(alpha, shards_per_client)
        return split(source, clients, partition, options, seed, _public(proxy, tried))

    @classmethod
    def from_clients(cls, clients: Sequence[tuple[Any, Any]], *, test: Any, proxy: Any = None) -> Federation:
        """Take data that is already per client; ``test`` is one (x, y) for all, or a list with one per client."""
        if not clients:
            raise InputError("clients = []: at least one client")
        pairs = test if isinstance(test, list) else [test]
        for name, pair in [("clients", pair) for pair in clients] + [("test", pair) for pair in pairs]:
            if not isinstance(pair, tuple) or len(pair) != 2:
                raise InputError(f"{name}: {type(pair).__name__} where a pair (x, y) is wanted")
        owned = [_samples(x, y, f"clients[{i}]") for i, (x, y) in enumerate(clients)]
        tests = [_samples(x, y, "test") for x, y in pairs]
        for i, part in enumerate(owned):
            check_alike(part, owned[0], f"clients[{i}]", "clients[0]")
        for part in tests:
            check_alike(part, owned[0], "test", "clients[0]")
        train = replace(owned[0], x=torch.cat([o.x for o in owned]), y=torch.cat([o.y for o in owned]))
        ends = np.cumsum([len(o) for o in owned])
        parts: dict[int, Index] = {
            i: np.arange(end - len(o), end) for i, (o, end) in enumerate(zip(owned, ends, strict=True))
        }
        return cls(TrainData(train, parts, _num_classes(train, *tests)), tests, _public(proxy, train))


def split(
    source: Source,
    clients: int | None,
    name: str,
    options: PartitionOptions,
    seed: int,
    proxy: Samples | None = None,
) -> Federation:
    """Give every client its part of a data set."""
    options = options._replace(owner=source.owner)
    parts = partition(name, source.train.y.numpy(), clients, stream(seed, "partition", name), options)
    train = TrainData(source.train, dict(enumerate(parts)), source.num_classes)
    if source.owner is not None and name != "domains":
        warnings.warn(
            f"these data name {int(source.owner.max()) + 1} clients of their own; {name} deals their samples anew, "
            "data.partition = 'domains' would keep them",
            RuntimeWarning,
            stacklevel=2,
        )
    tests = [source.test]
    if name == "domains" and source.test_owner is not None:
        tests = [source.test.only(source.test_owner == c) for c in range(len(parts))]
    names = source.client_names if name == "domains" else None
    return Federation(train, tests, proxy, class_names=source.class_names, client_names=names)


def chosen(classes: Index, share: float, rng: np.random.Generator, least: int = 0) -> NDArray[np.bool_]:
    """Choose the same share of every class, and of each at least so many."""
    held = np.zeros(len(classes), dtype=bool)
    for c in np.unique(classes):
        members = rng.permutation(np.flatnonzero(classes == c))
        held[members[: max(least, round(share * len(members)))]] = True
    return held


def hold_out(samples: Samples, share: float, rng: np.random.Generator) -> tuple[Samples, Samples]:
    """Return what is kept and what is held out: the same share of every class."""
    held = chosen(samples.y.numpy(), share, rng)
    return samples.only(~held), samples.only(held)


def _samples(x: Any, y: Any, name: str) -> Samples:
    labels = np.asarray(y)
    if labels.dtype.kind not in "iu" or (labels.size and labels.min() < 0):
        raise InputError(f"labels of {name}: of type {labels.dtype}; whole numbers from 0 are wanted")
    xs, ys = _tensor(x, name), torch.from_numpy(labels.astype(np.int64))
    if len(xs) != len(ys) or len(xs) == 0 or ys.dim() != 1:
        raise InputError(
            f"{name}: {len(xs)} samples and labels of shape {tuple(ys.shape)}; one label for each, and at least one"
        )
    return Samples(xs, ys, scale=1 / 255 if xs.dtype == torch.uint8 else 1.0)


def _tensor(x: Any, name: str) -> Tensor:
    """Take an array, bytes or floats, and refuse what no model can learn from."""
    try:
        found = x.detach().cpu() if isinstance(x, Tensor) else torch.from_numpy(np.ascontiguousarray(x))
    except TypeError as error:
        raise InputError(f"{name}: not an array of numbers ({error})") from error
    if found.dtype != torch.uint8 and not found.is_floating_point():
        raise InputError(f"{name}: samples of type {found.dtype}; bytes (pixels) or floats are wanted")
    if found.is_floating_point() and not torch.isfinite(found).all():
        raise InputError(f"{name}: some samples are not finite")
    return found


def check_alike(a: Samples, b: Samples, name: str, other: str) -> None:
    """Refuse samples of another shape or type."""
    if a.x.shape[1:] != b.x.shape[1:] or a.x.dtype != b.x.dtype:
        raise InputError(
            f"{name}: samples of shape {tuple(a.x.shape[1:])} and type {a.x.dtype}; "
            f"those of {other} have {tuple(b.x.shape[1:])} and {b.x.dtype}"
        )


def _public(proxy: Any, train: Samples) -> Samples | None:
    if proxy is None:
        return None
    x = _tensor(proxy, "proxy")
    public = replace(train, x=x, y=torch.zeros(len(x), dtype=torch.long))
    check_alike(public, train, "proxy", "x")
    return public


def _num_classes(*samples: Samples) -> int:
    labels = torch.cat([s.y for s in samples])
    count, distinct = int(labels.max()) + 1, len(torch.unique(labels))
    if count > 100 + 10 * distinct:
        raise InputError(f"labels: only {distinct} different ones, but up to {count - 1}; number the classes from 0")
    return count
