"""fedbr report: one self-contained page from finished or partial runs."""

from __future__ import annotations

from pathlib import Path

import typer

DIRS = typer.Argument(..., metavar="DIR ...")
OUT = typer.Option(None, "--out", metavar="FILE", help="The page; default: report.html in the first folder.")


def report(dirs: list[Path] = DIRS, out: Path | None = OUT) -> int:
    """Write one self-contained HTML page: curves, comparison, recipe, and what every figure means.

    DIR is a result folder of fedbr run, finished or not; several make one page.
    """
    from ..results.report import write_report

    print(f"Report: {write_report(dirs, out)}")
    return 0
