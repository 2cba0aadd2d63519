"""Tables in the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..results import tables
from ..sweep import Case


def plain_console() -> Console:
    """Return a console that takes text as it is; a file or a pipe has no right edge."""
    console = Console(highlight=False, markup=False)
    return console if console.is_terminal else Console(highlight=False, markup=False, width=400)


def grid(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Make a table without lines, the first column to the left and the others to the right."""
    table = Table(*header, box=None, pad_edge=False, header_style="bold")
    for column in table.columns[1:]:
        column.justify = "right"
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table


def show(results: dict[str, Any]) -> None:
    """Print the comparison, what the split is like, and in words which side is ahead."""
    console = plain_console()
    header, cells = tables.compare(results)
    console.print(tables.about(results))
    console.print(grid(header, cells))
    for sentence in tables.sentences(results):
        console.print(sentence)


def show_sweep(cases: Sequence[Case]) -> None:
    """Print what the search found and how the chosen compare, for every case."""
    console = plain_console()
    for case in cases:
        if case.name:
            console.print(f"\n{case.name}")
        if case.searched:
            train = case.results["recipe"]["train"]
            console.print(
                f"Searched on {case.holdout:.0%} of the training samples, held out: mean of the 5 best rounds, "
                f"{len(train['seeds'])} seeds, {train['rounds']} rounds each; * is chosen"
            )
            rows = [
                [
                    f"{'*' if case.best[t.label] is t else ' '} {t.stack.label}",
                    t.score.show(1, 100) if t.score else "diverged",
                ]
                for t in case.trials
            ]
            console.print(grid(["  trial", "held out %"], rows))
            console.print("\nThe chosen, trained on all training samples, on the test set:")
        show(case.results)
