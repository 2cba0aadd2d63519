"""A federation: which client trains on which samples, and on what the global model is tested."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..core.census import Census
from ..core.evaluation import TestPlan, TestSet
from ..core.records import ClassCounts, Split
from ..core.rng import stream
from ..core.samples import Index, Samples, TrainData
from ..util.errors import InputError
from .arrays import (
    as_classes,
    as_samples,
    as_tensor,
    check_alike,
    count_classes,
    numbered,
    peak,
    words,
)
from .datasets import Table, read_dataset
from .holdout import chosen
from .partition import PartitionOptions, effective_classes, grouped, partition, split_hash

SHOWN = 200  # clients whose classes are written down with every run


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
    """Clients as index arrays over one array of samples, and test sets: one for all, one each, or
    shared in parts.
    """

    train: TrainData
    tests: Sequence[Samples]
    proxy: Samples | None = None  # public samples that belong to nobody
    mix: Tensor | None = None  # [clients, tests], if clients are mixes of the test sets
    class_names: Sequence[str] | None = None
    client_names: Sequence[str] | None = None

    def __post_init__(self) -> None:
        clients = len(self.train.parts)
        trained = np.unique(self.train.samples.y.numpy())
        tests = [test for test in {id(test): test for test in self.tests}.values() if len(test)]
        if not tests:
            raise InputError("test: has no samples; at least one client must have some")
        if not all(np.isin(test.y.numpy(), trained).any() for test in tests):
            raise InputError("test: none of its classes is among those of the training samples")
        if self.mix is None and len(self.tests) not in (1, clients):
            raise InputError(
                f"tests = {len(self.tests)}: one for all, or one for each of {clients} clients"
            )

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
        """How many samples each client has."""
        return [len(part) for part in self.train.parts.values()]

    @cached_property
    def census(self) -> Census:
        """All that is known of the clients without their samples."""
        samples = self.train.samples
        of_bytes: tuple[float | Tensor, ...] = (1 / 255, 0.0)
        if samples.x.dtype == torch.uint8:
            of_bytes = (samples.scale, samples.shift)
        scale, shift = (v.tolist() if isinstance(v, Tensor) else v for v in of_bytes)
        return Census(
            shape=self.shape,
            num_classes=self.num_classes,
            split=self._split(),
            classes=self._classes(),
            distinct=self._distinct(),
            label_mix=self._label_mix(),
            byte_scale=scale,
            byte_shift=shift,
        )

    @cached_property
    def content(self) -> str:
        """16 hex digits that identify the samples themselves, training and test."""
        digest = sha256()
        for samples in (self.train.samples, *{id(t): t for t in self.tests}.values()):
            for tensor in (samples.x, samples.y):
                digest.update(f"{tensor.dtype} {tuple(tensor.shape)} ".encode())
                digest.update(tensor.contiguous().numpy().data)
        return digest.hexdigest()[:16]

    def test_plan(self, evaluate_samples: int | None, seed: int) -> TestPlan:
        """Say what models are tested on, and each client's share in it.

        evaluate_samples: about how many of each test set in the rounds before the last, the same
        share of each class; None: all.
        """
        distinct = {id(test): test for test in self.tests}
        places = {key: place for place, key in enumerate(distinct)}
        parts: list[Samples | None] = [None] * len(distinct)
        if evaluate_samples is not None and evaluate_samples < max(map(len, self.tests)):
            rng = stream(seed, "some tests")
            for test in self.tests:
                share = evaluate_samples / max(1, len(test))
                part = test.only(chosen(test.y.numpy(), share, rng, least=1))
                parts[places[id(test)]] = part
        sets = [TestSet.of(t, part) for t, part in zip(distinct.values(), parts, strict=True)]
        return TestPlan(sets, [places[id(test)] for test in self.tests], self._shares())

    def _shares(self) -> list[dict[int, float]] | None:
        """Say for each client what part of its distribution a test is; None: one for all."""
        if self.mix is not None:
            rows = self.mix.tolist()
            return [{t: share for t, share in enumerate(row) if share > 0} for row in rows]
        if len(self.tests) > 1:
            return [{client: 1.0} for client in range(len(self.tests))]
        return None

    def _distinct(self) -> list[int]:
        """Count the samples of each client that differ in single precision."""
        stored = self.train.samples.x.flatten(1)
        single = stored.float() if stored.dtype == torch.float64 else stored
        x = single.numpy() + 0  # -0.0 is no other pixel
        return [len({x[i].tobytes() for i in part}) for part in self.train.parts.values()]

    def _label_mix(self) -> Tensor:
        """Return the share of each class among each client's samples: [clients, classes]."""
        parts = list(self.train.parts.values())
        owners = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
        cells = owners * self.num_classes + self.train.samples.y.numpy()[np.concatenate(parts)]
        counts = np.bincount(cells, minlength=len(parts) * self.num_classes).reshape(len(parts), -1)
        return torch.from_numpy(counts) / torch.from_numpy(counts.sum(axis=1, keepdims=True))

    def _split(self) -> Split:
        parts = list(self.train.parts.values())
        y = self.train.samples.y.numpy()
        effective = [round(effective_classes(y[part]), 4) for part in parts]
        return Split(split_hash(parts), tuple(self.sizes), tuple(effective))

    def _classes(self) -> ClassCounts:
        """Write down who holds which classes, of each of the first clients."""
        y = self.train.samples.y.numpy()
        counts = []
        for part in list(self.train.parts.values())[:SHOWN]:
            classes, numbers = np.unique(y[part], return_counts=True)
            pairs = zip(classes, numbers, strict=True)
            counts.append(" ".join(f"{k}:{n}" for k, n in pairs))
        names, clients = self.class_names, self.client_names
        return ClassCounts(
            number=self.num_classes,
            names=None if names is None else tuple(names),
            clients=None if clients is None else tuple(clients)[:SHOWN],
            counts=tuple(counts),
        )

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
        train, test = _pair(x, y, "x", "y"), _pair(x_test, y_test, "x_test", "y_test")
        check_alike(test, train, "x_test", "x")
        options = PartitionOptions(alpha, shards_per_client)
        source = Source(train, test, count_classes(train, test), peak(train))
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
        """Take torch data sets of (x, y), or Hugging Face ones with an image (or x) and a label
        column.

        ``owner`` names a column with natural client ids, for ``partition="domains"``; if all
        clients of the test set's column train too, each is tested on its own samples. Everything is
        read once, here.
        """
        source = _source(
            read_dataset(train, "train", owner), read_dataset(test, "test", owner, needed=False)
        )
        options = PartitionOptions(alpha, shards_per_client)
        return split(source, clients, partition, options, seed, _public(proxy, source.train))

    @classmethod
    def from_clients(
        cls, clients: Iterable[tuple[Any, Any]], *, test: Any, proxy: Any = None
    ) -> Federation:
        """Take data that is already per client; ``test`` is one (x, y) for all, or one for each
        (some may be empty).
        """
        pairs = _pairs(clients, "clients")
        if not pairs:
            raise InputError("clients = []: at least one client")
        one = (
            isinstance(test, tuple)
            and len(test) == 2
            and not all(isinstance(part, tuple) for part in test)
        )
        owned = [
            _pair(x, y, f"clients[{i}]", f"labels of clients[{i}]")
            for i, (x, y) in enumerate(pairs)
        ]
        tests = [
            _pair(x, y, "test", "labels of test", least=0)
            for x, y in ([test] if one else _pairs(test, "test"))
        ]
        for i, part in enumerate(owned):
            check_alike(part, owned[0], f"clients[{i}]", "clients[0]")
        for part in tests:
            check_alike(part, owned[0], "test", "clients[0]")
        train = replace(
            owned[0], x=torch.cat([o.x for o in owned]), y=torch.cat([o.y for o in owned])
        )
        ends = np.cumsum([len(o) for o in owned])
        parts: dict[int, Index] = {
            i: np.arange(end - len(o), end)
            for i, (o, end) in enumerate(zip(owned, ends, strict=True))
        }
        return cls(
            TrainData(train, parts, count_classes(train, *tests)), tests, _public(proxy, train)
        )


