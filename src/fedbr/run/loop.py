"""Read this first: a run becomes objects, the objects play rounds, the rounds become records."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from .. import metrics, models
from ..backends.base import Backend
from ..core.census import Census, Clients
from ..core.evaluation import Tally, TestPlan
from ..core.fast.blocks import choose
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
    tell: Callable[[RoundRecord], object],
) -> None:
    """Play one run to its end, or to the round in which it diverges; go on where it stopped.

    tell: is called with every round that is done.
    """
    recipe = run.recipe
    setup = run.experiment.source.setup(run.variant, run.seed, clients)
    block_size = choose(setup.model, setup.spec, recipe.train.clients_at_once)
    server, model = Server(setup), _model_facts(recipe.model.name, setup)
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
            tell(record)
    except Diverged as error:
        store.diverge(Divergence(error.round, error.client, error.what))
        return
    about = {
        **asdict(model),
        "options": recipe.model.options,
        "shape": clients.census.shape,
        "methods": run.rebuilding(),
        **clients.census.seen_as,
    }
    store.save_model(weights_of(server, backend), about)


def rounds(
    recipe: Recipe, server: Server, backend: Backend, census: Census, first: int
) -> Iterator[RoundRecord]:
    """The round loop: the same for every method, every backend and every metric."""
    spec = server.setup.spec
    measure = Measure(recipe, server, backend, census, metrics.used(recipe.metrics.extra))
    for round in range(first, recipe.train.rounds + 1):
        everybody = range(spec.num_clients) if round == 1 else ()
        played = play_round(server, backend, round, draw_clients(spec, round), everybody)
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
        begin = time.perf_counter()
        last = played.round == self.recipe.train.rounds
        quick = not last  # the last round is always tested on all samples
        tested = bias = None
        if last or _due(played.round, self.recipe.train.evaluate_every):
            now = self.server.models(self.backend.states)
            tallies = wanted(self.metrics, self.backend.plan)
            tested = metrics.examine(self.backend, now, self.census, tallies, quick)
        every = self.recipe.metrics.bias_every
        if every and (last or _due(played.round, every)):
            bias = local_bias(self.backend, self.server, played, self.census, quick)
        seconds = time.perf_counter() - begin
        figures = metrics.per_round(self.metrics, MeasuredRound(played, tested, seconds))
        return RoundRecord.made(played.round, played.clients, played.loss, figures, bias)


def _due(round: int, every: int) -> bool:
    return every > 0 and round % every == 0


def wanted(used: Sequence[Metric], plan: TestPlan) -> list[Tally]:
    """Return what all metrics together want counted, each thing once."""
    own_tests = plan.shares is not None
    return list({t.name: t for metric in used for t in metric.tallies(own_tests)}.values())


def _model_facts(name: str, setup: Setup) -> ModelFacts:
    own = [p for key, p in setup.model.named_parameters() if not key.startswith("extras.")]
    return ModelFacts(name, sum(p.numel() for p in own), models.fingerprint(setup.model))


def _test_sizes(plan: TestPlan) -> TestSizes:
    """Count the test samples; a set that several clients share counts once."""
    last, others = (
        sum(plan.size(test, quick) for test in range(len(plan.sets))) for quick in (False, True)
    )
    return TestSizes(last, others)
