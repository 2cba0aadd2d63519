"""A federation: which client trains on which samples, and on what the global model is tested."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from torch import Tensor

from ..core.census import Census
from ..core.evaluation import TestPlan, TestSet
from ..core.rng import stream
from ..core.samples import Index, Samples, TrainData
from ..util.errors import InputError
from .arrays import as_pairs, check_alike, count_classes, join, peak, read_pair, read_proxy
from .census import SHOWN, hash_samples, take_census
from .dataset_objects import read_datasets
from .holdout import choose_share
from .partition import PartitionOptions, find_places, partition
from .source import Source

__all__ = ["SHOWN", "Federation", "Source", "split"]


@dataclass(frozen=True, repr=False)
class Federation:
    """Clients as index arrays over one array of samples, and test sets.

    There is one test set for all, one for each client, or several that clients are mixes of. Make
    one with ``from_arrays``, ``from_datasets`` or ``from_clients``.
    """

    train: TrainData
    tests: Sequence[Samples]
    proxy: Samples | None = None  # public samples that belong to nobody
    mix: Tensor | None = None  # [clients, tests], if clients are mixes of the test sets
    class_names: Sequence[str] | None = None
    client_names: Sequence[str] | None = None

    def __post_init__(self) -> None:
        clients = len(self.train.parts)
        trained_classes = np.unique(self.train.samples.y.numpy())
        tests = [test for test in self._distinct_tests() if len(test)]
        if not tests:
            raise InputError("test: has no samples; at least one client must have some")
        for test in tests:
            if not np.isin(test.y.numpy(), trained_classes).any():
                raise InputError("test: none of its classes is among those of the training samples")
        if self.mix is None and len(self.tests) not in (1, clients):
            raise InputError(
                f"tests = {len(self.tests)}: one for all, or one for each of {clients} clients"
            )

    def __repr__(self) -> str:
        clients, samples = len(self.train.parts), len(self.train.samples)
        return f"Federation({clients} clients, {samples} samples of shape {self.shape})"

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
        """Split arrays of samples over clients.

        Args:
            x: training samples, [samples, ...], NumPy or torch. Bytes are taken as pixels from 0
                to 255, floats as they are; images may have their channels last.
            y: their classes, whole numbers from 0.
            x_test: samples of the common test set.
            y_test: their classes.
            clients: how many there are.
            partition: how samples are dealt (``fedbr list partitions``).
            alpha: concentration of lda, lda-prior and quantity: the smaller, the more skewed.
            shards_per_client: of the partition shards.
            seed: the same one gives the same split on every machine.
            proxy: public samples that belong to nobody, for methods that mix them in.

        Returns:
            The federation, with one test set for all clients.

        Raises:
            InputError: arrays do not fit together, or cannot be split like this.

        >>> x, y = np.zeros((60, 1, 8, 8), dtype=np.uint8), np.arange(60) % 3
        >>> Federation.from_arrays(x, y, x, y, clients=4, partition="iid")
        Federation(4 clients, 60 samples of shape (1, 8, 8))
        """
        train = read_pair(x, y, "x", "y")
        test = read_pair(x_test, y_test, "x_test", "y_test")
        check_alike(test, train, "x_test", "x")
        source = Source(train, test, count_classes(train, test), peak(train))
        options = PartitionOptions(alpha, shards_per_client)
        public = read_proxy(proxy, train)
        return split(source, clients, partition, options, seed, public)

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
        """Split data set objects over clients; everything is read once, here.

        Args:
            train: a torch data set of (x, y), or one of Hugging Face's with an image (or x) and a
                label column.
            test: another one, which all clients are tested on.
            clients: how many there are; None: 10, or with ``partition="domains"`` as the data say.
            partition: how samples are dealt; "domains" leaves them with their owners.
            alpha: as of ``from_arrays``.
            shards_per_client: as of ``from_arrays``.
            seed: the same one gives the same split on every machine.
            proxy: public samples that belong to nobody.
            owner: a column with natural client ids. If all clients of the test set's column train
                too, each is tested on its own samples.

        Returns:
            The federation.

        Raises:
            InputError: rows cannot be read, or do not fit together.

        >>> rows = [{"x": np.zeros((1, 4, 4)), "label": i % 2, "site": "AB"[i // 5]}
        ...         for i in range(10)]
        >>> federation = Federation.from_datasets(rows, rows, owner="site", partition="domains")
        >>> federation.client_names, federation.sizes
        (['A', 'B'], [5, 5])
        """
        source = read_datasets(train, test, owner)
        options = PartitionOptions(alpha, shards_per_client)
        public = read_proxy(proxy, source.train)
        return split(source, clients, partition, options, seed, public)

    @classmethod
    def from_clients(
        cls, clients: Iterable[tuple[Any, Any]], *, test: Any, proxy: Any = None
    ) -> Federation:
        """Take data that is already per client.

        Args:
            clients: a pair (x, y) for each.
            test: one pair (x, y) for all, or one for each (some may be empty).
            proxy: public samples that belong to nobody.

        Returns:
            The federation.

        Raises:
            InputError: something is no pair, or samples do not fit together.

        >>> x, y = np.zeros((4, 5)), np.array([0, 1, 0, 1])
        >>> Federation.from_clients([(x, y), (x[:2], y[:2])], test=(x, y)).sizes
        [4, 2]
        """
        pairs = as_pairs(clients, "clients")
        if not pairs:
            raise InputError("clients = []: expected at least one client")
        by_client = []
        for i, (x, y) in enumerate(pairs):
            by_client.append(read_pair(x, y, f"clients[{i}]", f"labels of clients[{i}]"))
            check_alike(by_client[i], by_client[0], f"clients[{i}]", "clients[0]")
        test_pairs = [test] if _is_pair(test) else as_pairs(test, "test")
        tests = []
        for x, y in test_pairs:
            tests.append(read_pair(x, y, "test", "labels of test", least=0))
            check_alike(tests[-1], by_client[0], "test", "clients[0]")
        samples, parts = join(by_client)
        public = read_proxy(proxy, samples)
        train = TrainData(samples, parts, count_classes(samples, *tests))
        return cls(train, tests, public)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample."""
        return tuple(self.train.samples.x.shape[1:])

    @property
    def num_classes(self) -> int:
        """How many classes a model has an output for."""
        return self.train.num_classes

    @property
    def sizes(self) -> list[int]:
        """How many samples each client has."""
        return [len(part) for part in self.train.parts.values()]

    @cached_property
    def census(self) -> Census:
        """Counts of the clients' samples: all that may be known of them without the samples."""
        return take_census(self.train, self.class_names, self.client_names)

    @cached_property
    def content(self) -> str:
        """16 hex digits that identify the samples themselves, training and test."""
        return hash_samples([self.train.samples, *self._distinct_tests()])

    def test_plan(self, evaluate_samples: int | None, seed: int) -> TestPlan:
        """Plan what models are tested on, and each client's share in it.

        Args:
            evaluate_samples: about how many of each test set in the rounds before the last, the
                same share of each class; None: all.
            seed: of the choice.
        """
        tests = self._distinct_tests()
        parts: Sequence[Samples | None] = [None] * len(tests)
        if evaluate_samples is not None and evaluate_samples < max(map(len, tests)):
            parts = self._choose_some(evaluate_samples, seed)
        sets = [TestSet.of(test, part) for test, part in zip(tests, parts, strict=True)]
        return TestPlan(sets, self._places(), self._shares())

    def _distinct_tests(self) -> list[Samples]:
        """List the test sets, each of them once."""
        return list({id(test): test for test in self.tests}.values())

    def _places(self) -> list[int]:
        """Return the place of each test among the distinct test sets."""
        places = {id(test): place for place, test in enumerate(self._distinct_tests())}
        return [places[id(test)] for test in self.tests]

    def _choose_some(self, count: int, seed: int) -> list[Samples]:
        """Choose about so many samples of each distinct test set."""
        rng = stream(seed, "some tests")
        parts: dict[int, Samples] = {}
        for place, test in zip(self._places(), self.tests, strict=True):
            share = count / max(1, len(test))
            parts[place] = test.only(choose_share(test.y.numpy(), share, rng, least=1))
        return [parts[place] for place in sorted(parts)]

    def _shares(self) -> list[dict[int, float]] | None:
        """Return what part of each client's distribution a test is; None: one test for all."""
        if self.mix is not None:
            clients = []
            for row in self.mix.tolist():
                clients.append({test: share for test, share in enumerate(row) if share > 0})
            return clients
        if len(self.tests) > 1:
            return [{client: 1.0} for client in range(len(self.tests))]
        return None


def split(
    source: Source,
    clients: int | None,
    name: str,
    options: PartitionOptions,
    seed: int,
    proxy: Samples | None = None,
) -> Federation:
    """Give every client its part of a data set.

    Args:
        source: the data set.
        clients: how many; None: as many as the data name, or 10.
        name: of the partition.
        options: of the partition.
        seed: of the split.
        proxy: public samples that belong to nobody.

    Raises:
        InputError: the samples cannot be split like this.
    """
    labels, rng = source.train.y.numpy(), stream(seed, "partition", name)
    parts = partition(name, labels, clients, rng, options._replace(owner=source.owner))
    train = TrainData(source.train, dict(enumerate(parts)), source.num_classes)
    tests, client_names = [source.test], None
    if name == "domains":
        client_names = source.client_names
        if source.test_owner is not None:
            tests = _split_by_owner(source.test, source.test_owner, len(parts))
    elif source.owner is not None:
        warnings.warn(
            f"these data name {int(source.owner.max()) + 1} clients of their own; {name} deals "
            "their samples anew, data.partition = 'domains' would keep them",
            RuntimeWarning,
            stacklevel=2,
        )
    return Federation(
        train, tests, proxy, class_names=source.class_names, client_names=client_names
    )


def _split_by_owner(samples: Samples, owner: Index, clients: int) -> list[Samples]:
    """Give every client its own samples."""
    parts = []
    for index in find_places(owner, clients):
        parts.append(replace(samples, x=samples.x[index], y=samples.y[index]))
    return parts


def _is_pair(test: Any) -> bool:
    """Say whether a test is one pair (x, y), not a tuple of two such pairs."""
    if not isinstance(test, tuple) or len(test) != 2:
        return False
    return not all(isinstance(part, tuple) for part in test)
