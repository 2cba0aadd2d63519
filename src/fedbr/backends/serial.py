"""All clients in this process, one cohort after the other."""

from __future__ import annotations

import copy
from collections.abc import Sequence

from torch import Tensor

from ..core.client import Job, handle
from ..core.evaluation import Exam, count
from ..core.samples import Samples, TrainData
from .base import Answers, Cohort, LocalBackend
from .memory import ClientMemory


class SerialBackend(LocalBackend):
    """Moves samples to the device once, and computes there."""

    def __init__(
        self,
        job: Job,
        data: TrainData,
        tests: Sequence[Samples],
        cohort: int,
        memory: ClientMemory | None = None,
    ) -> None:
        device = job.spec.device
        super().__init__(job, data.to(device), tests, cohort, memory)
        self.tester = copy.deepcopy(job.model).to(device)
        there = {
            id(test): test.to(device) for test in tests
        }  # one that stands there twice is moved once
        self.tests_there = [there[id(test)] for test in tests]

    def test(self, exams: Sequence[Exam]) -> list[Tensor]:
        return [
            count(self.tester, params, self.tests_there, asked, self.job.spec.dtype)
            for params, asked in exams
        ]

    def _answer(self, work: Sequence[Cohort]) -> Sequence[Answers]:
        return [handle(self.job, self.data, tasks, states) for tasks, states in work]
