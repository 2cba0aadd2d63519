"""A grid of settings, the same budget for every method: searched on held-out training samples, then
tested.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from ..methods import METHODS
from ..recipe import load as config
from ..recipe.overrides import find_method_name, read_value, write_value
from ..recipe.schema import Recipe, Variant, VariantTrain
from ..report.tables import Figure
from ..util.errors import InputError, RunError, unknown
from ..util.files import write
from . import runner as campaign
from .folder import ResultFolder, dump

HOLDOUT = 0.2  # of the training samples, to choose on
FIXED = ("name", "compare", "train.seeds", "data.holdout", "metrics")  # what a grid cannot be over
Phase = Literal["search", "final"]


@dataclass(frozen=True)
class Grid:
    """The values to try for one key of a recipe."""

    key: str
    values: Sequence[Any]

    @classmethod
    def parse(cls, text: str) -> Grid:
        """Read ``key=v1,v2,...``."""
        key, equals, rest = (part.strip() for part in text.partition("="))
        values = [
            read_value(v) for v in re.findall(r"\s*((?:\[[^\]]*\]|[^,\[])+)", rest) if v.strip()
        ]
        if not equals or not values or "." not in key:
            raise InputError(
                f"--grid {text!r}: wants section.key=v1,v2,..., such as train.lr=0.01,0.1"
            )
        if key in FIXED or key.split(".")[0] in FIXED:
            raise InputError(f"--grid {text!r}: a grid cannot be over {key}; set it with --set")
        if any(v in values[:i] for i, v in enumerate(values)):
            raise InputError(f"--grid {text!r}: a value is there twice")
        return cls(key, values)

    @property
    def owner(self) -> str:
        """The method whose parameter it is, or the section of the recipe."""
        return self.key.split(".")[0]

    @property
    def name(self) -> str:
        return self.key.partition(".")[2]

    @property
    def tunes(self) -> bool:
        """Whether the best value is chosen for each variant; otherwise every value makes a comparison
        of its own.
        """
        return self.owner not in Recipe.model_fields or (
            self.owner == "train" and self.name in VariantTrain.model_fields
        )


@dataclass(frozen=True)
class Trial:
    """One variant with one choice of values, on the held-out samples."""

    variant: Variant  # with the values in it, under the name that it has in the search
    label: str  # of the variant that it is a version of
    values: Mapping[str, Any]
    score: Figure | None = None  # mean of the 5 best rounds; None: it diverged on some seed


@dataclass(frozen=True)
class Case:
    """One comparison: the values of what is not tuned, all trials, and how the best of each variant
    compare.
    """

    name: str  # "data.alpha=0.5"; "" if there is only one
    trials: Sequence[Trial]
    best: Mapping[str, Trial]  # of each variant; one whose trials all diverged has none
    holdout: float
    results: dict[str, Any]  # of the final runs

    @property
    def searched(self) -> bool:
        return len(self.trials) > len(self.best)

    @property
    def at_the_edge(self) -> list[str]:
        """Say which chosen numbers are the largest or smallest of several that were tried."""
        found = []
        for label, best in self.best.items():
            for key, value in best.values.items():
                tried = {trial.values[key] for trial in self.trials if trial.label == label}
                if len(tried) < 3 or any(
                    isinstance(v, bool) or not isinstance(v, int | float) for v in tried
                ):
                    continue
                for end, word in ((max(tried), "largest"), (min(tried), "smallest")):
                    if value == end:
                        found.append(
                            f"{label}: {key} = {value} is the {word} tried; a better one may lie beyond"
                        )
        return found


def sweep(
    recipe: str,
    grids: Sequence[Grid],
    out: Path,
    overrides: Sequence[str] = (),
    variants: Sequence[str] = (),
    workers: int | None = None,
    fresh: bool = False,
    holdout: float = HOLDOUT,
    watch: Any = lambda phase, plan: lambda *_: None,
) -> list[Case]:
    """Search, choose, and compare the chosen on the test samples; go on where an earlier call
    stopped.

    ``watch`` is told of each phase and its plan, and returns who watches its rounds.
    """
    keys = [grid.key for grid in grids]
    if not grids:
        raise InputError(
            "--grid: at least one KEY=V1,V2 is wanted, such as --grid train.lr=0.01,0.1"
        )
    if len(set(keys)) < len(keys):
        raise InputError(f"--grid {' '.join(keys)}: a key is there twice")
    conditions = _conditions(grids)
    recipes = {
        _name(c): config.load(recipe, [*overrides, *_settings(c)], variants) for c in conditions
    }
    if len(recipes) < len(conditions):
        raise InputError(
            f"--grid {' '.join(keys)}: two values would have the same folder, {next(iter(recipes))!r}"
        )
    for grid in grids:
        if grid.owner not in Recipe.model_fields:
            _check_owner(grid, [variant for r in recipes.values() for variant in r.compare])
    trials = {name: _trials(r, [g for g in grids if g.tunes]) for name, r in recipes.items()}
    searched = [name for name, r in recipes.items() if len(trials[name]) > len(r.compare)]
    plans = {
        name: (_search(recipes[name], trials[name], holdout), out / "search" / name)
        for name in searched
    }
    finals = {name: out / "final" / name for name in recipes}
    _check_folder(out)
    if fresh:
        campaign.check_variants([*recipes.values(), *(r for r, _ in plans.values())])
        _discard(out, next(iter(recipes.values())))
    campaign.check(list(plans.values()))
    with campaign.Crew(workers) as crew:
        found = campaign.conduct(
            list(plans.values()), crew, watch=watch("search", list(plans.values()))
        )
        scored = trials | {
            n: _scored(trials[n], results) for n, results in zip(searched, found, strict=True)
        }
        best = {name: _best(scored[name], searched=name in searched) for name in recipes}
        final = [(_final(r, best[name], trials[name]), finals[name]) for name, r in recipes.items()]
        results = campaign.conduct(final, crew, watch=watch("final", final))
    cases = [
        Case(name, scored[name], best[name], r.data.holdout or holdout, found)
        for (name, r), found in zip(recipes.items(), results, strict=True)
    ]
    write(out / "sweep.json", dump([_facts(case) for case in cases]))
    return cases


def _check_folder(out: Path) -> None:
    """Refuse a folder that is not empty and holds no sweep."""
    if out.exists() and not out.is_dir():
        raise InputError(f"--out {out}: is not a folder")
    ours = any((out / name).is_dir() for name in ("search", "final"))
    if out.exists() and not ours and any(not p.name.startswith(".") for p in out.iterdir()):
        raise InputError(
            f"--out {out}: is not empty and holds no sweep of ours; choose another folder"
        )


def _discard(out: Path, recipe: Recipe) -> None:
    """Remove all that earlier sweeps left, whatever their grids were."""
    for kind in ("search", "final"):
        for file in sorted(
            (out / kind).glob("**/recipe.toml"), reverse=True
        ):  # those inside others first
            ResultFolder(file.parent, recipe).discard()
            for folder in (file.parent, *file.parent.parents):
                if not folder.is_relative_to(out / kind) or {p.name for p in folder.iterdir()} - {
                    ".lock"
                }:
                    break
                (folder / ".lock").unlink(missing_ok=True)
                folder.rmdir()
    (out / "sweep.json").unlink(missing_ok=True)


def _conditions(grids: Sequence[Grid]) -> list[dict[str, Any]]:
    """List the combinations of what is not tuned."""
    fixed = [g for g in grids if not g.tunes]
    return [
        dict(zip([g.key for g in fixed], v, strict=True))
        for v in itertools.product(*(g.values for g in fixed))
    ]


def _name(values: Mapping[str, Any]) -> str:
    return re.sub(r"[^\w.,=+-]", "_", ",".join(f"{key}={value}" for key, value in values.items()))


def _settings(values: Mapping[str, Any]) -> list[str]:
    return [f"{key}={write_value(value)}" for key, value in values.items()]


def _has(variant: Variant, grid: Grid) -> bool:
    return grid.owner == "train" or any(
        find_method_name(method["name"]) == grid.owner for method in variant.methods
    )


def _check_owner(grid: Grid, variants: Sequence[Variant]) -> None:
    """Refuse a grid over the parameters of a method that no variant has."""
    if any(_has(variant, grid) for variant in variants):
        return
    own = [find_method_name(method["name"]) for variant in variants for method in variant.methods]
    if grid.owner not in METHODS:
        raise unknown(
            f"--grid {grid.key}: section", grid.owner, {*Recipe.model_fields, *METHODS, *own}
        )
    raise InputError(f"--grid {grid.key}: no variant of the recipe has {grid.owner!r}")


def _trials(recipe: Recipe, grids: Sequence[Grid]) -> list[Trial]:
    """Make a variant of every combination of the values that concern it."""
    found: list[Trial] = []
    for variant in recipe.compare:
        own = [grid for grid in grids if _has(variant, grid)]
        for values in itertools.product(*(grid.values for grid in own)):
            chosen = list(zip(own, values, strict=True))
            label = " ".join([variant.label, *(f"{grid.name}={value}" for grid, value in chosen)])
            if len(label) > 60 or label in {trial.variant.label for trial in found}:
                label = f"{variant.label[:50]} #{len(found)}"
            varied = partial(_with, variant, chosen)
            found.append(
                Trial(varied(label), variant.label, {grid.key: value for grid, value in chosen})
            )
    return found


def _with(variant: Variant, chosen: Sequence[tuple[Grid, Any]], label: str) -> Variant:
    methods = [dict(method) for method in variant.methods]
    train = {} if variant.train is None else variant.train.model_dump(exclude_none=True)
    for grid, value in chosen:
        if grid.owner == "train":
            train[grid.name] = value
        for method in methods:
            if find_method_name(method["name"]) == grid.owner:
                method[grid.name] = value
    return config.parse_variant(
        {"label": label, "methods": methods, **({"train": train} if train else {})}
    )


def _search(recipe: Recipe, trials: Sequence[Trial], holdout: float) -> Recipe:
    """Compare all trials on samples that are held out of the training samples."""
    data = recipe.data.model_copy(update={"holdout": recipe.data.holdout or holdout})
    labels = [trial.variant.label for trial in trials]
    if len(set(labels)) < len(labels):
        raise InputError(
            f"compare: with the values of the grid, a label is there twice among {', '.join(labels)}"
        )
    return recipe.model_copy(update={"data": data, "compare": [trial.variant for trial in trials]})


def _scored(trials: Sequence[Trial], results: Mapping[str, Any]) -> list[Trial]:
    by_label: dict[str, list[dict[str, Any]]] = {}
    for run in results["runs"]:
        by_label.setdefault(run["label"], []).append(run)
    return [Trial(t.variant, t.label, t.values, _score(by_label[t.variant.label])) for t in trials]


def _score(runs: Sequence[dict[str, Any]]) -> Figure | None:
    return (
        None
        if any(run["diverged"] for run in runs)
        else Figure.of(run["accuracy"]["top5"] for run in runs)
    )


def _best(trials: Sequence[Trial], searched: bool) -> dict[str, Trial]:
    """Choose the highest mean of every variant; of equals the first."""
    if not searched:
        return {trial.label: trial for trial in trials}
    found: dict[str, Trial] = {}
    for trial in trials:
        best = found.get(trial.label, trial)
        if (
            trial.score
            and best.score
            and (trial.label not in found or trial.score.mean > best.score.mean)
        ):
            found[trial.label] = trial
    if not found:
        raise RunError(
            "every trial diverged, so there is nothing to choose from; try smaller values of train.lr"
        )
    return found


def _final(recipe: Recipe, best: Mapping[str, Trial], trials: Sequence[Trial]) -> Recipe:
    """Compare the chosen on the test samples; where others were searched, a variant that was not says
    so.
    """
    count = {label: sum(trial.label == label for trial in trials) for label in best}
    marks = {label: count[label] > 1 if max(count.values()) > 1 else None for label in best}
    chosen = [
        t.variant.model_copy(update={"label": label, "tuned": marks[label]})
        for label, t in best.items()
    ]
    data = recipe.data.model_copy(update={"holdout": 0.0})
    return recipe.model_copy(update={"data": data, "compare": chosen})


def _facts(case: Case) -> dict[str, Any]:
    return {
        "case": case.name,
        "chosen_on": f"{case.holdout:g} of the training samples, held out"
        if case.searched
        else None,
        "trials": [
            {
                "label": t.label,
                "values": dict(t.values),
                "top5_held_out": t.score and t.score.mean,
                "spread": t.score and t.score.spread,
                "chosen": case.best.get(t.label) is t,
            }
            for t in case.trials
        ],
    }
