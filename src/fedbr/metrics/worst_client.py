"""Accuracy for the client for which the model is worst."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..core.records import RoundRecord, Value
from .base import BEST_ROUNDS, MeasuredRound, Metric, mean_of_best


class WorstClient(Metric):
    """The smallest accuracy among all clients."""

    name = "worst-client"
    adds_up = "from the accuracy of each client, which its site counts"

    def definitions(self, own_tests: bool) -> Mapping[str, str]:
        return {
            "accuracy_worst": "the smallest of accuracy_clients in that round",
            "accuracy.worst_top5": f"mean of the {BEST_ROUNDS} best rounds of accuracy_worst",
        }

    def per_round(self, measured: MeasuredRound) -> Mapping[str, Value]:
        if measured.tested is None:
            return {"accuracy_worst": None}
        values = [value for value in measured.tested.clients if value is not None]
        return {"accuracy_worst": min(values)}

    def per_run(
        self, rounds: Sequence[RoundRecord], targets: Sequence[float]
    ) -> Mapping[str, Value]:
        values = [record.accuracy_worst for record in rounds]
        return {"accuracy": {"worst_top5": mean_of_best(values)}}
