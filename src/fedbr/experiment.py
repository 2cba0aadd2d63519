"""Read this first: a recipe becomes objects, the objects play rounds, the rounds become results."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from . import data, models
from .backends.base import Backend, one_thread, usable_cores
from .backends.pool import PoolBackend, WorkerPool
from .backends.serial import SerialBackend
from .config import Recipe, Stack, TrainConfig
from .core.client import Job
from .core.cohort import choose
from .core.data import Spec
from .core.errors import Diverged, InputError
from .core.method import Method, check_stack
from .core.model import FedModel
from .core.rng import stream, torch_stream
from .core.server import Server
from .core.wire import nbytes
from .data import Federation, PartitionOptions
from .metrics.accuracy import evaluate
from .results.store import ResultFolder, RunFolder

Line = dict[str, Any]  # one round, as in metrics.jsonl
Watch = Callable[[str, int, Line | None], None]  # label, seed, the round just done (None: the run begins)


def run(recipe: Recipe, out: Path, workers: int = 1, fresh: bool = False, watch: Watch = lambda *_: None) -> Line:
    """Train every stack of a recipe for every seed; go on where an earlier call stopped."""
    for stack in recipe.compare:  # refuse what cannot work before anything is written
        job(recipe, stack, federation(recipe, recipe.train.seeds[0]), recipe.train.seeds[0])
    folder = ResultFolder(out, recipe)
    with folder.open(fresh), one_thread(), ExitStack() as exits:
        pool = exits.enter_context(WorkerPool(workers)) if workers > 1 else None
        try:
            for seed in recipe.train.seeds:
                clients = federation(recipe, seed)
                for stack in recipe.compare:
                    watch(stack.label, seed, None)
                    play(recipe, stack, seed, clients, folder.run(stack, seed), pool, watch)
                    folder.summarise()
        finally:
            results = folder.summarise()
    return results


def play(
    recipe: Recipe,
    stack: Stack,
    seed: int,
    clients: Federation,
    folder: RunFolder,
    pool: WorkerPool | None,
    watch: Watch,
) -> None:
    """Play one run to its end, or to the round in which it diverges."""
    this = job(recipe, stack, clients, seed)
    cohort = choose(this.model, this.spec, recipe.train.cohort)
    server, backend = Server(this), connect(this, clients, cohort, pool)
    parameters = sum(p.numel() for k, p in this.model.named_parameters() if not k.startswith("extras."))
    about = {
        "name": recipe.model.name,
        "parameters": parameters,
        "fingerprint": models.fingerprint(this.model),
    }
    if "diverged_at" in folder.info:
        return
    folder.note(split=clients.describe(), model=about, cohort=cohort, own_tests=len(clients.tests) > 1)
    done = folder.resume(server, backend)
    for line in folder.lines():
        watch(stack.label, seed, line)
    try:
        for line in rounds(server, backend, clients, done + 1, recipe.train.rounds, recipe.train.evaluate_every):
            folder.append(line)
            folder.checkpoint(line["round"], server, backend)
            watch(stack.label, seed, line)
    except Diverged as error:
        folder.note(diverged_at={"round": error.round, "client": error.client, "what": error.what})
        return
    folder.save_model(server.params, about | {"options": recipe.model.options, "shape": clients.shape})


def rounds(
    server: Server, backend: Backend, clients: Federation, first: int, last: int, evaluate_every: int
) -> Iterator[Line]:
    """The round loop: the same for every method and every backend."""
    spec = server.job.spec
    for round in range(first, last + 1):
        start, down, up = time.perf_counter(), 0, 0
        chosen = stream(spec.seed, "clients", round).permutation(spec.num_clients)[: spec.clients_per_round]
        cohort = sorted(chosen.tolist())
        for when, asked in ((0, range(spec.num_clients)), (round, cohort)):
            if when == round or round == 1:  # before the first round, every client is asked
                contributions = backend.run(server.contribute_tasks(when, asked))
                server.absorb_contributions(when, contributions)
                up += sum(nbytes(reply.payload) for reply in contributions)
        tasks = server.train_tasks(round, cohort)
        replies = backend.run(tasks)
        server.absorb(round, replies)
        down += sum(nbytes(task.payload) for task in tasks)
        up += sum(nbytes(reply.payload) for reply in replies)
        trained = time.perf_counter()
        tested = None
        if round == last or (evaluate_every and round % evaluate_every == 0):
            tested = evaluate(server.job.model, server.params, clients.tests, clients.label_mix, spec.dtype)
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
            "clients": cohort,
        }


def federation(recipe: Recipe, seed: int) -> Federation:
    """Make the clients of a recipe; every stack with the same seed has the same ones."""
    d = recipe.data
    return data.load(d.name, d.clients, d.partition, PartitionOptions(d.alpha, d.shards_per_client), d.proxy, seed)


def job(recipe: Recipe, stack: Stack, clients: Federation, seed: int) -> Job:
    """Make what stays the same during a run: methods, model with its initial weights, settings."""
    with torch_stream(seed, "model"):
        model = models.build(recipe.model.name, recipe.model.options, clients.shape, clients.num_classes)
    return assemble(model, stack.build(), clients, recipe.train, seed)


def assemble(model: FedModel, methods: Sequence[Method], clients: Federation, train: TrainConfig, seed: int) -> Job:
    """Put the parts of a run together and check that they fit."""
    check_stack(methods)
    count, dtype = len(clients.train.parts), getattr(torch, train.dtype)
    if (train.clients_per_round or 0) > count:
        raise InputError(f"train.clients_per_round = {train.clients_per_round}: there are only {count} clients")
    spec = Spec(
        shape=clients.shape,
        num_classes=clients.num_classes,
        num_clients=count,
        clients_per_round=train.clients_per_round or count,
        seed=seed,
        dtype=dtype,
        proxy=None if clients.proxy is None else clients.proxy.see(slice(None), dtype),
        **train.model_dump(include={"local_steps", "batch_size", "lr", "momentum", "weight_decay", "aggregate"}),
    )
    for method in methods:
        method.check(spec, clients.sizes)
        with torch_stream(seed, "model", method.name):  # its own stream: the model starts the same for all stacks
            if (extra := method.extra_module(model, spec)) is not None:
                model.extras[method.name] = extra
    models.check(model, spec.shape, spec.num_classes)
    return Job(methods, model.to(dtype), spec)


def default_workers(recipe: Recipe) -> int:
    """One process per core that may be used, but no more than clients in a round."""
    return min(usable_cores(), recipe.train.clients_per_round or recipe.data.clients)


def connect(job: Job, clients: Federation, cohort: int, pool: WorkerPool | None) -> Backend:
    """Choose who trains the clients: this process or a pool of them."""
    if pool is None:
        return SerialBackend(job, clients.train, cohort)
    return PoolBackend(job, clients.train, cohort, pool)
