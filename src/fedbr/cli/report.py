"""fedbr report: one self-contained page from finished or partial runs, and files for a paper."""

from __future__ import annotations

from pathlib import Path

import typer

DIRS = typer.Argument(..., metavar="DIR ...")
OUT = typer.Option(
    None,
    "--out",
    metavar="FILE",
    help="The page; default: report.html in DIR or, of several, A+B.html beside the first.",
)

# What is written beside the page -> by which ending it is found.
WRITTEN = {"figures (PNG, SVG, PDF)": ".png", "data": ".csv", "LaTeX": ".tex", "Markdown": ".md"}


def report(dirs: list[Path] = DIRS, out: Path | None = OUT) -> int:
    """Write one self-contained HTML page about one or more result folders.

    It has a headline, curves, the comparison, clients, costs, the recipe, and what numbers mean.
    DIR is a result folder of fedbr run, finished or not. Several make one page, beside the first
    and named after all of them; their own reports stay. Figures (PNG, SVG, PDF), CSV, LaTeX and
    Markdown go into a folder beside the page.
    """
    from ..report.files import beside, export
    from ..report.read import read
    from ..report.write import check_place, default_place, write_page
    from ..util.imports import require

    require("matplotlib", "plotly", extra="report", needed_by="fedbr report")
    page = out or default_place(dirs)
    if out is not None:
        check_place(page)
    folders = read(dirs)
    if out is None and len(dirs) > 1:
        check_place(page, dirs)
    write_page(folders, page)
    files = export(folders, beside(page))
    print(f"Report: {page}")
    print(f"Beside it, in {beside(page)}:")
    for what, ending in WRITTEN.items():
        names = [file.relative_to(beside(page)) for file in files if file.suffix == ending]
        if names:
            print(f"  {what}: {', '.join(map(str, names))}")
    return 0
