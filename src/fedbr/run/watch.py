"""Watchers follow the progress of runs: progress bars, loggers, a function of the user's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..core.records import RoundRecord

if TYPE_CHECKING:
    from .plan import PlannedRun


class Watcher:
    """Follows the progress of runs; every method does nothing until a subclass defines it.

    An exception in a watcher ends the training.

    >>> class Printer(Watcher):
    ...     def round_done(self, run, record):
    ...         print(run.title, record.round, record.accuracy)
    """

    def planned(self, runs: Sequence[PlannedRun]) -> None:
        """Take all runs, before the first begins."""

    def resumed(self, run: PlannedRun, rounds: Sequence[RoundRecord]) -> None:
        """Take the rounds of a run that an earlier call has trained."""

    def started(self, run: PlannedRun) -> None:
        """Take a run that begins, or goes on."""

    def round_done(self, run: PlannedRun, record: RoundRecord) -> None:
        """Take the record of a round that is done, and on disk."""

    def finished(self, run: PlannedRun) -> None:
        """Take a run that is finished."""


class Watchers(Watcher):
    """Passes everything on to several watchers."""

    def __init__(self, *watchers: Watcher) -> None:
        self.watchers = watchers

    def planned(self, runs: Sequence[PlannedRun]) -> None:
        for watcher in self.watchers:
            watcher.planned(runs)

    def resumed(self, run: PlannedRun, rounds: Sequence[RoundRecord]) -> None:
        for watcher in self.watchers:
            watcher.resumed(run, rounds)

    def started(self, run: PlannedRun) -> None:
        for watcher in self.watchers:
            watcher.started(run)

    def round_done(self, run: PlannedRun, record: RoundRecord) -> None:
        for watcher in self.watchers:
            watcher.round_done(run, record)

    def finished(self, run: PlannedRun) -> None:
        for watcher in self.watchers:
            watcher.finished(run)
