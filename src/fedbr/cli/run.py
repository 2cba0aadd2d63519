"""fedbr run: train every variant of a recipe, show progress, print the comparison."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import typer

from . import interruptible, leave

RECIPE = typer.Argument("digits")
SET = typer.Option(
    [],
    "--set",
    metavar="KEY=VALUE ...",
    help="Change the recipe: train.rounds=5, data.alpha=0.5, or a method, as fedbr.lam=1.",
)
METHODS = typer.Option(
    [],
    "--methods",
    metavar="NAMES ...",
    help="Compare these instead: fedavg fedbr, or several joined by +.",
)
OUT = typer.Option(None, "--out", metavar="DIR", help="Result folder; default: runs/<recipe>.")
WORKERS = typer.Option(
    None, "--workers", min=1, help="Processes; changes no result. Default: one per core."
)
LOG = typer.Option(
    [], "--log", metavar="NAME", help="Send every round there too: tensorboard, wandb or mlflow."
)
FRESH = typer.Option(False, "--fresh", help="Start over instead of resuming.")


def run(
    recipe: str = RECIPE,
    set_: list[str] = SET,
    methods: list[str] = METHODS,
    out: Path | None = OUT,
    workers: int | None = WORKERS,
    fresh: bool = FRESH,
    log: list[str] = LOG,
) -> int:
    """Train every variant of a recipe for every seed, and compare them.

    RECIPE is a shipped one (fedbr list recipes) or a TOML file.
    Started again with the same folder it resumes, to the bit.
    """
    from ..recipe.load import load, read
    from ..recipe.overrides import find_dropped_options
    from ..report.compare import compare
    from ..run.engines import OneByOne
    from ..run.loggers import Logging
    from ..run.plan import Experiment
    from ..run.runner import execute
    from ..run.watch import Watchers
    from .progress import Progress
    from .tables import show

    interruptible()
    chosen = load(recipe, set_, methods)
    if dropped := find_dropped_options(read(recipe), set_, methods):
        print(
            f"--methods takes default parameters; the recipe's own: --set {' '.join(dropped)}",
            file=sys.stderr,
        )
    folder = out or Path("runs") / chosen.name
    experiment = Experiment(chosen, folder)
    try:
        with Progress() as progress, Logging(log, chosen, folder) as logging:
            watch = Watchers(progress, logging)
            (results,) = execute([experiment], OneByOne(workers), fresh=fresh, watch=watch)
    except KeyboardInterrupt:
        leave()
    show(compare(results))
    print(f"Results: {folder}   Report: fedbr report {shlex.quote(str(folder))}")
    return 1 if results.diverged else 0
