"""Bytes that travel between the server and the clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..core.records import RoundRecord, Value
from .base import MeasuredRound, Metric


class Traffic(Metric):
    """Bytes that clients send and receive, counted where the messages are made."""

    name = "traffic"
    adds_up = "sums over the clients of the round"

    def definitions(self, own_tests: bool) -> Mapping[str, str]:
        return {
            "bytes_up": "what all clients of the round sent: weights, methods' sections, "
            "pseudo-data",
            "bytes_down": "what all clients of the round received",
            "bytes.up": "sum of bytes_up over the rounds",
            "bytes.down": "sum of bytes_down over the rounds",
        }

    def per_round(self, measured: MeasuredRound) -> Mapping[str, Value]:
        played = measured.played
        return {"bytes_up": played.bytes_up, "bytes_down": played.bytes_down}

    def per_run(
        self, rounds: Sequence[RoundRecord], targets: Sequence[float]
    ) -> Mapping[str, Value]:
        up = sum(record.bytes_up for record in rounds)
        down = sum(record.bytes_down for record in rounds)
        return {"bytes": {"up": up, "down": down}}
