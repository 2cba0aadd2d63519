"""One round: clients contribute and train, and the server makes a new model of their replies.

It is the same for every method and every backend, and for training, forecasts and diagnoses.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from .broadcast import Broadcast
from .rng import stream
from .server import Server
from .spec import Spec
from .wire import Reply, nbytes


class Carrier(Protocol):
    """Whatever brings a message to clients and their replies back, such as a backend."""

    def run(self, broadcast: Broadcast) -> Sequence[Reply]:
        """Return the replies of the clients that answered, in the order of the clients."""
        ...


@dataclass(frozen=True)
class PlayedRound:
    """What happened in a round."""

    round: int
    broadcast: Broadcast  # what clients trained from
    replies: Sequence[Reply]  # of the clients that answered
    contributions: Mapping[int, Sequence[Reply]]  # 0: before training; the round's number: in it
    seconds: float  # of everything
    seconds_training: float  # from the broadcast to the last reply

    @property
    def clients(self) -> tuple[int, ...]:
        """The clients whose replies came."""
        return tuple(reply.client for reply in self.replies)

    @property
    def bytes_up(self) -> int:
        """What the clients sent, contributions too."""
        total = sum(nbytes(reply.payload) for reply in self.replies)
        for replies in self.contributions.values():
            total += sum(nbytes(reply.payload) for reply in replies)
        return total

    @property
    def bytes_down(self) -> int:
        """What the server sent to all clients."""
        return self.broadcast.nbytes

    @property
    def loss(self) -> float:
        """Cross-entropy of the clients' batches, mean over clients and steps."""
        return sum(reply.metrics["loss"] for reply in self.replies) / len(self.replies)


def draw_clients(spec: Spec, round: int) -> list[int]:
    """Draw which clients take part in a round."""
    order = stream(spec.seed, "clients", round).permutation(spec.num_clients)
    return sorted(order[: spec.clients_per_round].tolist())


def play_round(
    server: Server,
    carrier: Carrier,
    round: int,
    clients: Sequence[int],
    everybody: Sequence[int] = (),
) -> PlayedRound:
    """Play one round and let the server absorb it.

    Args:
        server: has the global model of the round before.
        carrier: brings messages to the clients.
        round: its number, from 1.
        clients: those that train.
        everybody: those that methods may ask before the first round; empty in all later ones.
    """
    begin = time.perf_counter()
    contributions: dict[int, Sequence[Reply]] = {}
    if everybody:
        contributions[0] = _contribute(server, carrier, 0, everybody)
    if clients:
        contributions[round] = _contribute(server, carrier, round, clients)
    broadcast = server.broadcast(round, clients)
    sent = time.perf_counter()
    replies = carrier.run(broadcast)
    answered = time.perf_counter()
    server.absorb(round, replies)
    return PlayedRound(
        round=round,
        broadcast=broadcast,
        replies=replies,
        contributions=contributions,
        seconds=time.perf_counter() - begin,
        seconds_training=answered - sent,
    )


def _contribute(
    server: Server, carrier: Carrier, round: int, clients: Sequence[int]
) -> Sequence[Reply]:
    """Ask clients for what methods want to know, and let the server make what all receive."""
    question = server.ask(round, clients)
    replies = [] if question is None else carrier.run(question)
    server.absorb_contributions(round, replies)
    return replies
