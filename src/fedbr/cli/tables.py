"""Tables in the terminal."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..results import tables


def plain_console() -> Console:
    """Return a console that takes text as it is; a file or a pipe has no right edge."""
    console = Console(highlight=False, markup=False)
    return console if console.is_terminal else Console(highlight=False, markup=False, width=400)


def show(results: dict[str, Any]) -> None:
    """Print the comparison, what the split is like, and in words which side is ahead."""
    console = plain_console()
    header, cells = tables.compare(results)
    grid = Table(*header, box=None, pad_edge=False, header_style="bold")
    for column in grid.columns[1:]:
        column.justify = "right"
    for row in cells:
        grid.add_row(*(Text(cell) for cell in row))
    console.print(tables.about(results))
    console.print(grid)
    for sentence in tables.sentences(results):
        console.print(sentence)
