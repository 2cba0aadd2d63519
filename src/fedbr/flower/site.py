"""A site: its own samples, or its share of a recipe's for trials, and who trains on them."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .. import __version__
from ..backends.base import Answers, LocalBackend, Work
from ..backends.memory import ClientMemory
from ..backends.pool import PoolBackend, WorkerPool
from ..backends.serial import SerialBackend
from ..core.evaluation import Exam
from ..core.samples import Index, Samples, TrainData
from ..core.setup import Setup
from ..data import Federation
from ..data.federation import Source
from ..data.partition import effective_classes, grouped
from ..data.shrinking import shrunk
from ..data.sources import own
from ..recipe.load import parse
from ..recipe.schema import Recipe
from ..run.setup import build_setup, federation
from ..util.errors import InputError
from .node import NodeSettings
from .sites import stub


class Held(ClientMemory):
    """Memory of the clients of one message, which goes to files of the node by itself."""

    def spill(self) -> None:
        """Keep it here: each block is written and dropped as soon as it is done."""


class Crew(PoolBackend):
    """Processes of a node, which stay from message to message as long as none of them fails."""

    def __init__(
        self, this: Setup, data: TrainData, tests: Sequence[Samples], block_size: int, workers: int
    ) -> None:
        pool = _pool(workers)
        with _dropped(pool):
            super().__init__(this, data, tests, block_size, pool, Held())

    def test(self, exams: Sequence[Exam]) -> list[Tensor]:
        with _dropped(self.pool):
            return super().test(exams)

    def _answer(self, work: Sequence[Work]) -> Sequence[Answers]:
        workers = len(self.pool.processes)
        if self.pool is not _pool(workers):  # some block before this one failed
            self.pool = _pool(workers)
            self.pool.prepare(self.setup, self.data, self.tests)
        with _dropped(self.pool):
            return super()._answer(work)


class RecipeSite:
    """The node's clients of a recipe that every node can load."""

    version = __version__

    def __init__(self, settings: NodeSettings) -> None:
        self.settings = settings

    def facts(self, order: Mapping[str, Any]) -> dict[str, Any]:
        """Say which samples the recipe led to here."""
        recipe = parse(order["recipe"])
        clients = _federation(recipe.to_toml(), recipe.train.seeds[0])
        _check_known(self.settings.clients, len(clients.train.parts))
        return {"own": False, "content": clients.content}

    def desk(self, order: Mapping[str, Any]) -> LocalBackend:
        """Make who trains."""
        recipe, seed = parse(order["recipe"]), int(order["seed"])
        variant = recipe.compare[int(order["variant"])]
        clients = _federation(recipe.to_toml(), seed)
        this = build_setup(recipe.of(variant), variant, clients, seed)
        return _desk(this, clients.train, [], int(order["block_size"]), self.settings.workers)


