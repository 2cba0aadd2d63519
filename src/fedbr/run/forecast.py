"""How long a recipe will take here: a few steps of a few clients of every variant are tried."""

from __future__ import annotations

import time

from ..backends.base import Backend
from ..core.evaluation import Exam, RightByClass
from ..core.fast.blocks import choose
from ..core.round import draw_clients, play_round
from ..core.server import Server
from ..core.wire import State
from ..recipe.schema import Recipe
from ..util.processes import one_thread
from .plan import clients_of
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
            few_steps = own.train.model_copy(update={"local_steps": STEPS})
            short = own.model_copy(update={"train": few_steps})
            setup = build_setup(short, variant, clients, seed)
            block_size = choose(setup.model, setup.spec, own.train.clients_at_once)
            plan = clients.test_plan(own.train.evaluate_samples, seed)
            backend = connect(setup, clients.train, plan, block_size)
            blocks = setup.spec.clients_per_round / block_size
            steps = own.train.rounds * own.train.local_steps * blocks
            total += steps * _step(Server(setup), backend, block_size)
            total += _tests(own) * _test(backend, setup.model.weights())
    return total * len(recipe.train.seeds)


def _step(server: Server, backend: Backend, block_size: int) -> float:
    """Time a step of one block."""
    some = draw_clients(server.setup.spec, 1)[:block_size]
    return play_round(server, backend, 1, some, everybody=some).seconds_training / STEPS


def _tests(recipe: Recipe) -> int:
    every = recipe.train.evaluate_every
    return recipe.train.rounds // every if every else 1


def _test(backend: Backend, params: State) -> float:
    """Time the testing of a model, by one batch of it."""
    plan = backend.plan
    pieces = plan.pieces(range(len(plan.sets)), quick=True)
    begin = time.perf_counter()
    backend.test([Exam(params, pieces[:1], (RightByClass.name,))])
    return (time.perf_counter() - begin) * len(pieces)


def words(seconds: float) -> str:
    """Say a time in words.

    >>> words(7300)
    '2 hours'
    """
    for unit, size in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} seconds" if seconds >= 1.5 else "a second"
