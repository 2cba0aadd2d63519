"""Several folders on one page: what differs, and the curves where they mean the same."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from . import settings
from .compare import VariantResults
from .figures import curves_figure
from .page import Figures, paragraphs, table
from .read import ReportFolder
from .tables import Table

MOST = 24  # curves in one figure


def together(folders: Sequence[ReportFolder], figures: Figures) -> str:
    """Write the head of the page."""
    links = []
    for i, folder in enumerate(folders):
        links.append(f'<a href="#folder-{i}">{escape(folder.name)}</a>')
    recipes = {folder.name: folder.recipe for folder in folders}
    header, cells = settings.list_differences(recipes)
    differences = paragraphs(["None, apart from the variants."])
    if cells:
        differences = table(header, cells, words=True)
    parts = [
        f'<header><nav aria-label="Folders">{"".join(links)}</nav>',
        f"<h1>{len(folders)} folders</h1>",
        table(*accuracy_table(folders)),
        paragraphs([_splits(folders)], "note"),
        curves_figure(folders, figures) if _comparable(folders) else "",
        f"<h2>Settings that differ</h2>{differences}</header>",
    ]
    return "\n".join(part for part in parts if part)


def accuracy_table(folders: Sequence[ReportFolder]) -> Table:
    """Make the table of all variants, with a column for each folder."""
    rows: dict[str, list[str]] = {}
    for folder in folders:
        for label in folder.results.labels:
            rows.setdefault(label, [label])
    for folder in folders:
        variants = {variant.label: variant for variant in folder.comparison.variants}
        for label, row in rows.items():
            row.append(_accuracy(variants.get(label)))
    header = ["5 best rounds %", *(folder.name for folder in folders)]
    return header, list(rows.values())


def _accuracy(variant: VariantResults | None) -> str:
    accuracy = variant.accuracy("top5") if variant else None
    return accuracy.show(1, 100) if accuracy else "-"


def _comparable(folders: Sequence[ReportFolder]) -> bool:
    """Whether accuracies of the folders are of the same test, and few enough for one figure."""
    tests = set()
    curves = 0
    for folder in folders:
        data = folder.recipe.data
        tests.add((data.name, data.path, data.unseen, data.holdout))
        curves += len(folder.results.labels)
    return len(tests) == 1 and curves <= MOST


def _splits(folders: Sequence[ReportFolder]) -> str:
    """Say whether the folders have the same clients."""
    by_folder = [_split_hashes(folder) for folder in folders]
    first, *others = by_folder
    common = set(first).intersection(*others)
    if not common:
        return "The folders have no seed in common."
    which = "the same split"
    for seed in common:
        if any(splits[seed] != first[seed] for splits in others):
            which = "different splits"
    return f"A seed that all of them have stands for {which} in them."


def _split_hashes(folder: ReportFolder) -> dict[int, str]:
    """Return what identifies the split of each seed."""
    hashes = {}
    for run in folder.results.runs:
        assert run.record.split is not None
        hashes[run.seed] = run.record.split.hash
    return hashes
