"""How long rounds take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..core.records import RoundRecord, Value
from .base import MeasuredRound, Metric


class Seconds(Metric):
    """Wall time of training and of testing."""

    name = "seconds"
    adds_up = "measured at the server, which waits for the slowest site"

    def definitions(self, own_tests: bool) -> Mapping[str, str]:
        return {
            "seconds_train": "wall time of local training and aggregation",
            "seconds_evaluate": "wall time of testing",
            "seconds.train": "sum of seconds_train over the rounds",
            "seconds.evaluate": "sum of seconds_evaluate over the rounds",
            "seconds.total": "both together",
        }

    def per_round(self, measured: MeasuredRound) -> Mapping[str, Value]:
        return {
            "seconds_train": measured.played.seconds,
            "seconds_evaluate": measured.seconds_evaluate,
        }

    def per_run(
        self, rounds: Sequence[RoundRecord], targets: Sequence[float]
    ) -> Mapping[str, Value]:
        train = sum(record.seconds_train for record in rounds)
        evaluate = sum(record.seconds_evaluate for record in rounds)
        return {"seconds": {"train": train, "evaluate": evaluate, "total": train + evaluate}}