class OwnSite:
    """Clients whose samples are here and nowhere else."""

    version = __version__

    def __init__(self, settings: NodeSettings) -> None:
        self.settings = settings

    def facts(self, order: Mapping[str, Any]) -> dict[str, Any]:
        """Say what the server must know: figures, the shape of a sample, the names of classes."""
        source, content = self._source(parse(order["recipe"]))
        train, tests = self._parts(source)
        x, y = source.train.x, source.train.y.numpy()
        tested = {
            key: _content(test) for key, test in {id(test): test for test in tests.values()}.items()
        }
        clients = {
            str(client): {
                "samples": len(part),
                "distinct": len({(x[i].float() + 0.0).numpy().tobytes() for i in part}),
                "effective_classes": effective_classes(y[part]),
                "test_samples": len(tests[client]),
                "content": _hash(_content(source.train, part), tested[id(tests[client])]),
            }
            for client, part in train.items()
        }
        shape, dtype = list(x.shape[1:]), str(x.dtype).removeprefix("torch.")
        about = {"own": True, "content": content, "shape": shape, "dtype": dtype}
        return about | {"classes": _names(source), "by_client": clients}

    def desk(self, order: Mapping[str, Any]) -> LocalBackend:
        """Make who trains and tests; classes have the numbers that the server gave them."""
        recipe, seed, common = parse(order["recipe"]), int(order["seed"]), order["common"]
        variant, count = recipe.compare[int(order["variant"])], int(order["clients"])
        source, content = self._source(recipe)
        if order["content"] != content:
            raise InputError("data: other samples than when this node was asked about them")
        if strangers := [name for name in _names(source) if name not in common["classes"]]:
            raise InputError(
                f"data: class {strangers[0]!r} is not among those that the run began with"
            )
        number = torch.tensor([common["classes"].index(name) for name in _names(source)])
        train, test = (replace(s, y=number[s.y]) for s in (source.train, source.test))
        everyone = stub(common, recipe.data, count)
        this = build_setup(recipe.of(variant), variant, everyone, seed)
        parts, tests = self._parts(replace(source, train=train, test=test))
        data = TrainData(train, parts, everyone.num_classes)
        nothing = test.only(np.zeros(len(test), dtype=bool))
        exams = [tests.get(client, nothing) for client in range(count)]
        return _desk(this, data, exams, int(order["block_size"]), self.settings.workers)

    def _source(self, recipe: Recipe) -> tuple[Source, str]:
        path, options = self.settings.data, recipe.data
        source, content = _read(path, options.size, Path(path).stat().st_mtime_ns)
        return shrunk(source, options.shrink), content

    def _parts(self, source: Source) -> tuple[dict[int, Index], dict[int, Samples]]:
        """Deal the site's samples to its clients: one has all, several have those that name them."""
        clients = self.settings.clients
        if len(clients) == 1:
            return {clients[0]: np.arange(len(source.train))}, {clients[0]: source.test}
        found = 1 if source.owner is None else int(source.owner.max()) + 1
        if source.owner is None or found != len(clients):
            raise InputError(
                f"ids = {len(clients)} clients: the data of this site name {found if found > 1 else 'none'}; "
                "an array 'client' (npz) or client folders must name as many"
            )
        parts = dict(zip(clients, grouped(source.owner, len(clients)), strict=True))
        if source.test_owner is None:
            return parts, dict.fromkeys(clients, source.test)
        x, y = source.test.x, source.test.y
        tests = [
            replace(source.test, x=x[i], y=y[i]) for i in grouped(source.test_owner, len(clients))
        ]
        return parts, dict(zip(clients, tests, strict=True))


def site_of(settings: NodeSettings) -> RecipeSite | OwnSite:
    """Choose by whether a site has data of its own; then nothing else is ever loaded there."""
    return OwnSite(settings) if settings.data else RecipeSite(settings)


def _desk(
    this: Setup, data: TrainData, tests: Sequence[Samples], block_size: int, workers: int
) -> LocalBackend:
    if workers == 1:
        return SerialBackend(this, data, tests, block_size, Held())
    return Crew(this, data, tests, block_size, workers)


@lru_cache(maxsize=1)
def _pool(workers: int) -> WorkerPool:
    return WorkerPool(workers)


@contextmanager
def _dropped(pool: WorkerPool) -> Iterator[None]:
    """After a failure, let others work: who is still busy would answer to the next question."""
    try:
        yield
    except Exception:
        pool.close()
        _pool.cache_clear()
        raise


@lru_cache(maxsize=2)
def _federation(recipe: str, seed: int) -> Federation:
    """Load the clients of a recipe once, in a process that stays."""
    return federation(parse(tomllib.loads(recipe)), seed)


@lru_cache(maxsize=1)
def _read(path: str, size: int, changed: int) -> tuple[Source, str]:
    """Read a site's own samples, and hash them; again when the file has changed."""
    source = own.npz(path) if Path(path).suffix == ".npz" else own.folder(path, size)
    return source, _hash(_content(source.train), _content(source.test))


def _check_known(clients: Sequence[int], count: int) -> None:
    if strangers := [client for client in clients if client >= count]:
        raise InputError(f"client {strangers[0]}: the recipe has clients 0 to {count - 1}")


def _names(source: Source) -> list[str]:
    return list(source.class_names or map(str, range(source.num_classes)))


def _content(samples: Samples, part: Index | None = None) -> str:
    chosen = slice(None) if part is None else torch.from_numpy(part)
    return _hash(*(tensor[chosen].contiguous().numpy().data for tensor in (samples.x, samples.y)))


def _hash(*parts: bytes | memoryview | str) -> str:
    digest = sha256()
    for part in parts:
        digest.update(part.encode() if isinstance(part, str) else part)
    return digest.hexdigest()[:16]
