"""What the server must keep so that a run can go on later, and the form in which it is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from ..util.tables import Json
from .wire import Payload, State


@dataclass(frozen=True)
class Snapshot:
    """The state of a server between two rounds.

    Tensors go into named payloads, all else into a JSON header: ``to_json`` and ``payloads`` return
    them, and ``from_json`` reads both.
    """

    params: State  # the global model
    methods: Payload  # what the server remembers for each method
    shared: Payload  # sections that clients keep, by their owner
    made: Mapping[str, int]  # shared section -> the round in which it was made
    holds: Mapping[int, Mapping[str, int]]  # client -> what it holds, as in ``made``
    last: Mapping[int, int]  # client -> the last round in which it trained

    def to_json(self) -> Json:
        """Return the header."""
        return {
            "made": self.made,
            "holds": sorted(self.holds.items()),
            "last": sorted(self.last.items()),
        }

    def payloads(self) -> dict[str, Payload]:
        """Return the tensors."""
        return {
            "server": {"model": self.params},
            "methods": self.methods,
            "shared": self.shared,
        }

    @classmethod
    def from_json(cls, header: Json, payloads: Mapping[str, Payload]) -> Self:
        """Read what ``to_json`` and ``payloads`` returned; KeyError if something is missing."""
        return cls(
            params=payloads["server"]["model"],
            methods=payloads["methods"],
            shared=payloads["shared"],
            made=header["made"],
            holds=dict(header["holds"]),
            last=dict(header["last"]),
        )
