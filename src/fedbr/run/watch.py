"""Whoever wants to know how runs go on: progress bars, loggers, a function of the user's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..core.records import RoundRecord

if TYPE_CHECKING:
    from .plan import PlannedRun


class Watcher:
    """Is told what happens; does nothing with it. What a watcher raises ends the training."""

    def planned(self, runs: Sequence[PlannedRun]) -> None:
        """All runs are known, before the first begins."""

    def resumed(self, run: PlannedRun, rounds: Sequence[RoundRecord]) -> None:
        """These rounds of a run were done by an earlier call."""

    def started(self, run: PlannedRun) -> None:
        """A run begins, or goes on."""

    def round_done(self, run: PlannedRun, record: RoundRecord) -> None:
        """A round is done, and on disk."""

    def finished(self, run: PlannedRun) -> None:
        """A run has come to its end."""


class Watchers(Watcher):
    """Tells several watchers."""

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
