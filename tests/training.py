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

Seen = Callable[[PlannedRun, RoundRecord], object]


class Calls(Watcher):
    """Calls a function with every round that is done now."""

    def __init__(self, seen: Seen) -> None:
        self.seen = seen

    def round_done(self, run: PlannedRun, record: RoundRecord) -> None:
        self.seen(run, record)


def train_recipe(
    recipe: Recipe,
    out: Path,
    workers: int | None = 1,
    fresh: bool = False,
    seen: Seen = lambda run, record: None,
) -> Results:
    """Train every variant of a recipe for every seed; go on where an earlier call stopped."""
    experiment = Experiment(recipe, out)
    (results,) = execute([experiment], OneByOne(workers), fresh=fresh, watch=Calls(seen))
    return results
