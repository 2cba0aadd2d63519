"""fedbr report: one self-contained page from finished or partial runs, and the files that a paper
needs.
"""

from __future__ import annotations

from pathlib import Path

import typer

DIRS = typer.Argument(..., metavar="DIR ...")
OUT = typer.Option(
    None, "--out", metavar="FILE", help="The page; default: report.html in the first folder."
)

WRITTEN = {"figures (PNG, SVG, PDF)": ".png", "data": ".csv", "LaTeX": ".tex", "Markdown": ".md"}


def report(dirs: list[Path] = DIRS, out: Path | None = OUT) -> int:
    """Write one self-contained HTML page: headline, curves, comparison, clients, cost, recipe, what
    figures mean.

    DIR is a result folder of fedbr run, finished or not; several make one page. Figures (PNG, SVG,
    PDF), CSV, LaTeX and Markdown go into a folder beside the page.
    """
    from ..report.comparison import read
    from ..report.files import beside, export
    from ..report.write import check_place, write_page
    from ..util.imports import require

    require("matplotlib", "plotly", extra="report", wanted_by="fedbr report")
    if out is not None:
        check_place(out)
    found = read(dirs)
    page = write_page(found, out or dirs[0] / "report.html")
    folder = beside(page)
    files = export(found, folder)
    print(f"Report: {page}")
    print(f"Beside it, in {folder}:")
    for what, ending in WRITTEN.items():
        names = [str(file.relative_to(folder)) for file in files if file.suffix == ending]
        if names:
            print(f"  {what}: {', '.join(names)}")
    return 0
