"""The server of a real federation: the one runner, with nodes in place of worker processes."""

from __future__ import annotations

from pathlib import Path

from ..recipe.schema import Recipe
from ..run.plan import Experiment
from ..run.results import Results
from ..run.runner import execute
from ..run.watch import Watcher
from .engine import FlowerEngine
from .roster import Settings, Transport


def serve(
    transport: Transport,
    recipe: Recipe,
    out: Path,
    settings: Settings,
    fresh: bool = False,
    watch: Watcher | None = None,
) -> Results:
    """Train every variant of a recipe for every seed on the nodes.

    Args:
        transport: carries messages to the nodes.
        recipe: what to train.
        out: the result folder; training goes on where an earlier call stopped.
        settings: how long to wait for nodes, and for how many.
        fresh: whether to start over instead.
        watch: is called when a run begins, when it ends, and after every round.

    Raises:
        InputError: the recipe cannot be trained on these nodes.
        RunError: too few nodes answer.
    """
    engine = FlowerEngine(transport, settings, fresh)
    (results,) = execute([Experiment(recipe, out)], engine, fresh=fresh, watch=watch)
    return results
