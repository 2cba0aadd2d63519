"""A site: its own samples, or its share of a recipe's for trials, and who trains on them."""

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
from ..metrics import used
from ..recipe.schema import Recipe
from ..run.loop import wanted
from ..run.plan import RecipeSource
from ..run.setup import build_setup
from ..util.errors import InputError
from .facts import ClientFacts, Common, NodeFacts, SiteFacts
from .messages import Assignment, Request
from .node import NodeSettings
from .remote import UNKNOWN, RemoteClients, own_tests


class RecipeSite:
    """The node's clients of a recipe that every node can load."""

    def __init__(self, settings: NodeSettings) -> None:
        self.settings = settings

    def facts(self, recipe: Recipe) -> NodeFacts:
        """Say which samples the recipe led to here."""
        clients = RecipeSource(recipe).clients(recipe.train.seeds[0])
        count = clients.census.num_clients
        if strangers := [client for client in self.settings.clients if client >= count]:
            raise InputError(f"client {strangers[0]}: the recipe has clients 0 to {count - 1}")
        return NodeFacts(own=False, content=clients.content)

    def backend(self, request: Request) -> LocalBackend:
        """Make who trains; the server tests."""
        run, source = request.assignment, RecipeSource(request.recipe)
        variant = request.recipe.compare[run.variant]
        clients = source.clients(run.seed)
        setup = source.setup(variant, run.seed, clients)
        plan = TestPlan.nothing()
        return _backend(setup, clients.train, plan, run.block_size, self.settings.workers)


class OwnSite:
    """Clients whose samples are here and nowhere else."""

    def __init__(self, settings: NodeSettings) -> None:
        self.settings = settings

    def facts(self, recipe: Recipe) -> NodeFacts:
        """Say what the server must know: figures, the shape of a sample, the names of classes."""
        source, content = self._source(recipe)
        train, tests = self._parts(source)
        hashes = {id(test): _content(test) for test in tests.values()}
        clients = {}
        for client, part in train.items():
            test = tests[client]
            clients[client] = ClientFacts(
                samples=len(part),
                distinct=_count_distinct(source.train, part),
                effective_classes=effective_classes(source.train.y.numpy()[part]),
                test_samples=len(test),
                content=_hash(_content(source.train, part), hashes[id(test)]),
            )
        x = source.train.x
        dtype = str(x.dtype).removeprefix("torch.")
        common = Common(tuple(x.shape[1:]), dtype, tuple(_names(source)))
        return NodeFacts(own=True, content=content, site=SiteFacts(common, clients))

    def backend(self, request: Request) -> LocalBackend:
        """Make who trains and tests; classes have the numbers that the server gave them."""
        recipe, run = request.recipe, request.assignment
        source, content = self._source(recipe)
        if request.content != content:
            raise InputError("data: other samples than when this node was asked about them")
        source = _numbered(source, run)
        assert run.common is not None
        everybody = RemoteClients(run.common, [UNKNOWN] * run.clients, recipe.data)
        variant = recipe.compare[run.variant]
        setup = build_setup(recipe.of(variant), variant, everybody, run.seed)
        parts, tests = self._parts(source)
        data = TrainData(source.train, parts, len(run.common.classes))
        nothing = source.test.only(np.zeros(len(source.test), dtype=bool))
        plan = own_tests([TestSet.of(tests.get(c, nothing)) for c in range(run.clients)])
        tallies = wanted(used(recipe.metrics.extra), plan)
        plan = replace(plan, tallies={tally.name: tally for tally in tallies})
        return _backend(setup, data, plan, run.block_size, self.settings.workers)

    def _source(self, recipe: Recipe) -> tuple[Source, str]:
        path, options = self.settings.data, recipe.data
        source, content = _read(path, options.size, Path(path).stat().st_mtime_ns)
        return shrink(source, options.shrink), content

    def _parts(self, source: Source) -> tuple[dict[int, Index], dict[int, Samples]]:
        """Deal the samples to the clients: one has all, several have those that name them."""
        clients = self.settings.clients
        if len(clients) == 1:
            return {clients[0]: np.arange(len(source.train))}, {clients[0]: source.test}
        named = 1 if source.owner is None else int(source.owner.max()) + 1
        if source.owner is None or named != len(clients):
            raise InputError(
                f"ids = {len(clients)} clients: the data of this site name "
                f"{named if named > 1 else 'none'}; an array 'client' (npz) or client folders must "
                "name as many"
            )
        parts = dict(zip(clients, find_places(source.owner, len(clients)), strict=True))
        if source.test_owner is None:
            return parts, dict.fromkeys(clients, source.test)
        x, y = source.test.x, source.test.y
        places = find_places(source.test_owner, len(clients))
        tests = [replace(source.test, x=x[i], y=y[i]) for i in places]
        return parts, dict(zip(clients, tests, strict=True))


