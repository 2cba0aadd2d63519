"""Read this first: a run becomes objects, the objects play rounds, the rounds become records."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from .. import metrics, models
from ..backends.base import Backend
from ..core.census import Census, Clients
from ..core.evaluation import TestPlan
from ..core.fast.block_size import choose_block_size
from ..core.records import Divergence, ModelFacts, RoundRecord, TestSizes
from ..core.round import PlayedRound, draw_clients, play_round
from ..core.server import Server
from ..core.setup import Setup
from ..metrics import MeasuredRound, Metric
from ..metrics.local import local_bias
from ..recipe.schema import Recipe
from ..util.errors import Diverged
from .plan import PlannedRun
from .store import RunStore, weights_of


class Connect(Protocol):
    """Makes the backend of a run: this process, a pool of them, or the nodes of a federation."""

    def __call__(
        self, run: PlannedRun, setup: Setup, clients: Any, block_size: int, store: RunStore
    ) -> Backend: ...


def play(
    run: PlannedRun,
    clients: Clients,
    store: RunStore,
    connect: Connect,
    on_round: Callable[[RoundRecord], object],
) -> None:
    """Play one run to its end, or to the round in which it diverges; go on where it stopped.

    Args:
        clients: the clients of the run's seed.
        store: what is kept of the run; its rounds are not played again.
        connect: makes the backend that trains and tests.
        on_round: is called with the record of every round that is done.

    Raises:
        InputError: the parts do not fit together, or the run began with other samples.
    """
    recipe = run.recipe
    setup = run.experiment.source.setup(run.variant, run.seed, clients)
    block_size = choose_block_size(setup.model, setup.spec, recipe.train.clients_at_once)
    server = Server(setup)
    model = _describe_model(recipe.model.name, setup)
    store.claim(clients.content)
    backend = connect(run, setup, clients, block_size, store)
    store.note(
        split=clients.census.split,
        classes=clients.census.classes,
        model=model,
        clients_at_once=block_size,
        device=str(setup.spec.device),
        code=run.experiment.source.code(run.variant),
        joint=setup.spec.joint,
        own_tests=backend.plan.shares is not None,
        test=_test_sizes(backend.plan),
    )
    done = store.resume(server, backend)
    try:
        for record in rounds(recipe, server, backend, clients.census, done + 1):
            store.append(record)
            store.checkpoint(record.round, server, backend)
            on_round(record)
    except Diverged as error:
        store.diverge(Divergence(error.round, error.client, error.what))
        return
    facts = {
        **asdict(model),
        "options": recipe.model.options,
        "shape": clients.census.shape,
        "methods": run.model_methods(),
        **clients.census.seen_as,
    }
    store.save_model(weights_of(server, backend), facts)


def rounds(
    recipe: Recipe, server: Server, backend: Backend, census: Census, first: int
) -> Iterator[RoundRecord]:
    """Play the rounds from ``first`` on and yield the record of each.

    This loop is the same for every method, every backend and every metric.
    """
    spec = server.setup.spec
    measure = Measure(recipe, server, backend, census, metrics.select(recipe.metrics.extra))
    for round in range(first, recipe.train.rounds + 1):
        everybody = range(spec.num_clients) if round == 1 else ()
        clients = draw_clients(spec, round)
        played = play_round(server, backend, round, clients, everybody)
        yield measure(played)


@dataclass(frozen=True)
class Measure:
    """Tests what a round has made, and makes its record."""

    recipe: Recipe
    server: Server
    backend: Backend
    census: Census
    metrics: Sequence[Metric]

    def __call__(self, played: PlayedRound) -> RoundRecord:
        """Return the record of a round; test its models if the recipe says so."""
        begin = time.perf_counter()
        last = played.round == self.recipe.train.rounds
        quick = not last  # the last round is always tested on all samples
        tested = bias = None
        if last or _is_due(played.round, self.recipe.train.evaluate_every):
            models = self.server.models(self.backend.states)
            tallies = metrics.collect_tallies(self.metrics, self.backend.plan)
            tested = metrics.examine(self.backend, models, self.census, tallies, quick)
        bias_every = self.recipe.metrics.bias_every
        if bias_every and (last or _is_due(played.round, bias_every)):
            bias = local_bias(self.backend, self.server, played, self.census, quick)
        seconds = time.perf_counter() - begin
        values = metrics.per_round(self.metrics, MeasuredRound(played, tested, seconds))
        return RoundRecord.from_metrics(played.round, played.clients, played.loss, values, bias)


def _is_due(round: int, every: int) -> bool:
    return every > 0 and round % every == 0


def _describe_model(name: str, setup: Setup) -> ModelFacts:
    """Count a model's parameters, without those that methods added."""
    parameters = 0
    for key, parameter in setup.model.named_parameters():
        if not key.startswith("extras."):
            parameters += parameter.numel()
    return ModelFacts(name, parameters, models.fingerprint(setup.model))


def _test_sizes(plan: TestPlan) -> TestSizes:
    """Count the test samples; a set that several clients share counts once."""
    tests = range(len(plan.sets))
    last = sum(plan.size(test, quick=False) for test in tests)
    others = sum(plan.size(test, quick=True) for test in tests)
    return TestSizes(last, others)
