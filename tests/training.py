"""Recipes trained as ``fedbr run`` does, for tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fedbr.core.records import RoundRecord
from fedbr.recipe.schema import Recipe
from fedbr.run.engines import OneByOne
from fedbr.run.plan import Experiment, PlannedRun
from fedbr.run.results import Results
from fedbr.run.runner import execute
from fedbr.run.watch import Watcher

OnRound = Callable[[PlannedRun, RoundRecord], object]


class Callback(Watcher):
    """Calls a function with every round that is done now."""

    def __init__(self, on_round: OnRound) -> None:
        self.on_round = on_round

    def round_done(self, run: PlannedRun, record: RoundRecord) -> None:
        self.on_round(run, record)


def train_recipe(
    recipe: Recipe,
    out: Path,
    workers: int | None = 1,
    fresh: bool = False,
    on_round: OnRound = lambda run, record: None,
) -> Results:
    """Train every variant of a recipe for every seed; go on where an earlier call stopped."""
    experiment = Experiment(recipe, out)
    (results,) = execute([experiment], OneByOne(workers), fresh=fresh, watch=Callback(on_round))
    return results
