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
from ..run.forecast import format_duration
from ..run.plan import PlannedRun
from ..run.watch import Watcher
from .warning_lines import WarningLines

SECONDS = 10.0  # between two lines of a log


class Display(ABC):
    """Where progress is shown."""

    @abstractmethod
    def update(self, title: str, done: float, total: float, unit: str, note: str) -> None:
        """Show how much is done.

        Args:
            title: what is being done.
            done: how much of it.
            total: how much it is in all.
            unit: what is counted, such as "rounds".
            note: shown beside it, such as an accuracy.
        """

    @abstractmethod
    def line(self, text: str) -> None:
        """Print a line that stays."""

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
    """A bar in the output of a notebook's cell, drawn in place.

    Args:
        display: IPython's function of that name.
    """

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
    """Plain lines, at most one in ten seconds, and those that stay.

    Args:
        stream: where they are written.
        clock: gives the time in seconds.
    """

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream, self._clock = stream, clock
        self._start: float | None = None  # time of the first update
        self._done_at_start = 0.0
        self._last_line = clock()

    def update(self, title: str, done: float, total: float, unit: str, note: str) -> None:
        now = self._clock()
        if self._start is None or done < self._done_at_start:
            self._start, self._done_at_start = now, done
        if now - self._last_line < SECONDS or done >= total:
            return
        self._last_line = now
        left = ""
        progress = done - self._done_at_start
        if progress > 0:
            seconds = (now - self._start) * (total - done) / progress
            left = f"about {format_duration(seconds)} left"
        count = f"{done:,.0f} of {total:,.0f} {unit} in all"
        parts = (title, note, count, left)
        self.line(", ".join(part for part in parts if part))

    def line(self, text: str) -> None:
        print(text, file=self._stream, flush=True)


def _count(done: float, total: float, unit: str) -> str:
    return f"{done:,.0f}/{total:,.0f} {unit}".strip()


def choose_display() -> Display:
    """Return the display for the place where the program runs: notebook, terminal or log."""
    display = _find_notebook_display()
    if display is not None:
        return NotebookDisplay(display)
    console = Console(stderr=True)
    if console.is_terminal:
        return TerminalDisplay(console)
    return LogDisplay(sys.stderr)


def _find_notebook_display() -> Callable[..., Any] | None:
    """Return IPython's display function if a notebook's kernel runs this program."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None or not hasattr(shell, "kernel"):
        return None
    from IPython.display import display

    return display  # type: ignore[no-any-return]


class Progress(Watcher):
    """Shows how far something is while it is open.

    Args:
        display: where; None: chosen by where the program runs.

    >>> with Progress(LogDisplay(sys.stdout)) as progress:
    ...     progress.update("reading", 1, 2)
    ...     progress.line("read 2 files")
    read 2 files
    """

    def __init__(self, display: Display | None = None) -> None:
        self._chosen_display = display
        self._total = 0  # rounds of all runs
        # Of each run, by its identity:
        self._rounds: dict[int, int] = {}
        self._start_times: dict[int, float] = {}
        self._notes: dict[int, str] = {}  # its last accuracy in words

    def __enter__(self) -> Self:
        self._display = self._chosen_display or choose_display()
        self._usual_hook = warnings.showwarning
        warnings.showwarning = WarningLines(self._display.line)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        warnings.showwarning = self._usual_hook
        self._display.close()

    def update(self, title: str, done: float, total: float, unit: str = "", note: str = "") -> None:
        """Show how much is done; the arguments are those of ``Display.update``."""
        self._display.update(title, done, total, unit, note)

    def line(self, text: str) -> None:
        """Print a line that stays."""
        self._display.line(text)

    # The runner calls these, as it does with every watcher.
    def planned(self, runs: Sequence[PlannedRun]) -> None:
        self._rounds, self._start_times, self._notes = {}, {}, {}
        self._total = sum(run.rounds for run in runs)

    def resumed(self, run: PlannedRun, rounds: Sequence[RoundRecord]) -> None:
        self._rounds[id(run)] = rounds[-1].round if rounds else 0

    def started(self, run: PlannedRun) -> None:
        self._start_times[id(run)] = time.monotonic()
        self._show(run, self._rounds.get(id(run), 0))

    def round_done(self, run: PlannedRun, record: RoundRecord) -> None:
        if record.accuracy is not None:
            self._notes[id(run)] = f"accuracy {100 * record.accuracy:.1f} %"
        self._show(run, record.round)

    def finished(self, run: PlannedRun) -> None:
        key = id(run)
        parts = [f"{run.title}: {self._rounds.get(key, 0)} of {run.rounds} rounds"]
        if key in self._notes:
            parts.append(self._notes[key])
        if key in self._start_times:
            parts.append(format_duration(time.monotonic() - self._start_times[key]))
        self.line(", ".join(parts))

    def _show(self, run: PlannedRun, round: int) -> None:
        self._rounds[id(run)] = round
        note = self._notes.get(id(run), "")
        self.update(run.title, sum(self._rounds.values()), self._total, "rounds", note)
