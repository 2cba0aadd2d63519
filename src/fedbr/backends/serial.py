"""All clients in this process, one cohort after the other."""

from __future__ import annotations

from collections.abc import Sequence

from ..core.client import handle
from .base import Answers, Cohort, LocalBackend


class SerialBackend(LocalBackend):
    def _answer(self, work: Sequence[Cohort]) -> Sequence[Answers]:
        return [handle(self.job, self.data, tasks, states) for tasks, states in work]
