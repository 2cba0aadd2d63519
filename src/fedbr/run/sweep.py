"""A sweep: settings searched on held-out training samples, and the chosen ones tested.

Every method has the same budget: the same rounds and seeds for each of its trials.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..recipe.load import load
from ..recipe.schema import Recipe, Variant
from ..util.errors import InputError, RunError
from ..util.estimate import Estimate
from ..util.files import dump, refuse_foreign, write
from ..util.tables import Json
from .engines import WholeRuns
from .folder import ResultFolder
from .grid import (
    Grid,
    Trial,
    check_grids,
    check_owner,
    list_conditions,
    make_overrides,
    make_trials,
    name_condition,
)
from .plan import Experiment
from .processes import Processes
from .results import Results
from .runner import check, execute
from .watch import Watcher

HOLDOUT = 0.2  # of the training samples, to choose on


@dataclass(frozen=True)
class Case:
    """One comparison of a sweep: all trials, and how the best of each variant compare."""

    name: str  # "data.alpha=0.5"; "" if there is only one
    trials: Sequence[Trial]
    best: Mapping[str, Trial]  # of each variant; one whose trials all diverged has none
    holdout: float
    results: Results  # of the final runs

    @property
    def searched(self) -> bool:
        """Whether some variant had several trials."""
        return len(self.trials) > len(self.best)

    @property
    def at_the_edge(self) -> list[str]:
        """Remarks on chosen numbers that are the largest or smallest of several that were tried."""
        remarks = []
        for label, best in self.best.items():
            for key, value in best.values.items():
                tried = {trial.values[key] for trial in self.trials if trial.label == label}
                if len(tried) < 3 or not all(map(_is_number, tried)):
                    continue
                for end, word in ((max(tried), "largest"), (min(tried), "smallest")):
                    if value == end:
                        remarks.append(
                            f"{label}: {key} = {value} is the {word} tried; a better one may lie "
                            "beyond"
                        )
        return remarks

    def to_json(self) -> Json:
        """Return the case's entry of ``sweep.json``."""
        chosen_on = None
        if self.searched:
            chosen_on = f"{self.holdout:g} of the training samples, held out"
        trials = []
        for trial in self.trials:
            trials.append(
                {
                    "label": trial.label,
                    "values": dict(trial.values),
                    "top5_held_out": trial.score and trial.score.mean,
                    "spread": trial.score and trial.score.spread,
                    "chosen": self.best.get(trial.label) is trial,
                }
            )
        return {
            "case": self.name,
            "chosen_on": chosen_on,
            "trials": trials,
        }


def sweep(
    recipe: str,
    grids: Sequence[Grid],
    out: Path,
    overrides: Sequence[str] = (),
    variants: Sequence[str] = (),
    workers: int | None = None,
    fresh: bool = False,
    holdout: float = HOLDOUT,
    watch: Watcher | None = None,
) -> list[Case]:
    """Search settings, and compare the best of each variant on the test samples.

    Args:
        recipe: a shipped one by its name, or a TOML file.
        grids: the values to try.
        out: the folder of all results; called again with the same, the sweep goes on there.
        overrides: as of ``--set``.
        variants: as of ``--methods``.
        workers: processes; None: one for every core.
        fresh: start over.
        holdout: share of the training samples that settings are chosen on.
        watch: follows the progress.

    Returns:
        A case for every combination of values that are not tuned.

    Raises:
        InputError: before anything is written, for what cannot be trained.
        RunError: every trial of a search diverged.
    """
    check_grids(grids)
    recipes = _make_recipes(recipe, grids, overrides, variants)
    trials = {name: make_trials(r, grids) for name, r in recipes.items()}
    searched = [name for name, r in recipes.items() if len(trials[name]) > len(r.compare)]
    searches = []
    for name in searched:
        search = _make_search(recipes[name], trials[name], holdout)
        searches.append(Experiment(search, out / "search" / name))
    refuse_foreign(out, is_ours=_is_sweep(out))
    with Processes(workers) as processes:
        engine = WholeRuns(processes)
        if fresh:
            for experiment in [*map(Experiment, recipes.values()), *searches]:
                engine.check(experiment)
            _discard(out, next(iter(recipes.values())))
        check(searches, engine)
        for name, results in zip(searched, execute(searches, engine, watch=watch), strict=True):
            trials[name] = [_add_score(trial, results) for trial in trials[name]]
        best = {name: _choose_best(trials[name], name in searched) for name in recipes}
        finals = []
        for name, r in recipes.items():
            final = _make_final(r, best[name], trials[name])
            finals.append(Experiment(final, out / "final" / name))
        compared = execute(finals, engine, watch=watch)
    cases = []
    for (name, r), results in zip(recipes.items(), compared, strict=True):
        share = r.data.holdout or holdout
        cases.append(Case(name, trials[name], best[name], share, results))
    write(out / "sweep.json", dump([case.to_json() for case in cases]))
    return cases


