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
    from ..run import runner as campaign
    from ..util.imports import require
    from ..util.processes import usable_cores
    from .progress import CampaignBar
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
        plan = [(scaled.recipe, folder / scaled.part.slug) for scaled in parts]
        _check_folder(folder, [path for _, path in plan])
        campaign.check(plan, fresh)
        console = plain_console()
        console.print("\n".join(text.head(chosen, parts)))
        cores = workers or usable_cores()
        shares = [campaign.share_left(recipe, path, fresh) for recipe, path in plan]
        begun = min(shares) < 1
        if any(shares):
            console.print("A few steps of every row are tried, to say how long all will take ...")
        seconds = (
            sum(
                s * forecast.cpu_seconds(recipe)
                for s, (recipe, _) in zip(shares, plan, strict=True)
                if s
            )
            / cores
        )
        if any(shares):
            where = f"{cores} core{'s' if cores > 1 else ''} of this machine"
            console.print(
                f"About {forecast.words(seconds)} on {where}{', for what is left' * begun}.\n"
            )
        bar, begun = CampaignBar(), True
        with bar.shown(), campaign.Crew(cores) as crew:
            found = campaign.conduct(plan, crew, fresh, bar.watch(table, plan))
    except KeyboardInterrupt:
        leave(begun)
    outcomes = [
        outcome(chosen, i, s, path)
        for i, (s, (_, path)) in enumerate(zip(parts, plan, strict=True))
    ]
    show_beside(chosen.base, outcomes)
    page = text.write_all(folder, chosen, outcomes)
    print(f"Results: {folder} (table.md, table.csv, table.tex)   Report: {page}")
    return 1 if any(run["diverged"] for results in found for run in results["runs"]) else 0


def _check_folder(folder: Path, parts: Sequence[Path]) -> None:
    """Refuse a folder that is not empty and holds no table of ours."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"--out {folder}: is not a folder")
    ours = (
        any((part / "recipe.toml").exists() for part in parts)
        and not (folder / "recipe.toml").exists()
    )
    if folder.exists() and not ours and any(not p.name.startswith(".") for p in folder.iterdir()):
        raise InputError(
            f"--out {folder}: is not empty and holds no table of ours; choose another folder"
        )
