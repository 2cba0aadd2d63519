"""How far something is, in one place: a bar on a terminal, one in a notebook, lines in a log.

In a log (a pipe, a file, nohup, SLURM) a plain line appears at most every ten seconds, and one at
the end of each run. Warnings appear as lines above the bar, each of them once.
"""

from __future__ import annotations

import sys
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self, TextIO

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from ..core.records import RoundRecord
from ..run.forecast import words as in_words
from ..run.plan import PlannedRun
from ..run.watch import Watcher
from .warning_lines import WarningLines

SECONDS = 10.0  # between two lines of a log


class Display(ABC):
    """Where progress is seen."""

    @abstractmethod
    def update(self, title: str, done: float, total: float, unit: str, note: str) -> None:
        """Show that so much is done."""

    @abstractmethod
    def line(self, text: str) -> None:
        """Show a line that stays."""

    def close(self) -> None:  # noqa: B027 (only a terminal has something to put right)
        """Leave the screen as it should stay."""


class TerminalDisplay(Display):
    """A bar at the bottom of a terminal."""

    def __init__(self, console: Console) -> None:
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[count]}", markup=False),
            TextColumn("{task.fields[note]}", markup=False),
            TimeRemainingColumn(),
        )
        self._bar = Bar(*columns, console=console, transient=True)
        self._task = self._bar.add_task("", total=None, count="", note="", visible=False)
        self._bar.start()

    def update(self, title: str, done: float, total: float, unit: str, note: str) -> None:
        count = _count(done, total, unit)
        if self._bar.tasks[0].total != total or done < self._bar.tasks[0].completed:
            self._bar.reset(self._task, total=total)
        self._bar.update(
            self._task, description=title, completed=done, count=count, note=note, visible=True
        )

    def line(self, text: str) -> None:
        self._bar.console.print(text, highlight=False, markup=False)

    def close(self) -> None:
        self._bar.stop()


class NotebookDisplay(Display):
    """A bar in the output of a notebook's cell, drawn in place."""

    def __init__(self, display: Callable[..., Any]) -> None:
        self._place = display({"text/plain": ""}, raw=True, display_id=True)
        self._show_line = display

    def update(self, title: str, done: float, total: float, unit: str, note: str) -> None:
        filled = round(30 * done / total) if total else 0
        bar = "█" * filled + "░" * (30 - filled)
        text = f"{title} {bar} {_count(done, total, unit)} {note}".rstrip()
        self._place.update({"text/plain": text}, raw=True)

    def line(self, text: str) -> None:
        self._show_line({"text/plain": text}, raw=True)


class LogDisplay(Display):
    """Plain lines, at most one in ten seconds, and those that stay."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream, self._clock = stream, clock
        self._began: float | None = None
        self._last = clock()
        self._at_first = 0.0  # what was done when it began

    def update(self, title: str, done: float, total: float, unit: str, note: str) -> None:
        now = self._clock()
        if self._began is None or done < self._at_first:
            self._began, self._at_first = now, done
        if now - self._last < SECONDS or done >= total:
            return
        self._last = now
        left = ""
        if done > self._at_first:
            seconds = (now - self._began) * (total - done) / (done - self._at_first)
            left = f"about {in_words(seconds)} left"
        count = f"{done:,.0f} of {total:,.0f} {unit} in all"
        parts = (title, note, count, left)
        self.line(", ".join(part for part in parts if part))

    def line(self, text: str) -> None:
        print(text, file=self._stream, flush=True)


def _count(done: float, total: float, unit: str) -> str:
    return f"{done:,.0f}/{total:,.0f} {unit}".strip()


def choose_display() -> Display:
    """Return what suits the place where the program runs."""
    if (display := _notebook()) is not None:
        return NotebookDisplay(display)
    console = Console(stderr=True)
    if console.is_terminal:
        return TerminalDisplay(console)
    return LogDisplay(sys.stderr)


def _notebook() -> Callable[..., Any] | None:
    """Return IPython's display function if a notebook's kernel runs this program."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None or not hasattr(shell, "kernel"):
        return None
    from IPython.display import display

    return display  # type: ignore[no-any-return]


class Progress(Watcher):
    """Shows how far something is while it is open.

    >>> with Progress(LogDisplay(sys.stdout)) as progress:
    ...     progress.update("reading", 1, 2)
    ...     progress.line("read 2 files")
    read 2 files
    """

    def __init__(self, display: Display | None = None) -> None:
        self._given = display
        self._rounds: dict[int, int] = {}  # of each run, by its identity
        self._began: dict[int, float] = {}
        self._total = 0
        self._last: dict[int, str] = {}  # a run's accuracy in words

    def __enter__(self) -> Self:
        self._display = self._given or choose_display()
        self._before = warnings.showwarning
        warnings.showwarning = WarningLines(self._display.line)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        warnings.showwarning = self._before
        self._display.close()

    def update(self, title: str, done: float, total: float, unit: str = "", note: str = "") -> None:
        """Show that so much of something is done."""
        self._display.update(title, done, total, unit, note)

    def line(self, text: str) -> None:
        """Show a line that stays."""
        self._display.line(text)

    # What the runner says.
    def planned(self, runs: Sequence[PlannedRun]) -> None:
        self._rounds, self._began, self._last = {}, {}, {}
        self._total = sum(run.rounds for run in runs)

    def resumed(self, run: PlannedRun, rounds: Sequence[RoundRecord]) -> None:
        self._rounds[id(run)] = rounds[-1].round if rounds else 0

    def started(self, run: PlannedRun) -> None:
        self._began[id(run)] = time.monotonic()
        self._show(run, self._rounds.get(id(run), 0))

    def round_done(self, run: PlannedRun, record: RoundRecord) -> None:
        if record.accuracy is not None:
            self._last[id(run)] = f"accuracy {100 * record.accuracy:.1f} %"
        self._show(run, record.round)

    def finished(self, run: PlannedRun) -> None:
        rounds = self._rounds.get(id(run), 0)
        parts = [f"{run.title}: {rounds} of {run.rounds} rounds"]
        parts += [self._last[id(run)]] if id(run) in self._last else []
        parts += (
            [in_words(time.monotonic() - self._began[id(run)])] if id(run) in self._began else []
        )
        self.line(", ".join(parts))

    def _show(self, run: PlannedRun, round: int) -> None:
        self._rounds[id(run)] = round
        note = self._last.get(id(run), "")
        self.update(run.title, sum(self._rounds.values()), self._total, "rounds", note)
