"""A sweep: settings searched on held-out training samples, and the chosen ones tested.

Every method has the same budget: the same rounds and seeds for each of its trials.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..recipe.load import load
from ..recipe.schema import Recipe
from ..util.errors import InputError, RunError
from ..util.estimate import Estimate
from ..util.files import dump, write
from .engines import WholeRuns
from .folder import ResultFolder
from .grid import (
    Grid,
    Trial,
    as_overrides,
    check_grids,
    check_owner,
    condition_name,
    conditions,
    make_trials,
)
from .plan import Experiment
from .processes import Processes
from .results import Results, RunResult
from .runner import check, execute
from .watch import Watcher

HOLDOUT = 0.2  # of the training samples, to choose on


@dataclass(frozen=True)
class Case:
    """One comparison: what is not tuned, all trials, and how the best of each variant compare."""

    name: str  # "data.alpha=0.5"; "" if there is only one
    trials: Sequence[Trial]
    best: Mapping[str, Trial]  # of each variant; one whose trials all diverged has none
    holdout: float
    results: Results  # of the final runs

    @property
    def searched(self) -> bool:
        return len(self.trials) > len(self.best)

    @property
    def at_the_edge(self) -> list[str]:
        """Say which chosen numbers are the largest or smallest of several that were tried."""
        said = []
        for label, best in self.best.items():
            for key, value in best.values.items():
                tried = {trial.values[key] for trial in self.trials if trial.label == label}
                if len(tried) < 3 or not all(map(_is_number, tried)):
                    continue
                for end, word in ((max(tried), "largest"), (min(tried), "smallest")):
                    if value == end:
                        said.append(
                            f"{label}: {key} = {value} is the {word} tried; a better one may lie "
                            "beyond"
                        )
        return said

    def to_json(self) -> dict[str, Any]:
        """Return the case's entry of ``sweep.json``."""
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
            "chosen_on": chosen_on if self.searched else None,
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
    """Search, choose, and compare the chosen on the test samples; resume an earlier call.

    recipe: a shipped one or a TOML file. out: the folder of all results. overrides: as of
    ``--set``. variants: as of ``--methods``. workers: processes; None: one per core. holdout: share
    of the training samples to choose on.

    Raises InputError, before anything is written, for what cannot be trained.
    """
    check_grids(grids)
    recipes = _recipes(recipe, grids, overrides, variants)
    trials = {name: make_trials(r, grids) for name, r in recipes.items()}
    searched = [name for name, r in recipes.items() if len(trials[name]) > len(r.compare)]
    searches = []
    for name in searched:
        search = _search(recipes[name], trials[name], holdout)
        searches.append(Experiment(search, out / "search" / name))
    _check_folder(out)
    with Processes(workers) as processes:
        engine = WholeRuns(processes)
        if fresh:
            for experiment in [*map(Experiment, recipes.values()), *searches]:
                engine.check(experiment)
            _discard(out, next(iter(recipes.values())))
        check(searches, engine)
        for name, results in zip(searched, execute(searches, engine, watch=watch), strict=True):
            trials[name] = [_scored(trial, results) for trial in trials[name]]
        best = {name: _best(trials[name], searched=name in searched) for name in recipes}
        finals = []
        for name, r in recipes.items():
            finals.append(Experiment(_final(r, best[name], trials[name]), out / "final" / name))
        compared = execute(finals, engine, watch=watch)
    cases = []
    for (name, r), results in zip(recipes.items(), compared, strict=True):
        used = r.data.holdout or holdout
        cases.append(Case(name, trials[name], best[name], used, results))
    write(out / "sweep.json", dump([case.to_json() for case in cases]))
    return cases


def _recipes(
    recipe: str, grids: Sequence[Grid], overrides: Sequence[str], variants: Sequence[str]
) -> dict[str, Recipe]:
    """Make a recipe of every combination of what is not tuned, by its name."""
    combinations = conditions(grids)
    recipes = {}
    for values in combinations:
        chosen = load(recipe, [*overrides, *as_overrides(values)], variants)
        recipes[condition_name(values)] = chosen
    if len(recipes) < len(combinations):
        keys = " ".join(grid.key for grid in grids)
        raise InputError(
            f"--grid {keys}: two values would have the same folder, {next(iter(recipes))!r}"
        )
    every_variant = [variant for r in recipes.values() for variant in r.compare]
    for grid in grids:
        check_owner(grid, every_variant)
    return recipes


def _check_folder(out: Path) -> None:
    """Refuse a folder that is not empty and holds no sweep."""
    if out.exists() and not out.is_dir():
        raise InputError(f"--out {out}: is not a folder")
    ours = any((out / name).is_dir() for name in ("search", "final"))
    if out.exists() and not ours and any(not p.name.startswith(".") for p in out.iterdir()):
        raise InputError(f"--out {out}: is not empty and holds no sweep; choose another folder")


def _discard(out: Path, recipe: Recipe) -> None:
    """Remove all that earlier sweeps left, whatever their grids were."""
    for kind in ("search", "final"):
        inner_first = sorted((out / kind).glob("**/recipe.toml"), reverse=True)
        for file in inner_first:
            ResultFolder(file.parent, recipe).discard()
            _remove_empty(file.parent, out / kind)
    (out / "sweep.json").unlink(missing_ok=True)


def _remove_empty(folder: Path, top: Path) -> None:
    """Remove a folder and those above it, up to one of ours, that hold nothing any more."""
    for empty in (folder, *folder.parents):
        if not empty.is_relative_to(top) or {p.name for p in empty.iterdir()} - {".lock"}:
            return
        (empty / ".lock").unlink(missing_ok=True)
        with contextlib.suppress(FileNotFoundError):
            empty.rmdir()


def _search(recipe: Recipe, trials: Sequence[Trial], holdout: float) -> Recipe:
    """Compare all trials on samples that are held out of the training samples."""
    labels = [trial.variant.label for trial in trials]
    if len(set(labels)) < len(labels):
        raise InputError(
            f"compare: with the values of the grid there is a duplicate label among "
            f"{', '.join(labels)}"
        )
    data = recipe.data.model_copy(update={"holdout": recipe.data.holdout or holdout})
    return recipe.model_copy(update={"data": data, "compare": [t.variant for t in trials]})


def _scored(trial: Trial, results: Results) -> Trial:
    return replace(trial, score=_score(results.of(trial.variant.label)))


def _score(runs: Sequence[RunResult]) -> Estimate | None:
    if any(run.diverged for run in runs):
        return None
    return Estimate.of(run.accuracy.top5 for run in runs)


def _best(trials: Sequence[Trial], searched: bool) -> dict[str, Trial]:
    """Choose the highest mean of every variant; of equals the first."""
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


def _final(recipe: Recipe, best: Mapping[str, Trial], trials: Sequence[Trial]) -> Recipe:
    """Compare the chosen on the test samples.

    Where some variants were searched, one that was not is marked so.
    """
    counts = {label: sum(trial.label == label for trial in trials) for label in best}
    some_searched = max(counts.values()) > 1
    chosen = []
    for label, trial in best.items():
        tuned = counts[label] > 1 if some_searched else None
        chosen.append(trial.variant.model_copy(update={"label": label, "tuned": tuned}))
    data = recipe.data.model_copy(update={"holdout": 0.0})
    return recipe.model_copy(update={"data": data, "compare": chosen})


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
