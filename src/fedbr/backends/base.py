"""What a backend is, and what those that simulate the clients on this machine have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

from ..core.broadcast import Broadcast
from ..core.client import blocks, new_state
from ..core.evaluation import Answers, Exam, TestPlan
from ..core.samples import TrainData
from ..core.setup import Setup
from ..core.wire import Payload, Reply
from ..util.errors import RunError
from .memory import ClientMemory

Work = tuple[Broadcast, list[Payload]]  # the message for a block, and what its clients remember
Outcome = list[tuple[Reply, Payload]]  # of every client of the block: its reply and new memory


class Backend(Protocol):
    """Carries a message to clients and brings their replies back, in the order of the clients."""

    states: ClientMemory  # of the clients that live here
    plan: TestPlan  # what models are tested on

    def run(self, broadcast: Broadcast) -> list[Reply]: ...

    def test(self, exams: Sequence[Exam]) -> list[Answers]:
        """Let models answer; return the counts of each piece of each exam."""
        ...


class LocalBackend(ABC):
    """Keeps the clients' memory and trains them block by block.

    The size of a block does not depend on the number of workers.
    """

    def __init__(
        self,
        setup: Setup,
        data: TrainData,
        plan: TestPlan,
        block_size: int,
        memory: ClientMemory | None = None,
    ) -> None:
        self.setup, self.data, self.plan, self.block_size = setup, data, plan, block_size
        self.states = ClientMemory() if memory is None else memory
        self._remembering = new_state(setup).keys()  # the methods that remember

    def run(
        self, broadcast: Broadcast, groups: Sequence[Sequence[int]] | None = None
    ) -> list[Reply]:
        """Let clients answer.

        groups: who trains together, by position, where that was decided among more clients.
        """
        clients = broadcast.clients
        states = [self._state(broadcast, client) for client in clients]
        groups = blocks(states, self.block_size) if groups is None else groups
        work = [
            (broadcast.to([clients[i] for i in group]), [states[i] for i in group])
            for group in groups
        ]
        replies: dict[int, Reply] = {}
        for outcome in self._answer(work):
            for reply, state in outcome:
                replies[reply.client] = reply
                if broadcast.kind == "train" and state:
                    self.states[reply.client] = state
        self.states.spill(broadcast.round)
        return [replies[client] for client in clients]

    @abstractmethod
    def test(self, exams: Sequence[Exam]) -> list[Answers]: ...

    @abstractmethod
    def _answer(self, work: Sequence[Work]) -> Sequence[Outcome]:
        """Let every block answer, in order."""

    def _state(self, broadcast: Broadcast, client: int) -> Payload:
        """Return what a client remembers; one that trained before must not silently start anew."""
        if broadcast.kind == "contribute":
            return {}
        known = self.states.get(client, {})
        if known.keys() == self._remembering:
            return known
        if last := broadcast.last_of(client):
            lost = ", ".join(name for name in self._remembering if name not in known)
            raise RunError(
                f"round {broadcast.round}, client {client}: it trained in round {last}, but what "
                f"it remembers ({lost}) is lost"
            )
        return new_state(self.setup)
