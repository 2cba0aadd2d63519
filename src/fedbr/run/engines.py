"""How runs are spread over the cores of this machine."""

from __future__ import annotations

import pickle
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from ..backends.base import Backend
from ..backends.pool import WorkerPool
from ..core import device as devices
from ..core.fast.block_size import choose_block_size
from ..core.records import RoundRecord
from ..core.setup import Setup
from ..data import Federation
from ..metrics import collect_tallies, select
from ..recipe.schema import TrainConfig
from ..util.processes import usable_cores
from .loop import play
from .plan import Experiment, PlannedRun
from .processes import Processes
from .setup import connect
from .store import RunStore
from .watch import Watcher


@dataclass(frozen=True)
class Work:
    """A planned run, and what is kept of it."""

    run: PlannedRun
    store: RunStore


class Engine(ABC):
    """Whoever trains runs: this process, several, or the nodes of a federation."""

    @abstractmethod
    def check(self, experiment: Experiment) -> None:
        """Refuse what cannot be trained, before anything is written.

        Raises:
            InputError: the line says what is wrong.
        """

    @abstractmethod
    def recheck(self, work: Work) -> None:
        """Check that a run began with the samples that there are now, before anything is written.

        Raises:
            InputError: it began with others.
        """

    @abstractmethod
    def train(self, todo: Sequence[Work], watch: Watcher) -> Iterator[Work]:
        """Train runs, and yield each when it is finished."""


class OneByOne(Engine):
    """Trains one run after the other; the clients of a round are spread over processes.

    Args:
        workers: how many processes; None: one for every core that there is work for in a round.
    """

    def __init__(self, workers: int | None = 1) -> None:
        self.workers = workers
        self._pool: WorkerPool | None = None

    def check(self, experiment: Experiment) -> None:
        select(experiment.recipe.metrics.extra)
        recipe, seed = experiment.recipe, experiment.recipe.train.seeds[0]
        clients = experiment.source.clients(seed)
        setups = []
        for variant in recipe.compare:
            setups.append(experiment.source.setup(variant, seed, clients))
        if self.workers is None:
            self.workers = useful_workers(setups[0], recipe.train)

    def recheck(self, work: Work) -> None:
        run = work.run
        if run.seed == run.experiment.recipe.train.seeds[0]:  # whose clients are here anyway
            work.store.check_content(run.experiment.source.clients(run.seed).content)

    def train(self, todo: Sequence[Work], watch: Watcher) -> Iterator[Work]:
        workers = self.workers or 1
        with ExitStack() as exits:
            if workers > 1 and todo:
                self._pool = exits.enter_context(WorkerPool(workers))
            for work in todo:
                self.play(work, watch)
                yield work

    def play(self, work: Work, watch: Watcher) -> None:
        """Play one run in this process."""
        run = work.run
        watch.started(run)
        clients = run.experiment.source.clients(run.seed)

        def on_round(record: RoundRecord) -> None:
            watch.round_done(run, record)

        play(run, clients, work.store, self._connect, on_round)

    def _connect(
        self,
        run: PlannedRun,
        setup: Setup,
        clients: Federation,
        block_size: int,
        store: RunStore,
    ) -> Backend:
        plan = clients.test_plan(run.recipe.train.evaluate_samples, run.seed)
        metrics = select(run.recipe.metrics.extra)
        plan = plan.with_tallies(collect_tallies(metrics, plan))
        return connect(setup, clients.train, plan, block_size, self._pool, store.memory())


class WholeRuns(OneByOne):
    """Trains several runs at once, each in one process from its first round to its last."""

    def __init__(self, processes: Processes) -> None:
        super().__init__(workers=1)
        self.processes = processes

    def train(self, todo: Sequence[Work], watch: Watcher) -> Iterator[Work]:
        on_cpu = all(devices.choose(work.run.recipe.train.device).type == "cpu" for work in todo)
        todo = sorted(todo, key=lambda work: _priority(work.run))
        if self.processes.count == 1 or len(todo) < 2 or not on_cpu:
            yield from super().train(todo, watch)
            return
        with self.processes.stop_at_end():  # nobody writes to folders that are given up
            by_run = {id(work.run): work for work in todo}
            for run in self.processes.work([work.run for work in todo], watch):
                work = by_run[id(run)]
                work.store.forget()
                yield work


def _priority(run: PlannedRun) -> tuple[int, int]:
    """Return a key by which runs are sorted: by seed, and within a seed by the number of methods.

    Runs with more methods take longer and begin first, so that nobody waits for the last.
    """
    return run.experiment.recipe.train.seeds.index(run.seed), -len(run.variant.methods)


def useful_workers(setup: Setup, train: TrainConfig) -> int:
    """Return the number of usable cores, but no more than there are blocks in a round."""
    if setup.spec.device.type != "cpu":
        return 1
    block_size = choose_block_size(setup.model, setup.spec, train.clients_at_once)
    workers = min(usable_cores(), -(-setup.spec.clients_per_round // block_size))
    if workers > 1:
        try:
            pickle.dumps(setup)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            warnings.warn(f"one process does all the work: {error}", RuntimeWarning, stacklevel=2)
            return 1
    return workers
