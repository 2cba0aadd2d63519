"""Read this first: a recipe becomes objects, the objects play rounds, the rounds become results."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from .. import models
from ..backends.base import Backend
from ..backends.memory import ClientMemory
from ..backends.pool import WorkerPool
from ..core.fast.blocks import choose
from ..core.rng import stream
from ..core.server import Server
from ..core.wire import nbytes
from ..data import Federation
from ..metrics.accuracy import evaluate
from ..metrics.local import local_bias
from ..recipe.schema import Recipe, Variant
from ..report.files import write_csv
from ..util.errors import Diverged
from ..util.processes import one_thread
from .folder import ResultFolder, RunFolder
from .setup import build_setup, connect, federation, useful_workers

Line = dict[str, Any]  # one round, as in metrics.jsonl
Watch = Callable[
    [str, int, Line | None], None
]  # label, seed, the round just done (None: the run begins)


def run(
    recipe: Recipe,
    out: Path,
    workers: int | None = 1,
    fresh: bool = False,
    watch: Watch = lambda *_: None,
) -> Line:
    """Train every variant of a recipe for every seed; go on where an earlier call stopped."""
    clients = lru_cache(maxsize=1)(
        partial(federation, recipe)
    )  # of a seed; the plan goes seed by seed
    seed = recipe.train.seeds[0]
    tried = [
        build_setup(recipe.of(variant), variant, clients(seed), seed) for variant in recipe.compare
    ]  # refuse before anything is written
    workers = workers or useful_workers(tried[0], recipe.train)
    folder = ResultFolder(out, recipe)
    with folder.open(fresh), one_thread(), ExitStack() as exits:
        plan = [
            (variant, seed, folder.run(variant, seed))
            for seed in recipe.train.seeds
            for variant in recipe.compare
        ]
        pending = [this for *_, this in plan if not this.finished]
        pool = exits.enter_context(WorkerPool(workers)) if workers > 1 and pending else None
        exits.callback(write_csv, out)
        exits.callback(folder.summarise)
        for variant, seed, this in plan:
            watch(variant.label, seed, None)
            if this.finished and seed == recipe.train.seeds[0]:  # whose clients are here anyway
                this.claim(clients(seed).content)
            for line in this.lines():
                watch(variant.label, seed, line)
            if not this.finished:
                play(recipe, variant, seed, clients(seed), this, pool, watch)
                folder.summarise()
    return folder.results()


def play(
    recipe: Recipe,
    variant: Variant,
    seed: int,
    clients: Federation,
    folder: RunFolder,
    pool: WorkerPool | None,
    watch: Watch,
    connect: Callable[..., Backend] = connect,
) -> None:
    """Play one run to its end, or to the round in which it diverges."""
    recipe = recipe.of(variant)
    this = build_setup(recipe, variant, clients, seed)
    block_size = choose(this.model, this.spec, recipe.train.clients_at_once)
    server = Server(this)
    backend = connect(
        this,
        clients,
        block_size,
        pool,
        recipe.train.evaluate_samples,
        ClientMemory(folder.path / "memory"),
    )
    parameters = sum(
        p.numel() for k, p in this.model.named_parameters() if not k.startswith("extras.")
    )
    about = {
        "name": recipe.model.name,
        "parameters": parameters,
        "fingerprint": models.fingerprint(this.model),
    }
    folder.claim(clients.content)
    folder.note(
        split=clients.describe(),
        classes=clients.classes(),
        model=about,
        clients_at_once=block_size,
        device=str(this.spec.device),
        code=recipe.code(variant),
        joint=this.spec.joint,
        own_tests=clients.shares is not None,
        test=_tested_on(backend, clients),
    )
    done = folder.resume(server, backend)
    last, every = recipe.train.rounds, (recipe.train.evaluate_every, recipe.metrics.bias_every)
    try:
        for line in rounds(server, backend, clients, done + 1, last, *every):
            folder.append(line)
            folder.checkpoint(line["round"], server, backend)
            watch(variant.label, seed, line)
    except Diverged as error:
        folder.note(diverged_at={"round": error.round, "client": error.client, "what": error.what})
        return
    facts = about | {
        "options": recipe.model.options,
        "shape": clients.shape,
        "methods": variant.rebuilding,
    }
    folder.save_model(server.models(backend.states), facts | clients.seen_as)


def _tested_on(backend: Backend, clients: Federation) -> dict[str, int]:
    """Count the test samples: of the last round and of the others; a set that several clients share
    counts once.
    """
    sizes = [
        sum(map(len, {id(test): test for test in some}.values()))
        for some in (clients.tests, backend.tests[-len(clients.tests) :])
    ]
    return dict(zip(("last", "others"), sizes, strict=True))


def rounds(
    server: Server,
    backend: Backend,
    clients: Federation,
    first: int,
    last: int,
    evaluate_every: int,
    bias: int = 0,
) -> Iterator[Line]:
    """The round loop: the same for every method and every backend. ``bias``: as metrics.bias_every."""
    spec, label_mix, shares = server.setup.spec, clients.label_mix, clients.shares
    whole = range(len(clients.tests))
    usual = range(len(backend.tests))[-len(whole) :]  # a part of each, or the whole after all
    for round in range(first, last + 1):
        start, down, up = time.perf_counter(), 0, 0
        drawn = stream(spec.seed, "clients", round).permutation(spec.num_clients)[
            : spec.clients_per_round
        ]
        chosen = sorted(drawn.tolist())
        for when, asked in ((0, range(spec.num_clients)), (round, chosen)):
            if when == round or round == 1:  # before the first round, every client is asked
                contributions = backend.run(server.contribute_tasks(when, asked))
                server.absorb_contributions(when, contributions)
                up += sum(nbytes(reply.payload) for reply in contributions)
        tasks = server.train_tasks(round, chosen)
        replies = backend.run(tasks)
        server.absorb(round, replies)
        down += sum(nbytes(task.payload) for task in tasks)
        up += sum(nbytes(reply.payload) for reply in replies)
        trained = time.perf_counter()
        tested, local, sets = None, {}, whole if round == last else usual
        if round == last or (evaluate_every and round % evaluate_every == 0):
            tested = evaluate(backend, server.models(backend.states), sets, shares, label_mix)
        if bias and (round == last or round % bias == 0):
            local = local_bias(backend, server, tasks, replies, sets, label_mix, clients.sizes)
        yield {
            "round": round,
            "accuracy": tested and tested.accuracy,
            "accuracy_worst": tested and tested.worst,
            "accuracy_clients": tested and tested.clients,
            "loss": sum(reply.metrics["loss"] for reply in replies) / len(replies),
            "bytes_up": up,
            "bytes_down": down,
            "seconds_train": trained - start,
            "seconds_evaluate": time.perf_counter() - trained,
            "clients": [reply.client for reply in replies],
        } | local
