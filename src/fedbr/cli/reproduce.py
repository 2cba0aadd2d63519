"""fedbr reproduce: a table or a figure of the paper, ours beside the paper's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

from ..util.files import refuse_foreign
from . import interruptible, leave
from .run import FRESH, SET, WORKERS

if TYPE_CHECKING:  # torch takes its time
    from ..run.plan import Experiment

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
    """Train one table or figure of the paper and show our values beside the paper's.

    TABLE is one of those that --list shows. Started again with the same folder it resumes.
    """
    from ..paper import text
    from ..paper.outcome import make_outcome
    from ..paper.scale import parse_seeds, recipes
    from ..paper.table import load
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
    require("matplotlib", "plotly", extra="report", needed_by="fedbr reproduce")
    folder = out or Path("runs") / "paper" / f"{table}-{scale}"
    begun = False
    try:
        parts = recipes(chosen, scale, parse_seeds(seeds), set_)
        plan = [Experiment(scaled.recipe, folder / scaled.part.slug) for scaled in parts]
        refuse_foreign(folder, _is_table(folder, plan))
        cores = workers or usable_cores()
        with Progress() as watch, Processes(cores) as processes:
            engine = WholeRuns(processes)
            check(plan, engine, fresh)
            plain_console().print("\n".join(text.head(chosen, parts)))
            shares = [share_left(experiment, fresh) for experiment in plan]
            begun = min(shares) < 1
            if any(shares):
                _print_forecast(plan, shares, cores)
            begun = True
            results = execute(plan, engine, fresh=fresh, watch=watch)
    except KeyboardInterrupt:
        leave(begun)
    outcomes = []
    for i, (scaled, part) in enumerate(zip(parts, results, strict=True)):
        outcomes.append(make_outcome(chosen, i, scaled, part))
    show_beside(chosen.base, outcomes)
    page = text.write_all(folder, chosen, outcomes)
    print(f"Results: {folder} (table.md, table.csv, table.tex)   Report: {page}")
    return 1 if any(part.diverged for part in results) else 0


def _print_forecast(plan: Sequence[Experiment], shares: Sequence[float], cores: int) -> None:
    """Try a few steps, and say how long the rest will take.

    Args:
        plan: what is trained.
        shares: of each experiment, the part that is left.
        cores: that are used.
    """
    from ..run import forecast
    from .tables import plain_console

    console = plain_console()
    console.print("A few steps of every row are tried, to say how long all will take.")
    seconds = 0.0
    for share, experiment in zip(shares, plan, strict=True):
        if share:
            seconds += share * forecast.cpu_seconds(experiment.recipe)
    duration = forecast.format_duration(seconds / cores)
    where = f"{cores} core{'s' if cores > 1 else ''} of this machine"
    rest = ", for what is left" if min(shares) < 1 else ""
    console.print(f"About {duration} on {where}{rest}.\n")


def _is_table(folder: Path, plan: Sequence[Experiment]) -> bool:
    """Whether a folder holds parts of a table, and is not the folder of a single run itself."""
    if (folder / "recipe.toml").exists():
        return False
    parts = [experiment.path for experiment in plan]
    return any(part is not None and (part / "recipe.toml").exists() for part in parts)
