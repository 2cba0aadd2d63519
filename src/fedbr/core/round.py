"""One round: clients are drawn, contribute, train, and the server makes a new model of their replies.

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
    """Whoever brings a message to clients, and their replies back in the order of the clients."""

    def run(self, broadcast: Broadcast) -> Sequence[Reply]: ...


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
        contributed = (reply for replies in self.contributions.values() for reply in replies)
        return sum(nbytes(reply.payload) for reply in (*contributed, *self.replies))

    @property
    def bytes_down(self) -> int:
        return self.broadcast.nbytes

    @property
    def loss(self) -> float:
        """Cross-entropy of the clients' batches, mean over clients and steps."""
        return sum(reply.metrics["loss"] for reply in self.replies) / len(self.replies)


def draw_clients(spec: Spec, round: int) -> list[int]:
    """Draw who takes part in a round."""
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

    server: begins with the global model of the round before. clients: who trains. everybody: whom
    the methods may ask before the first round; nobody in all later ones.
    """
    begin = time.perf_counter()
    contributions: dict[int, Sequence[Reply]] = {}
    for when, asked in ((0, everybody), (round, clients)):
        if asked:
            contributions[when] = _contribute(server, carrier, when, asked)
    broadcast = server.broadcast(round, clients)
    sent = time.perf_counter()
    replies = carrier.run(broadcast)
    answered = time.perf_counter()
    server.absorb(round, replies)
    end = time.perf_counter()
    return PlayedRound(round, broadcast, replies, contributions, end - begin, answered - sent)


def _contribute(
    server: Server, carrier: Carrier, round: int, clients: Sequence[int]
) -> Sequence[Reply]:
    """Ask clients for what methods want to know, and let the server make what all receive."""
    question = server.ask(round, clients)
    replies = [] if question is None else carrier.run(question)
    server.absorb_contributions(round, replies)
    return replies
