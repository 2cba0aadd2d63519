"""What a backend is, and what those that simulate the clients on this machine have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from ..core.client import Setup, blocks, new_state
from ..core.evaluation import Exam
from ..core.samples import Samples, TrainData
from ..core.wire import SHARED, Payload, Reply, Task
from ..util.errors import RunError
from .memory import ClientMemory

Work = tuple[list[Task], list[Payload]]
Answers = list[tuple[Reply, Payload]]


class Backend(Protocol):
    """Carries tasks to clients and brings their replies back, in the order of the tasks."""

    states: ClientMemory  # of the clients that live here
    shared: Payload  # what the server shared last; whoever trains holds the same

    tests: Sequence[Samples]  # what models are tested on

    def run(self, tasks: Sequence[Task]) -> list[Reply]: ...

    def test(self, exams: Sequence[Exam]) -> list[Tensor]:
        """Let models answer; return the right answers by class for each piece of each exam."""
        ...


class LocalBackend(ABC):
    """Keeps the clients' state and groups tasks into blocks, whose size does not depend on the
    workers.
    """

    def __init__(
        self,
        setup: Setup,
        data: TrainData,
        tests: Sequence[Samples],
        block_size: int,
        memory: ClientMemory | None = None,
    ) -> None:
        self.setup, self.data, self.tests, self.block_size = setup, data, tests, block_size
        self.states = ClientMemory() if memory is None else memory
        self.shared: Payload = {}
        self._memory = new_state(setup).keys()  # the methods that remember

    def run(
        self, tasks: Sequence[Task], groups: Sequence[Sequence[int]] | None = None
    ) -> list[Reply]:
        """Answer tasks; ``groups``: who trains together, by position, where that was decided among
        more tasks.
        """
        for task in tasks:
            self.shared |= {k: v for k, v in task.payload.items() if k.startswith(SHARED)}
        states = [self._state(task) | self.shared for task in tasks]
        groups = blocks(tasks, states, self.block_size) if groups is None else groups
        answers = self._answer([([tasks[i] for i in g], [states[i] for i in g]) for g in groups])
        replies: dict[int, Reply] = {}
        for group, answer in zip(groups, answers, strict=True):
            for i, (reply, state) in zip(group, answer, strict=True):
                replies[i] = reply
                if tasks[i].kind == "train" and state:
                    self.states[tasks[i].client] = state
        self.states.spill()
        return [replies[i] for i in range(len(tasks))]

    @abstractmethod
    def test(self, exams: Sequence[Exam]) -> list[Tensor]: ...

    @abstractmethod
    def _answer(self, work: Sequence[Work]) -> Sequence[Answers]:
        """Let every block answer, in order."""

    def _state(self, task: Task) -> Payload:
        """Return what a client remembers; one that trained before must not silently start anew."""
        if task.kind == "contribute":
            return {}
        known = self.states.get(task.client, {})
        if known.keys() == self._memory:
            return known
        if task.last:
            lost = ", ".join(name for name in self._memory if name not in known)
            raise RunError(
                f"round {task.round}, client {task.client}: it trained in round {task.last}, but what it remembers "
                f"({lost}) is lost"
            )
        return new_state(self.setup)