def _source(given: Table, tried: Table) -> Source:
    """Number classes and clients: words in their sorted order, classes that are numbers as they
    are.
    """
    class_names = given.class_names
    if given.y.dtype.kind == "U":
        names, y = np.unique(given.y, return_inverse=True)
        y_test, class_names = numbered(tried.y, names, "test: label", "train: label"), words(names)
    else:
        y, y_test = as_classes(given.y, "train: label"), as_classes(tried.y, "test: label")
    train, test = as_samples(given.x, y, "train"), as_samples(tried.x, y_test, "test")
    check_alike(test, train, "test", "train")
    num_classes = max(count_classes(train, test), len(class_names or ()))
    if class_names is not None and len(class_names) < num_classes:
        class_names = None
    source = Source(train, test, num_classes, peak(train), class_names=class_names)
    if given.owner is None:
        return source
    ids, owner = np.unique(given.owner, return_inverse=True)
    test_owner = None
    if tried.owner is not None and set(tried.owner.tolist()) <= set(ids.tolist()):
        test_owner = np.searchsorted(ids, tried.owner)
    return replace(
        source,
        owner=owner,
        test_owner=test_owner,
        client_names=[str(name) for name in ids.tolist()],
    )


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
    parts = partition(
        name, source.train.y.numpy(), clients, stream(seed, "partition", name), options
    )
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
        x, y = source.test.x, source.test.y
        tests = [
            replace(source.test, x=x[i], y=y[i]) for i in grouped(source.test_owner, len(parts))
        ]
    names = source.client_names if name == "domains" else None
    return Federation(train, tests, proxy, class_names=source.class_names, client_names=names)


def _pair(x: Any, y: Any, name: str, labels: str, least: int = 1) -> Samples:
    return as_samples(as_tensor(x, name), as_classes(y, labels), name, least)


def _pairs(values: Any, name: str) -> list[tuple[Any, Any]]:
    """List what must be pairs (x, y)."""
    pairs = list(values) if isinstance(values, Iterable) else [values]
    for pair in pairs:
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise InputError(f"{name}: {type(pair).__name__} where a pair (x, y) is wanted")
    return pairs


def _public(proxy: Any, train: Samples) -> Samples | None:
    if proxy is None:
        return None
    x = as_tensor(proxy, "proxy")
    public = replace(train, x=x, y=torch.zeros(len(x), dtype=torch.long))
    check_alike(public, train, "proxy", "x")
    return public
