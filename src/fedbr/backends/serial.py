"""All clients in this process, one block after the other."""

from __future__ import annotations

import copy
from collections.abc import Sequence

from ..core.client import handle
from ..core.evaluation import Answers, Exam, TestPlan, answer
from ..core.samples import TrainData
from ..core.setup import Setup
from .base import LocalBackend, Outcome, Work
from .memory import ClientMemory


class SerialBackend(LocalBackend):
    """Trains all clients in this process; samples are moved to the device once."""

    def __init__(
        self,
        setup: Setup,
        data: TrainData,
        plan: TestPlan,
        block_size: int,
        memory: ClientMemory | None = None,
    ) -> None:
        device = setup.spec.device
        super().__init__(setup, data.to(device), plan, block_size, memory)
        self._tested = copy.deepcopy(setup.model).to(device)
        self._plan_there = plan.to(device)

    def test(self, exams: Sequence[Exam]) -> list[Answers]:
        dtype = self.setup.spec.dtype
        return [answer(self._tested, self._plan_there, exam, dtype) for exam in exams]

    def _answer(self, work: Sequence[Work]) -> Sequence[Outcome]:
        outcomes = []
        for broadcast, states in work:
            outcomes.append(handle(self.setup, self.data, broadcast, states))
        return outcomes
