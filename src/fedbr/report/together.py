"""Several folders on one page: what differs, every variant in each, and the curves where they mean
the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from . import settings, tables
from .comparison import Comparison
from .figures import Figures, curves_figure
from .page import paragraphs, table

MOST = 24  # curves in one figure


def together(comparisons: Sequence[Comparison], figures: Figures) -> str:
    """Write the head of the page."""
    links = "".join(
        f'<a href="#folder-{i}">{escape(c.name)}</a>' for i, c in enumerate(comparisons)
    )
    header, cells = settings.of_folders(comparisons)
    differing = (
        table(header, cells, words=True)
        if cells
        else paragraphs(["None, apart from the variants."])
    )
    parts = [
        f'<header><nav aria-label="Folders">{links}</nav><h1>{len(comparisons)} folders</h1>',
        table(["5 best rounds %", *(c.name for c in comparisons)], _cells(comparisons)),
        paragraphs([_splits(comparisons)], "note"),
        curves_figure(comparisons, figures) if _comparable(comparisons) else "",
        f"<h2>Settings that differ</h2>{differing}</header>",
    ]
    return "\n".join(part for part in parts if part)


def _comparable(comparisons: Sequence[Comparison]) -> bool:
    """Tell whether accuracies of the folders are of the same test, and few enough for one figure."""
    tests = {
        tuple(getattr(c.recipe.data, key) for key in ("name", "path", "unseen", "holdout"))
        for c in comparisons
    }
    return len(tests) == 1 and sum(len(c.labels) for c in comparisons) <= MOST


def _cells(comparisons: Sequence[Comparison]) -> list[list[str]]:
    rows = [
        {row.label: row for row in tables.rows(comparison.results)} for comparison in comparisons
    ]
    cells = []
    for label in dict.fromkeys(label for comparison in comparisons for label in comparison.labels):
        found = [
            r[label].figure(lambda run: run["accuracy"]["top5"]) if label in r else None
            for r in rows
        ]
        cells.append([label, *(figure.show(1, 100) if figure else "-" for figure in found)])
    return cells


def _splits(comparisons: Sequence[Comparison]) -> str:
    """Say whether the folders have the same clients."""
    hashes = [{run["seed"]: run["split"]["hash"] for run in c.results["runs"]} for c in comparisons]
    common = set.intersection(*(set(h) for h in hashes))
    if not common:
        return "The folders have no seed in common."
    same = all(len({h[seed] for h in hashes}) == 1 for seed in common)
    return f"A seed that all of them have stands for {'the same split' if same else 'different splits'} in them."
