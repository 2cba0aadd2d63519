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
from ..core.fast.blocks import choose
from ..core.setup import Setup
from ..data import Federation
from ..metrics import used
from ..recipe.schema import TrainConfig
from ..util.processes import usable_cores
from .loop import play, wanted
from .plan import Experiment, PlannedRun
from .processes import Processes
from .setup import connect
from .store import RunStore
from .watch import Watcher


@dataclass(frozen=True)
class Work:
    """A run that is not finished, and what is kept of it."""

    run: PlannedRun
    store: RunStore


class Engine(ABC):
    """Whoever trains runs: this process, several, or the nodes of a federation."""

    @abstractmethod
    def check(self, experiment: Experiment) -> None:
        """Refuse what cannot be trained, before anything is written."""

    @abstractmethod
    def recheck(self, work: Work) -> None:
        """Look at a run that is finished already: are its samples those that there are now?"""

    @abstractmethod
    def train(self, todo: Sequence[Work], watch: Watcher) -> Iterator[Work]:
        """Train runs to their ends; yield each of them when it is there."""


class OneByOne(Engine):
    """Runs one after the other; the clients of a round are spread over processes.

    workers: how many; None: one for every core that there is work for in a round.
    """

    def __init__(self, workers: int | None = 1) -> None:
        self.workers = workers
        self._pool: WorkerPool | None = None

    def check(self, experiment: Experiment) -> None:
        recipe, seed = experiment.recipe, experiment.recipe.train.seeds[0]
        clients = experiment.source.clients(seed)
        setups = [experiment.source.setup(v, seed, clients) for v in recipe.compare]
        if self.workers is None:
            self.workers = useful_workers(setups[0], recipe.train)

    def recheck(self, work: Work) -> None:
        run = work.run
        if run.seed == run.experiment.recipe.train.seeds[0]:  # whose clients are here anyway
            work.store.claim(run.experiment.source.clients(run.seed).content)

    def train(self, todo: Sequence[Work], watch: Watcher) -> Iterator[Work]:
        workers = self.workers or 1
        with ExitStack() as exits:
            if workers > 1 and todo:
                self._pool = exits.enter_context(WorkerPool(workers))
            for work in todo:
                self.play(work, watch)
                yield work

    def play(self, work: Work, watch: Watcher) -> None:
        """Play one run."""
        run = work.run
        watch.started(run)
        clients = run.experiment.source.clients(run.seed)
        play(run, clients, work.store, self._connect, lambda record: watch.round_done(run, record))

    def _connect(
        self,
        run: PlannedRun,
        setup: Setup,
        clients: Federation,
        block_size: int,
        store: RunStore,
    ) -> Backend:
        plan = clients.test_plan(run.recipe.train.evaluate_samples, run.seed)
        plan = plan.with_tallies(wanted(used(run.recipe.metrics.extra), plan))
        return connect(setup, clients.train, plan, block_size, self._pool, store.memory())


class WholeRuns(OneByOne):
    """Several runs at once, each in a process of its own from its first round to its last."""

    def __init__(self, processes: Processes) -> None:
        super().__init__(workers=1)
        self.processes = processes

    def train(self, todo: Sequence[Work], watch: Watcher) -> Iterator[Work]:
        on_cpu = all(devices.choose(work.run.recipe.train.device).type == "cpu" for work in todo)
        order = sorted(range(len(todo)), key=lambda i: _length(todo[i].run))
        todo = [todo[i] for i in order]
        if self.processes.count == 1 or len(todo) < 2 or not on_cpu:
            yield from super().train(todo, watch)
            return
        with self.processes.resting():  # nobody may write to the folders when they are given up
            by_run = {id(work.run): work for work in todo}
            for run in self.processes.work([work.run for work in todo], watch):
                work = by_run[id(run)]
                work.store.forget()
                yield work


def _length(run: PlannedRun) -> tuple[int, int]:
    """Say in which order runs begin: seed by seed; within a seed, those of more methods first.

    They take longer, and nobody should wait for the last.
    """
    return run.experiment.recipe.train.seeds.index(run.seed), -len(run.variant.methods)


def useful_workers(setup: Setup, train: TrainConfig) -> int:
    """Return one process per core that may be used, but no more than there are blocks in a round."""
    if setup.spec.device.type != "cpu":
        return 1
    block_size = choose(setup.model, setup.spec, train.clients_at_once)
    workers = min(usable_cores(), -(-setup.spec.clients_per_round // block_size))
    if workers > 1:
        try:
            pickle.dumps(setup)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            warnings.warn(f"one process does all the work: {error}", RuntimeWarning, stacklevel=2)
            return 1
    return workers
