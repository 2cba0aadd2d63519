"""The progress bar of many runs at once: quiet when piped."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from ..run.runner import Plan, Watch


class CampaignBar:
    """Counts the rounds of all runs; says which run the last of them was of."""

    def __init__(self) -> None:
        console = Console(stderr=True)
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("round {task.completed}/{task.total}"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[last]}", markup=False),
        )
        self.progress = Progress(*columns, console=console, disable=not console.is_terminal)
        self.said: set[str] = set()

    @contextmanager
    def shown(self) -> Iterator[CampaignBar]:
        """Show it, and warnings above it, each of them once."""
        before = warnings.showwarning
        warnings.showwarning = lambda message, *_: self.warn(str(message))
        try:
            with self.progress:
                yield self
        finally:
            warnings.showwarning = before

    def warn(self, message: str) -> None:
        if message not in self.said:
            self.said.add(message)
            self.progress.console.print(f"fedbr: {message}", highlight=False, markup=False)

    def watch(self, title: str, plan: Plan) -> Watch:
        """Begin a bar for a plan; return who tells it of every round."""
        total = sum(r.train.rounds * len(r.compare) * len(r.train.seeds) for r, _ in plan)
        task = self.progress.add_task(title, total=total, last="", visible=total > 0)

        def seen(which: int, label: str, seed: int, line: dict[str, Any] | None) -> None:
            if line is None:
                return
            accuracy = "" if line["accuracy"] is None else f" {line['accuracy'] * 100:.1f} %"
            self.progress.update(task, advance=1, last=f"{label}, seed {seed}{accuracy}")

        return seen
