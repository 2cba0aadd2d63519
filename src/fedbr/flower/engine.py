"""The engine that trains runs on the nodes of a federation; ``run.runner`` calls it."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from functools import partial
from hashlib import sha256
from itertools import groupby
from pathlib import Path

from ..backends.base import Backend
from ..backends.serial import SerialBackend
from ..core.setup import Setup
from ..data import Federation
from ..metrics import collect_tallies, select
from ..run.engines import Engine, Work
from ..run.loop import play
from ..run.plan import Experiment, PlannedRun
from ..run.store import RunStore
from ..run.watch import Watcher
from ..util.errors import InputError
from .admission import SITES, check_recipe, find_clients
from .backend import Examiner, FlowerBackend
from .examiner import SiteExaminer
from .log import log_to
from .messages import Assignment
from .remote import RemoteClients
from .roster import Roster, Settings, Transport

log = logging.getLogger("fedbr.flower")


class FlowerEngine(Engine):
    """Trains runs one after the other; the clients of a round train at their nodes.

    Args:
        transport: carries messages to the nodes.
        settings: how long to wait for them.
        fresh: whether to forget what the sites said of their samples in an earlier call.
    """

    def __init__(self, transport: Transport, settings: Settings, fresh: bool = False) -> None:
        self.transport, self.settings, self.fresh = transport, settings, fresh

    def check(self, experiment: Experiment) -> None:
        _folder(experiment)
        check_recipe(experiment.recipe)

    def recheck(self, work: Work) -> None:
        """Leave a finished run alone: its samples are not here."""

    def train(self, todo: Sequence[Work], watch: Watcher) -> Iterator[Work]:
        for _, works in groupby(todo, key=lambda work: id(work.run.experiment)):
            yield from self._train(list(works), watch)

    def _train(self, todo: Sequence[Work], watch: Watcher) -> Iterator[Work]:
        """Train the runs of one experiment."""
        experiment = todo[0].run.experiment
        folder, recipe = _folder(experiment), experiment.recipe
        with log_to(folder / "flower.log"):
            if self.fresh:
                (folder / SITES).unlink(missing_ok=True)
            roster = Roster(self.transport, self.settings, recipe)
            clients = find_clients(roster, recipe, folder)
            for work in todo:
                run = work.run
                log.info(
                    "%s, seed %d: %d of %d rounds are done",
                    run.label,
                    run.seed,
                    len(work.store.rounds),
                    recipe.train.rounds,
                )
                watch.started(run)
                nodes = _Nodes(roster)
                on_round = partial(watch.round_done, run)
                play(run, clients(run.seed), work.store, nodes.connect, on_round)
                nodes.forget(work.store)
                yield work


class _Nodes:
    """Makes the backend of one run."""

    def __init__(self, roster: Roster) -> None:
        self.roster = roster
        self._backend: FlowerBackend | None = None

    def connect(
        self,
        run: PlannedRun,
        setup: Setup,
        clients: RemoteClients | Federation,
        block_size: int,
        store: RunStore,
    ) -> Backend:
        """Make the backend: nodes train, and keep what clients remember.

        The server tests, unless the samples are the sites' own.
        """
        recipe, census = run.experiment.recipe, clients.census
        plan = clients.test_plan(recipe.train.evaluate_samples, run.seed)
        plan = plan.with_tallies(collect_tallies(select(recipe.metrics.extra), plan))
        assignment = Assignment(
            experiment=_experiment_name(run, store),
            variant=recipe.compare.index(run.variant),
            seed=run.seed,
            block_size=block_size,
            clients=census.num_clients,
            common=clients.common if isinstance(clients, RemoteClients) else None,
        )
        examiner: Examiner
        if isinstance(clients, RemoteClients):
            examiner = SiteExaminer(self.roster, recipe, assignment, plan, census.num_classes)
        else:
            examiner = SerialBackend(setup, clients.train, plan, 1)
        self._backend = FlowerBackend(
            setup, self.roster, recipe, assignment, census.sizes, examiner
        )
        return self._backend

    def forget(self, store: RunStore) -> None:
        """Let the nodes forget a run that is finished."""
        if self._backend is not None and store.finished:
            self._backend.close()


def _folder(experiment: Experiment) -> Path:
    if experiment.path is None or experiment.given is not None:
        raise InputError("flower: a recipe and a result folder are expected, not objects in memory")
    return experiment.path


def _experiment_name(run: PlannedRun, store: RunStore) -> str:
    """Name the run for the nodes' files.

    It is the same after a restart, and another one after a fresh start.
    """
    name = store.record.experiment
    if name is None:
        recipe = run.experiment.recipe.to_toml()
        text = f"{recipe} {run.label} {run.seed} {time.time_ns()}"
        name = sha256(text.encode()).hexdigest()[:16]
        store.note(experiment=name)
    return name
