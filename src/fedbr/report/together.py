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
    header, cells = settings.of_recipes({folder.name: folder.recipe for folder in folders})
    differing = paragraphs(["None, apart from the variants."])
    if cells:
        differing = table(header, cells, words=True)
    parts = [
        f'<header><nav aria-label="Folders">{"".join(links)}</nav>',
        f"<h1>{len(folders)} folders</h1>",
        table(*accuracy_table(folders)),
        paragraphs([_splits(folders)], "note"),
        curves_figure(folders, figures) if _comparable(folders) else "",
        f"<h2>Settings that differ</h2>{differing}</header>",
    ]
    return "\n".join(part for part in parts if part)


def accuracy_table(folders: Sequence[ReportFolder]) -> Table:
    """Make the table of all variants, with a column for each folder."""
    columns = []
    for folder in folders:
        columns.append({variant.label: variant for variant in folder.comparison.variants})
    labels = dict.fromkeys(label for folder in folders for label in folder.results.labels)
    rows = [[label, *(_accuracy(column.get(label)) for column in columns)] for label in labels]
    return ["5 best rounds %", *(folder.name for folder in folders)], rows


def _accuracy(variant: VariantResults | None) -> str:
    accuracy = variant.accuracy("top5") if variant else None
    return accuracy.show(1, 100) if accuracy else "-"


def _comparable(folders: Sequence[ReportFolder]) -> bool:
    """Whether accuracies of the folders are of the same test, and few enough for one figure."""
    tests = set()
    for folder in folders:
        data = folder.recipe.data
        tests.add((data.name, data.path, data.unseen, data.holdout))
    return len(tests) == 1 and sum(len(folder.results.labels) for folder in folders) <= MOST


def _splits(folders: Sequence[ReportFolder]) -> str:
    """Say whether the folders have the same clients."""
    by_folder = []
    for folder in folders:
        splits = {}
        for run in folder.results.runs:
            assert run.record.split is not None
            splits[run.seed] = run.record.split.hash
        by_folder.append(splits)
    common = set.intersection(*(set(splits) for splits in by_folder))
    if not common:
        return "The folders have no seed in common."
    same = all(len({splits[seed] for splits in by_folder}) == 1 for seed in common)
    which = "the same split" if same else "different splits"
    return f"A seed that all of them have stands for {which} in them."
