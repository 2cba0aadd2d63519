"""A site: its own samples, or its share of a recipe's for trials, and the backend that trains."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

import numpy as np
import torch

from ..backends.base import LocalBackend, Outcome, Work
from ..backends.memory import ClientMemory
from ..backends.pool import PoolBackend, WorkerPool
from ..backends.serial import SerialBackend
from ..core.evaluation import Answers, Exam, TestPlan, TestSet
from ..core.samples import Index, Samples, TrainData
from ..core.setup import Setup
from ..data.federation import Source
from ..data.partition import effective_classes, find_places
from ..data.sources import folder, npz
from ..data.transforms import shrink
from ..metrics import collect_tallies, select
from ..recipe.schema import Recipe
from ..run.plan import RecipeSource
from ..run.setup import build_setup
from ..util.errors import InputError
from .facts import ClientFacts, Common, NodeFacts, SiteFacts
from .messages import Assignment, Request
from .node import NodeSettings
from .remote import UNKNOWN, RemoteClients, own_test_plan


class RecipeSite:
    """Clients of a recipe whose samples every node can load, for trials."""

    def __init__(self, settings: NodeSettings) -> None:
        self.settings = settings

    def facts(self, recipe: Recipe) -> NodeFacts:
        """Say which samples the recipe leads to at this node.

        Raises:
            InputError: the recipe has not so many clients.
        """
        clients = RecipeSource(recipe).clients(recipe.train.seeds[0])
        count = clients.census.num_clients
        for client in self.settings.clients:
            if client >= count:
                raise InputError(f"client {client}: the recipe has clients 0 to {count - 1}")
        return NodeFacts(own=False, content=clients.content)

    def backend(self, request: Request) -> LocalBackend:
        """Make the backend that trains; the server tests."""
        run, source = request.assignment, RecipeSource(request.recipe)
        variant = request.recipe.compare[run.variant]
        clients = source.clients(run.seed)
        setup = source.setup(variant, run.seed, clients)
        plan = TestPlan.empty()
        return _backend(setup, clients.train, plan, run.block_size, self.settings.workers)


class OwnSite:
    """Clients whose samples are here and nowhere else."""

    def __init__(self, settings: NodeSettings) -> None:
        self.settings = settings

    def facts(self, recipe: Recipe) -> NodeFacts:
        """Say what the server must know: numbers, the shape of a sample, the names of classes.

        Raises:
            InputError: the samples are not those of as many clients as the node has.
        """
        source, content = self._read(recipe)
        train, tests = self._deal_samples(source)
        test_hashes = {id(test): _hash_samples(test) for test in tests.values()}
        clients = {}
        for client, part in train.items():
            test = tests[client]
            clients[client] = ClientFacts(
                samples=len(part),
                distinct=_count_distinct(source.train, part),
                effective_classes=effective_classes(source.train.y.numpy()[part]),
                test_samples=len(test),
                content=_hash(_hash_samples(source.train, part), test_hashes[id(test)]),
            )
        x = source.train.x
        dtype = str(x.dtype).removeprefix("torch.")
        common = Common(tuple(x.shape[1:]), dtype, tuple(_class_names(source)))
        return NodeFacts(own=True, content=content, site=SiteFacts(common, clients))

    def backend(self, request: Request) -> LocalBackend:
        """Make the backend that trains and tests.

        Classes have the numbers that the server gave them.

        Raises:
            InputError: the samples are others than those of which the server knows.
        """
        recipe, run = request.recipe, request.assignment
        source, content = self._read(recipe)
        if request.content != content:
            raise InputError("data: other samples than when this node was asked about them")
        source = _renumber_classes(source, run)
        assert run.common is not None
        everybody = RemoteClients(run.common, [UNKNOWN] * run.clients, recipe.data)
        variant = recipe.compare[run.variant]
        setup = build_setup(recipe.of(variant), variant, everybody, run.seed)
        parts, tests = self._deal_samples(source)
        data = TrainData(source.train, parts, len(run.common.classes))
        no_samples = source.test.only(np.zeros(len(source.test), dtype=bool))
        sets = [TestSet.of(tests.get(client, no_samples)) for client in range(run.clients)]
        plan = own_test_plan(sets)
        tallies = collect_tallies(select(recipe.metrics.extra), plan)
        plan = replace(plan, tallies={tally.name: tally for tally in tallies})
        return _backend(setup, data, plan, run.block_size, self.settings.workers)

    def _read(self, recipe: Recipe) -> tuple[Source, str]:
        """Return the samples of this site and their hash."""
        path, options = self.settings.data, recipe.data
        source, content = _read_source(path, options.size, Path(path).stat().st_mtime_ns)
        return shrink(source, options.shrink), content

    def _deal_samples(self, source: Source) -> tuple[dict[int, Index], dict[int, Samples]]:
        """Deal the samples to the clients: one has all, several have those that name them.

        Returns:
            The places of each client's training samples, and its test samples.
        """
        clients = self.settings.clients
        if len(clients) == 1:
            (client,) = clients
            return {client: np.arange(len(source.train))}, {client: source.test}
        named = 1 if source.owner is None else int(source.owner.max()) + 1
        if source.owner is None or named != len(clients):
            count = named if named > 1 else "none"
            raise InputError(
                f"ids = {len(clients)} clients: the data of this site name {count}; an array "
                "'client' (npz) or client folders must name as many"
            )
        parts = dict(zip(clients, find_places(source.owner, len(clients)), strict=True))
        if source.test_owner is None:
            return parts, dict.fromkeys(clients, source.test)
        x, y = source.test.x, source.test.y
        places = find_places(source.test_owner, len(clients))
        tests = [replace(source.test, x=x[i], y=y[i]) for i in places]
        return parts, dict(zip(clients, tests, strict=True))


def site_of(settings: NodeSettings) -> RecipeSite | OwnSite:
    """Return the site of a node; where it has data of its own, nothing else is ever loaded."""
    return OwnSite(settings) if settings.data else RecipeSite(settings)


class MessageMemory(ClientMemory):
    """What the clients of one message remember; the node writes it to files by itself."""

    def spill(self, round: int) -> None:
        """Do nothing: the node writes and drops each block as soon as it is trained."""


class LastingPoolBackend(PoolBackend):
    """A backend whose processes stay from message to message, as long as none of them fails."""

    def __init__(
        self, setup: Setup, data: TrainData, plan: TestPlan, block_size: int, workers: int
    ) -> None:
        pool = lasting_pool(workers)
        with _close_on_failure(pool):
            super().__init__(setup, data, plan, block_size, pool, MessageMemory())

    def test(self, exams: Sequence[Exam]) -> list[Answers]:
        with _close_on_failure(self.pool):
            return super().test(exams)

    def _answer(self, work: Sequence[Work]) -> Sequence[Outcome]:
        workers = len(self.pool.processes)
        if self.pool is not lasting_pool(workers):  # some block before this one failed
            self.pool = lasting_pool(workers)
            self.pool.prepare(self.setup, self.data, self.plan)
        with _close_on_failure(self.pool):
            return super()._answer(work)


@lru_cache(maxsize=1)
def lasting_pool(workers: int) -> WorkerPool:
    """Return the processes of this node, the same ones in every call."""
    return WorkerPool(workers)


@contextmanager
def _close_on_failure(pool: WorkerPool) -> Iterator[None]:
    """Close the pool after a failure: a busy worker would answer to the next message."""
    try:
        yield
    except Exception:
        pool.close()
        lasting_pool.cache_clear()
        raise


def _backend(
    setup: Setup, data: TrainData, plan: TestPlan, block_size: int, workers: int
) -> LocalBackend:
    if workers == 1:
        return SerialBackend(setup, data, plan, block_size, MessageMemory())
    return LastingPoolBackend(setup, data, plan, block_size, workers)


@lru_cache(maxsize=1)
def _read_source(path: str, size: int, changed: int) -> tuple[Source, str]:
    """Read a site's own samples and hash them.

    Args:
        path: an .npz file, or a folder of images.
        size: to which images are scaled.
        changed: when the file changed last; after that it is read again.
    """
    source = npz.load(path) if Path(path).suffix == ".npz" else folder.load(path, size)
    return source, _hash(_hash_samples(source.train), _hash_samples(source.test))


def _renumber_classes(source: Source, run: Assignment) -> Source:
    """Give classes the numbers that they have in the whole federation."""
    assert run.common is not None
    classes, names = run.common.classes, _class_names(source)
    for name in names:
        if name not in classes:
            raise InputError(f"data: class {name!r} is not among those that the run began with")
    number = torch.tensor([classes.index(name) for name in names])
    train = replace(source.train, y=number[source.train.y])
    test = replace(source.test, y=number[source.test.y])
    return replace(source, train=train, test=test)


def _class_names(source: Source) -> list[str]:
    return list(source.class_names or map(str, range(source.num_classes)))


def _count_distinct(samples: Samples, part: Index) -> int:
    """Count the samples that differ in single precision; -0.0 is no other pixel."""
    distinct = {(samples.x[i].float() + 0.0).numpy().tobytes() for i in part}
    return len(distinct)


def _hash_samples(samples: Samples, part: Index | None = None) -> str:
    """Hash some samples with their classes; all of them by default."""
    chosen = slice(None) if part is None else torch.from_numpy(part)
    x, y = samples.x[chosen].contiguous(), samples.y[chosen].contiguous()
    return _hash(x.numpy().data, y.numpy().data)


def _hash(*parts: bytes | memoryview | str) -> str:
    digest = sha256()
    for part in parts:
        digest.update(part.encode() if isinstance(part, str) else part)
    return digest.hexdigest()[:16]
