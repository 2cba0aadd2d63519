"""What the server sends to all clients of a round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from .wire import Payload, nbytes

Kind = Literal["contribute", "train"]


@dataclass(frozen=True)
class Broadcast:
    """One message for all clients of a round; who lacks which shared section is said beside it.

    >>> Broadcast("train", 1, (0, 1, 2)).to([2]).clients
    (2,)
    """

    kind: Kind
    round: int
    clients: tuple[int, ...]
    payload: Payload = field(default_factory=dict)  # the model and the methods' sections
    shared: Payload = field(default_factory=dict)  # sections that clients keep, by their owner
    lacks: Mapping[int, tuple[str, ...]] = field(default_factory=dict)  # client -> of ``shared``
    last: Mapping[int, int] = field(default_factory=dict)  # client -> round in which it trained

    @property
    def nbytes(self) -> int:
        """Bytes that travel to all clients together: a shared section only to who lacks it."""
        sizes = {name: nbytes({name: section}) for name, section in self.shared.items()}
        news = sum(sizes[name] for client in self.clients for name in self.lacks.get(client, ()))
        return len(self.clients) * nbytes(self.payload) + news

    def to(self, clients: Sequence[int]) -> Broadcast:
        """Return the same message for some of the clients."""
        return replace(self, clients=tuple(clients))

    def last_of(self, client: int) -> int:
        """Return the round in which a client trained before; 0 if it never did."""
        return self.last.get(client, 0)
