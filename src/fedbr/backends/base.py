"""What a backend is, and what the backends on this machine have in common."""

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

Work = tuple[Broadcast, list[Payload]]  # the message for a block, and its clients' memory
Outcome = list[tuple[Reply, Payload]]  # the reply and the new memory of each client of a block


class Backend(Protocol):
    """Carries a message to clients and brings their replies back, in the order of the clients."""

    states: ClientMemory  # of the clients that live here
    plan: TestPlan  # what models are tested on

    def run(self, broadcast: Broadcast) -> list[Reply]:
        """Return the reply of every client that the message is for, in its order."""
        ...

    def test(self, exams: Sequence[Exam]) -> list[Answers]:
        """Test models, and return the counts of each piece of each exam."""
        ...


class LocalBackend(ABC):
    """Trains clients block by block, and keeps their memory.

    Args:
        setup: what stays the same during the run.
        data: the training samples of all clients.
        plan: what models are tested on.
        block_size: clients that train as one tensor program; it does not depend on the number of
            workers.
        memory: what clients remember; None: nothing yet.
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
        self._stateful = new_state(setup).keys()  # the methods with a memory

    def run(
        self, broadcast: Broadcast, groups: Sequence[Sequence[int]] | None = None
    ) -> list[Reply]:
        """Return the reply of every client that the message is for, in its order.

        Args:
            groups: the clients of each block, by their positions in the message; None: they are
                chosen here.
        """
        clients = broadcast.clients
        states = [self._get_state(broadcast, client) for client in clients]
        if groups is None:
            groups = blocks(states, self.block_size)
        work = []
        for group in groups:
            message = broadcast.to([clients[i] for i in group])
            work.append((message, [states[i] for i in group]))
        replies: dict[int, Reply] = {}
        for outcome in self._answer(work):
            for reply, state in outcome:
                replies[reply.client] = reply
                if broadcast.kind == "train" and state:
                    self.states[reply.client] = state
        self.states.spill(broadcast.round)
        return [replies[client] for client in clients]

    @abstractmethod
    def test(self, exams: Sequence[Exam]) -> list[Answers]:
        """Test models, and return the counts of each piece of each exam."""

    @abstractmethod
    def _answer(self, work: Sequence[Work]) -> Sequence[Outcome]:
        """Return the outcome of every block, in order."""

    def _get_state(self, broadcast: Broadcast, client: int) -> Payload:
        """Return what a client remembers.

        Raises:
            RunError: the client has trained before, but its memory is lost.
        """
        if broadcast.kind == "contribute":
            return {}
        state = self.states.get(client, {})
        if state.keys() == self._stateful:
            return state
        last = broadcast.last_of(client)
        if last:
            lost = ", ".join(name for name in self._stateful if name not in state)
            raise RunError(
                f"round {broadcast.round}, client {client}: it trained in round {last}, but what "
                f"it remembers ({lost}) is lost"
            )
        return new_state(self.setup)