def site_of(settings: NodeSettings) -> RecipeSite | OwnSite:
    """Choose by whether a site has data of its own; then nothing else is ever loaded there."""
    return OwnSite(settings) if settings.data else RecipeSite(settings)


class MessageMemory(ClientMemory):
    """What the clients of one message remember; the node writes it to files by itself."""

    def spill(self, round: int) -> None:
        """Keep it here: each block is written and dropped as soon as it is done."""


class LastingPoolBackend(PoolBackend):
    """Uses processes that stay from message to message as long as none of them fails."""

    def __init__(
        self, setup: Setup, data: TrainData, plan: TestPlan, block_size: int, workers: int
    ) -> None:
        pool = lasting_pool(workers)
        with _closed_on_failure(pool):
            super().__init__(setup, data, plan, block_size, pool, MessageMemory())

    def test(self, exams: Sequence[Exam]) -> list[Answers]:
        with _closed_on_failure(self.pool):
            return super().test(exams)

    def _answer(self, work: Sequence[Work]) -> Sequence[Outcome]:
        workers = len(self.pool.processes)
        if self.pool is not lasting_pool(workers):  # some block before this one failed
            self.pool = lasting_pool(workers)
            self.pool.prepare(self.setup, self.data, self.plan)
        with _closed_on_failure(self.pool):
            return super()._answer(work)


@lru_cache(maxsize=1)
def lasting_pool(workers: int) -> WorkerPool:
    """Return the processes of this node."""
    return WorkerPool(workers)


@contextmanager
def _closed_on_failure(pool: WorkerPool) -> Iterator[None]:
    """After a failure, let others work: who is still busy would answer to the next question."""
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
def _read(path: str, size: int, changed: int) -> tuple[Source, str]:
    """Read a site's own samples, and hash them; again when the file has changed."""
    source = npz.load(path) if Path(path).suffix == ".npz" else folder.load(path, size)
    return source, _hash(_content(source.train), _content(source.test))


def _numbered(source: Source, run: Assignment) -> Source:
    """Give classes the numbers that they have in the whole federation."""
    assert run.common is not None
    known, names = run.common.classes, _names(source)
    if strangers := [name for name in names if name not in known]:
        raise InputError(f"data: class {strangers[0]!r} is not among those that the run began with")
    number = torch.tensor([known.index(name) for name in names])
    train = replace(source.train, y=number[source.train.y])
    test = replace(source.test, y=number[source.test.y])
    return replace(source, train=train, test=test)


def _names(source: Source) -> list[str]:
    return list(source.class_names or map(str, range(source.num_classes)))


def _count_distinct(samples: Samples, part: Index) -> int:
    """Count the samples that differ in single precision; -0.0 is no other pixel."""
    return len({(samples.x[i].float() + 0.0).numpy().tobytes() for i in part})


def _content(samples: Samples, part: Index | None = None) -> str:
    chosen = slice(None) if part is None else torch.from_numpy(part)
    return _hash(*(tensor[chosen].contiguous().numpy().data for tensor in (samples.x, samples.y)))


def _hash(*parts: bytes | memoryview | str) -> str:
    digest = sha256()
    for part in parts:
        digest.update(part.encode() if isinstance(part, str) else part)
    return digest.hexdigest()[:16]
