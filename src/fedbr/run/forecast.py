"""How long a recipe will take here: a few steps of a few clients of every variant are tried."""

from __future__ import annotations

import time

from ..backends.base import Backend
from ..core.evaluation import pieces
from ..core.fast.blocks import choose
from ..core.rng import stream
from ..core.server import Server
from ..core.wire import State
from ..recipe.schema import Recipe
from ..util.processes import one_thread
from .runner import clients_of
from .setup import build_setup, connect

STEPS = 3  # that are timed


def cpu_seconds(recipe: Recipe) -> float:
    """Estimate the CPU seconds of all runs of a recipe."""
    seed = recipe.train.seeds[0]
    clients = clients_of(recipe.data, seed)
    total = 0.0
    with one_thread():
        for variant in recipe.compare:
            own = recipe.of(variant)
            short = own.model_copy(
                update={"train": own.train.model_copy(update={"local_steps": STEPS})}
            )
            this = build_setup(short, variant, clients, seed)
            block_size = choose(this.model, this.spec, own.train.clients_at_once)
            server, backend = (
                Server(this),
                connect(this, clients, block_size, None, own.train.evaluate_samples),
            )
            steps = (
                own.train.rounds * own.train.local_steps * this.spec.clients_per_round / block_size
            )
            total += steps * _step(server, backend, block_size)
            total += _tests(own) * _test(backend, this.model.weights(), len(clients.tests))
    return total * len(recipe.train.seeds)


def _step(server: Server, backend: Backend, block_size: int) -> float:
    """Time a step of one block."""
    spec = server.setup.spec
    chosen = sorted(
        stream(spec.seed, "clients", 1).permutation(spec.num_clients)[:block_size].tolist()
    )
    for when in (0, 1):
        server.absorb_contributions(when, backend.run(server.contribute_tasks(when, chosen)))
    tasks = server.train_tasks(1, chosen)
    begun = time.perf_counter()
    backend.run(tasks)
    return (time.perf_counter() - begun) / STEPS


def _tests(recipe: Recipe) -> int:
    every = recipe.train.evaluate_every
    return recipe.train.rounds // every if every else 1


def _test(backend: Backend, params: State, sets: int) -> float:
    """Time the testing of a model, by one batch of it."""
    first = len(backend.tests) - sets
    same = {
        id(backend.tests[t]): t for t in range(first, len(backend.tests)) if len(backend.tests[t])
    }
    asked = pieces(backend.tests, same.values())
    begun = time.perf_counter()
    backend.test([(params, asked[:1])])
    return (time.perf_counter() - begun) * len(asked)


def words(seconds: float) -> str:
    """Say a time in words."""
    for unit, size in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} seconds" if seconds >= 1.5 else "a second"