def _make_recipes(
    recipe: str, grids: Sequence[Grid], overrides: Sequence[str], variants: Sequence[str]
) -> dict[str, Recipe]:
    """Make a recipe of every combination of what is not tuned, by its name."""
    combinations = list_conditions(grids)
    recipes = {}
    for values in combinations:
        all_overrides = [*overrides, *make_overrides(values)]
        recipes[name_condition(values)] = load(recipe, all_overrides, variants)
    if len(recipes) < len(combinations):
        keys = " ".join(grid.key for grid in grids)
        raise InputError(
            f"--grid {keys}: two values would have the same folder, {next(iter(recipes))!r}"
        )
    every_variant: list[Variant] = []
    for r in recipes.values():
        every_variant += r.compare
    for grid in grids:
        check_owner(grid, every_variant)
    return recipes


def _is_sweep(out: Path) -> bool:
    return any((out / name).is_dir() for name in ("search", "final"))


def _discard(out: Path, recipe: Recipe) -> None:
    """Remove all that earlier sweeps left, whatever their grids were."""
    for kind in ("search", "final"):
        inner_first = sorted((out / kind).glob("**/recipe.toml"), reverse=True)
        for file in inner_first:
            ResultFolder(file.parent, recipe).discard()
            _remove_empty(file.parent, out / kind)
    (out / "sweep.json").unlink(missing_ok=True)


def _remove_empty(folder: Path, top: Path) -> None:
    """Remove a folder and those above it, up to ``top``, that are empty."""
    for empty in (folder, *folder.parents):
        if not empty.is_relative_to(top):
            return
        if any(file.name != ".lock" for file in empty.iterdir()):
            return
        (empty / ".lock").unlink(missing_ok=True)
        with contextlib.suppress(FileNotFoundError):
            empty.rmdir()


def _make_search(recipe: Recipe, trials: Sequence[Trial], holdout: float) -> Recipe:
    """Make the recipe that compares all trials on held-out training samples."""
    labels = [trial.variant.label for trial in trials]
    if len(set(labels)) < len(labels):
        raise InputError(
            f"compare: with the values of the grid there is a duplicate label among "
            f"{', '.join(labels)}"
        )
    data = recipe.data.model_copy(update={"holdout": recipe.data.holdout or holdout})
    compare = [trial.variant for trial in trials]
    return recipe.model_copy(update={"data": data, "compare": compare})


def _add_score(trial: Trial, results: Results) -> Trial:
    """Return a trial with its score; one that diverged on some seed has none."""
    runs = results.of(trial.variant.label)
    if any(run.diverged for run in runs):
        return replace(trial, score=None)
    return replace(trial, score=Estimate.of(run.accuracy.top5 for run in runs))


def _choose_best(trials: Sequence[Trial], searched: bool) -> dict[str, Trial]:
    """Choose the trial with the highest mean for every variant; the first of equal ones."""
    if not searched:
        return {trial.label: trial for trial in trials}
    best: dict[str, Trial] = {}
    scores: dict[str, float] = {}
    for trial in trials:
        if trial.score is None:
            continue
        if trial.label not in best or trial.score.mean > scores[trial.label]:
            best[trial.label] = trial
            scores[trial.label] = trial.score.mean
    if not best:
        raise RunError(
            "every trial diverged, so there is nothing to choose from; try smaller values of "
            "train.lr"
        )
    return best


def _make_final(recipe: Recipe, best: Mapping[str, Trial], trials: Sequence[Trial]) -> Recipe:
    """Make the recipe that compares the best trials on the test samples.

    Where some variants were searched, it says of each whether it was.
    """
    counts = Counter(trial.label for trial in trials)
    some_searched = max(counts[label] for label in best) > 1
    compare = []
    for label, trial in best.items():
        tuned = counts[label] > 1 if some_searched else None
        compare.append(trial.variant.model_copy(update={"label": label, "tuned": tuned}))
    data = recipe.data.model_copy(update={"holdout": 0.0})
    return recipe.model_copy(update={"data": data, "compare": compare})


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
