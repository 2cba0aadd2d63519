"""How long a recipe will take here, estimated from a few steps of every variant."""

from __future__ import annotations

import time

from ..backends.base import Backend
from ..core.evaluation import Exam, RightByClass
from ..core.fast.block_size import choose_block_size
from ..core.round import draw_clients, play_round
from ..core.server import Server
from ..core.wire import State
from ..recipe.schema import Recipe, TrainConfig
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
            variant_recipe = recipe.of(variant)
            train = variant_recipe.train
            few_steps = train.model_copy(update={"local_steps": STEPS})
            short = variant_recipe.model_copy(update={"train": few_steps})
            setup = build_setup(short, variant, clients, seed)
            block_size = choose_block_size(setup.model, setup.spec, train.clients_at_once)
            plan = clients.test_plan(train.evaluate_samples, seed)
            backend = connect(setup, clients.train, plan, block_size)
            blocks = setup.spec.clients_per_round / block_size
            steps = train.rounds * train.local_steps * blocks
            total += steps * _time_step(Server(setup), backend, block_size)
            total += _count_tests(train) * _time_test(backend, setup.model.weights())
    return total * len(recipe.train.seeds)


def _time_step(server: Server, backend: Backend, block_size: int) -> float:
    """Time a step of one block."""
    block = draw_clients(server.setup.spec, 1)[:block_size]
    return play_round(server, backend, 1, block, everybody=block).seconds_training / STEPS


def _count_tests(train: TrainConfig) -> int:
    """Count the rounds after which the model is tested."""
    if not train.evaluate_every:
        return 1
    return train.rounds // train.evaluate_every


def _time_test(backend: Backend, params: State) -> float:
    """Time the testing of a model, by one batch of it."""
    plan = backend.plan
    pieces = plan.pieces(range(len(plan.sets)), quick=True)
    begin = time.perf_counter()
    backend.test([Exam(params, pieces[:1], (RightByClass.name,))])
    return (time.perf_counter() - begin) * len(pieces)


def format_duration(seconds: float) -> str:
    """Write a time in words.

    >>> format_duration(7300)
    '2 hours'
    """
    for unit, size in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} seconds" if seconds >= 1.5 else "a second"
