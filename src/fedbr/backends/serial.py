"""All clients in this process, one block after the other."""

from __future__ import annotations

import copy
from collections.abc import Sequence

from torch import Tensor

from ..core.client import Setup, handle
from ..core.evaluation import Exam, count
from ..core.samples import Samples, TrainData
from .base import Answers, LocalBackend, Work
from .memory import ClientMemory


class SerialBackend(LocalBackend):
    """Moves samples to the device once, and computes there."""

    def __init__(
        self,
        setup: Setup,
        data: TrainData,
        tests: Sequence[Samples],
        block_size: int,
        memory: ClientMemory | None = None,
    ) -> None:
        device = setup.spec.device
        super().__init__(setup, data.to(device), tests, block_size, memory)
        self.tester = copy.deepcopy(setup.model).to(device)
        there = {
            id(test): test.to(device) for test in tests
        }  # one that stands there twice is moved once
        self.tests_there = [there[id(test)] for test in tests]

    def test(self, exams: Sequence[Exam]) -> list[Tensor]:
        return [
            count(self.tester, params, self.tests_there, asked, self.setup.spec.dtype)
            for params, asked in exams
        ]

    def _answer(self, work: Sequence[Work]) -> Sequence[Answers]:
        return [handle(self.setup, self.data, tasks, states) for tasks, states in work]
