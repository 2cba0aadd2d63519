"""fedbr sweep: a grid of settings, searched on held-out samples, and the comparison of the best."""

from __future__ import annotations

import shlex
from pathlib import Path

import typer

from . import interruptible, leave
from .run import FRESH, METHODS, SET, WORKERS

RECIPE = typer.Argument("digits")
GRID = typer.Option(
    [],
    "--grid",
    metavar="KEY=V1,V2 ...",
    help="Values to try: fedbr.lam=0.1,1 or train.lr=0.01,0.1 or data.alpha=0.1,1.",
)
OUT = typer.Option(
    None, "--out", metavar="DIR", help="Folder of the results; default: runs/<recipe>-sweep."
)
HOLDOUT = typer.Option(
    0.2, "--holdout", min=0.01, max=0.9, help="Share of the training samples to choose on."
)


def sweep(
    recipe: str = RECIPE,
    grid: list[str] = GRID,
    set_: list[str] = SET,
    methods: list[str] = METHODS,
    out: Path | None = OUT,
    workers: int | None = WORKERS,
    fresh: bool = FRESH,
    holdout: float = HOLDOUT,
) -> int:
    """Try a grid of settings, with the same rounds and seeds for every variant.

    Parameters of methods and lr, momentum, weight_decay are tuned: the best value of each variant
    is chosen on training samples that are held out, never on the test set; then the chosen are
    trained on all and compared on the test set. Any other key (data.alpha, model.width) gives a
    comparison for each of its values. Started again with the same folder it resumes: what is
    finished is not repeated.
    """
    from ..recipe.load import load
    from ..run.grid import Grid
    from ..run.sweep import sweep
    from .progress import Progress
    from .tables import show_sweep

    interruptible()
    grids = [Grid.parse(text) for text in grid]
    try:
        folder = out or Path("runs") / f"{load(recipe, set_, methods).name}-sweep"
        with Progress() as watch:
            cases = sweep(recipe, grids, folder, set_, methods, workers, fresh, holdout, watch)
    except KeyboardInterrupt:
        leave()
    show_sweep(cases)
    final = " ".join(shlex.quote(str(folder / "final" / case.name)) for case in cases)
    print(f"Results: {folder}   Report: fedbr report {final}")
    return 1 if any(case.results.diverged for case in cases) else 0
