"""fedbr run: train every variant of a recipe, show progress, print the comparison."""

from __future__ import annotations

import shlex
import sys
import warnings
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

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
    metavar="STACK ...",
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
    from ..recipe import load as config
    from ..recipe.overrides import find_dropped_options
    from ..run import loop as experiment
    from ..run.loggers import logging
    from .tables import show

    interruptible()
    chosen = config.load(recipe, set_, methods)
    if unused := find_dropped_options(config.read(recipe), set_, methods):
        print(
            f"--methods takes default parameters; the recipe's own: --set {' '.join(unused)}",
            file=sys.stderr,
        )
    folder = out or Path("runs") / chosen.name
    watch = Watcher(chosen)
    try:
        with logging(log, chosen, folder, fresh) as logger, watch.progress:
            results = experiment.run(chosen, folder, workers, fresh, Both(watch, logger))
    except KeyboardInterrupt:
        leave()
    show(results)
    print(f"Results: {folder}   Report: fedbr report {shlex.quote(str(folder))}")
    return 1 if any(r["diverged"] for r in results["runs"]) else 0


class Both:
    """Tells two watchers of every round."""

    def __init__(self, *watchers: Any) -> None:
        self.watchers = watchers

    def __call__(self, label: str, seed: int, line: dict[str, Any] | None) -> None:
        for watcher in self.watchers:
            watcher(label, seed, line)


class Watcher:
    """The progress bar: quiet when piped."""

    def __init__(self, recipe: Any) -> None:
        console = Console(stderr=True)
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("round {task.completed}/{task.total}"),
            TextColumn("{task.fields[accuracy]}"),
            TimeRemainingColumn(),
        )
        self.progress = Progress(*columns, console=console, disable=not console.is_terminal)
        self.rounds = recipe.train.rounds
        self.several = len(recipe.train.seeds) > 1
        self.task: Any = None
        self.shown = ""
        self.said: set[str] = set()
        warnings.showwarning = lambda message, *_: self.warn(str(message))

    def warn(self, message: str) -> None:
        """Say it once, however many runs it is true of."""
        if message not in self.said:
            self.said.add(message)
            self.progress.console.print(f"fedbr: {message}", highlight=False, markup=False)

    def __call__(self, label: str, seed: int, line: dict[str, Any] | None) -> None:
        if line is None:
            name = f"{label}, seed {seed}" if self.several else label
            self.shown = ""
            self.task = self.progress.add_task(name, total=self.rounds, accuracy="")
            return
        if line["accuracy"] is not None:
            self.shown = f"accuracy {line['accuracy'] * 100:.1f} %"
        self.progress.update(self.task, completed=line["round"], accuracy=self.shown)
