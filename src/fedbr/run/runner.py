"""The one runner: it trains whatever is not trained yet, for every command and for Python."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack

from ..util.processes import one_thread
from .csv_files import write_csv
from .engines import Engine, Work
from .folder import ResultFolder, ResultStore
from .plan import Experiment
from .results import Results
from .watch import Watcher


def execute(
    experiments: Sequence[Experiment],
    engine: Engine,
    *,
    fresh: bool = False,
    watch: Watcher | None = None,
    stores: Sequence[ResultStore] = (),
) -> list[Results]:
    """Train everything that is not trained yet.

    Args:
        experiments: recipes, each with the folder of its results.
        engine: who trains.
        fresh: start over.
        watch: follows the progress.
        stores: of each experiment, for a caller that reads them after an interrupt; by default
            they are made here.

    Returns:
        The results of every experiment.

    Raises:
        InputError: before anything is written or cleared, for what cannot be trained, or for a
            folder that holds something else.
    """
    watch = watch or Watcher()
    stores = stores or [store_of(experiment) for experiment in experiments]
    check(experiments, engine, fresh, stores)
    with ExitStack() as exits:
        for store in stores:
            exits.enter_context(store.open(fresh))
            exits.callback(_summarise, store)
        planned = list(_plan_work(experiments, stores))
        watch.planned([work.run for work in planned])
        todo = []
        for work in planned:
            if work.store.rounds:
                watch.resumed(work.run, work.store.rounds)
            if not work.store.finished:
                todo.append(work)
        store_by_experiment = {
            id(experiment): store for experiment, store in zip(experiments, stores, strict=True)
        }
        with one_thread():
            for work in engine.train(todo, watch):
                store_by_experiment[id(work.run.experiment)].summarise()
                watch.finished(work.run)
    return [store.results() for store in stores]


def check(
    experiments: Sequence[Experiment],
    engine: Engine,
    fresh: bool = False,
    stores: Sequence[ResultStore] = (),
) -> None:
    """Refuse what cannot be trained, and folders that hold something else.

    Raises:
        InputError: the line says what, and how to go on.
    """
    stores = stores or [store_of(experiment) for experiment in experiments]
    for store in stores:
        store.refuse(fresh)
    for experiment in experiments:
        engine.check(experiment)
    if not fresh:
        for work in _plan_work(experiments, stores):
            engine.recheck(work)


def store_of(experiment: Experiment) -> ResultStore:
    """Return where the results of an experiment are kept."""
    if experiment.path is None:
        return ResultStore(experiment.recipe)
    return ResultFolder(experiment.path, experiment.recipe, experiment.source.code)


def share_left(experiment: Experiment, fresh: bool = False) -> float:
    """Return the share of an experiment's rounds that are still to be trained.

    A run that diverged counts as whole: nothing of it is left to train.
    """
    if fresh:
        return 1.0
    store = store_of(experiment)
    planned = experiment.recipe.train.rounds
    runs = experiment.runs()
    done = 0
    for run in runs:
        kept = store.run(run.variant, run.seed)
        done += planned if kept.finished else len(kept.rounds)
    return 1 - done / (planned * len(runs))


def _plan_work(experiments: Sequence[Experiment], stores: Sequence[ResultStore]) -> Iterator[Work]:
    for experiment, store in zip(experiments, stores, strict=True):
        for run in experiment.runs():
            yield Work(run, store.run(run.variant, run.seed))


def _summarise(store: ResultStore) -> None:
    """Leave a folder in which all is added up, however the training ended."""
    results = store.summarise()
    if results.path is not None:
        write_csv(results)
