"""fedbr reproduce: a table or a figure of the paper, ours beside the paper's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import typer

from ..util.errors import InputError
from . import interruptible, leave
from .run import FRESH, SET, WORKERS

TABLE = typer.Argument("")
SCALE = typer.Option(
    "cpu", "--scale", help="cpu: a size for two cores. paper: as in the paper, GPU days."
)
SEEDS = typer.Option(
    None, "--seeds", metavar="0,1,2", help="Seeds; default: as many as the time allows."
)
OUT = typer.Option(
    None, "--out", metavar="DIR", help="Folder of the results; default: runs/paper/<table>-<scale>."
)
LIST = typer.Option(
    False, "--list", help="Say what there is, what it costs and what data it needs."
)


def reproduce(
    table: str = TABLE,
    scale: Literal["cpu", "paper"] = SCALE,
    seeds: str | None = SEEDS,
    set_: list[str] = SET,
    out: Path | None = OUT,
    workers: int | None = WORKERS,
    fresh: bool = FRESH,
    list_: bool = LIST,
) -> int:
    """Train one table or figure of the paper and show our figures beside the paper's.

    TABLE is one of those that --list shows. Started again with the same folder it resumes.
    """
    from ..paper import text
    from ..paper.outcome import outcome
    from ..paper.scale import parse_seeds, recipes
    from ..paper.table import load
    from ..run import forecast
    from ..run.engines import WholeRuns
    from ..run.plan import Experiment
    from ..run.processes import Processes
    from ..run.runner import check, execute, share_left
    from ..util.imports import require
    from ..util.processes import usable_cores
    from .progress import Progress
    from .tables import plain_console, show_beside, show_paper_tables

    interruptible()
    if list_ or not table:
        show_paper_tables()
        return 0
    chosen = load(table)
    require("matplotlib", "plotly", extra="report", wanted_by="fedbr reproduce")
    folder = out or Path("runs") / "paper" / f"{table}-{scale}"
    begun = False
    try:
        parts = recipes(chosen, scale, parse_seeds(seeds), set_)
        plan = [Experiment(scaled.recipe, folder / scaled.part.slug) for scaled in parts]
        _check_folder(folder, [folder / scaled.part.slug for scaled in parts])
        cores = workers or usable_cores()
        with Progress() as watch, Processes(cores) as processes:
            engine = WholeRuns(processes)
            check(plan, engine, fresh)
            console = plain_console()
            console.print("\n".join(text.head(chosen, parts)))
            shares = [share_left(experiment, fresh) for experiment in plan]
            begun = min(shares) < 1
            if any(shares):
                console.print("A few steps of every row are tried, to say how long all will take.")
                seconds = 0.0
                for share, experiment in zip(shares, plan, strict=True):
                    seconds += share * forecast.cpu_seconds(experiment.recipe) if share else 0
                where = f"{cores} core{'s' if cores > 1 else ''} of this machine"
                rest = ", for what is left" if begun else ""
                console.print(f"About {forecast.words(seconds / cores)} on {where}{rest}.\n")
            begun = True
            results = execute(plan, engine, fresh=fresh, watch=watch)
    except KeyboardInterrupt:
        leave(begun)
    outcomes = []
    for i, (scaled, part) in enumerate(zip(parts, results, strict=True)):
        outcomes.append(outcome(chosen, i, scaled, part))
    show_beside(chosen.base, outcomes)
    page = text.write_all(folder, chosen, outcomes)
    print(f"Results: {folder} (table.md, table.csv, table.tex)   Report: {page}")
    return 1 if any(part.diverged for part in results) else 0


def _check_folder(folder: Path, parts: Sequence[Path]) -> None:
    """Refuse a folder that is not empty and holds no table that fedbr made."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"--out {folder}: is not a folder")
    ours = (
        any((part / "recipe.toml").exists() for part in parts)
        and not (folder / "recipe.toml").exists()
    )
    if folder.exists() and not ours and any(not p.name.startswith(".") for p in folder.iterdir()):
        raise InputError(
            f"--out {folder}: is not empty and holds no table that fedbr made; choose another folder"
        )
