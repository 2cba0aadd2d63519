"""Tables in the terminal."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from ..results import tables


def show(results: dict[str, Any]) -> None:
    """Print the comparison, what the split is like, and in words which side is ahead."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=200)  # a file or a pipe has no right edge
    header, cells = tables.compare(results)
    grid = Table(*header, box=None, pad_edge=False, header_style="bold")
    for column in grid.columns[1:]:
        column.justify = "right"
    for row in cells:
        grid.add_row(*row)
    console.print(tables.about(results), highlight=False, markup=False)
    console.print(grid)
    for sentence in tables.sentences(results):
        console.print(sentence, highlight=False, markup=False)
