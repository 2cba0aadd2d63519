"""Accuracy of the model: on all test data, for each client, and how soon a target is reached."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..core.evaluation import Right, RightByClass, Tally
from ..core.records import RoundRecord, Value
from .base import BEST_ROUNDS, MeasuredRound, Metric, mean_of_best


class Accuracy(Metric):
    """Accuracy of the global model, or of each client's own where a method keeps one."""

    name = "accuracy"
    adds_up = "right answers are counted at each site and added up"

    def definitions(self, own_tests: bool) -> Mapping[str, str]:
        if own_tests:
            tests, client_tests = "mean over all test sets", _OWN_TESTS
        else:
            tests, client_tests = "on the common held-out test set", _COMMON_TEST
        return {
            "accuracy": f"accuracy of the global model after aggregation, {tests}",
            "accuracy_clients": f"{client_tests}; all clients, whether they took part in the round "
            "or not",
            "accuracy.top5": f"mean of the {BEST_ROUNDS} best evaluated rounds (of fewer, if there "
            "are fewer)",
            "accuracy.final": "accuracy after the last round",
            "accuracy.best": "accuracy of the best evaluated round",
            "rounds_to": "first round whose accuracy is at least the target; null if none is",
        }

    def tallies(self, own_tests: bool) -> Sequence[Tally]:
        return (Right(),) if own_tests else (RightByClass(),)

    def per_round(self, measured: MeasuredRound) -> Mapping[str, Value]:
        tested = measured.tested
        if tested is None:
            return {"accuracy": None, "accuracy_clients": None}
        return {"accuracy": tested.accuracy, "accuracy_clients": tested.clients}

    def per_run(
        self, rounds: Sequence[RoundRecord], targets: Sequence[float]
    ) -> Mapping[str, Value]:
        curve = [(r.round, r.accuracy) for r in rounds if r.accuracy is not None]
        values = [accuracy for _, accuracy in curve]
        return {
            "accuracy": {
                "top5": mean_of_best(values),
                "final": values[-1] if values else None,
                "best": max(values, default=None),
            },
            "rounds_to": {str(target): _first_round(curve, target) for target in targets},
        }


def _first_round(curve: Sequence[tuple[int, float]], target: float) -> int | None:
    """Return the first round that reaches a target; None if none does."""
    for round, accuracy in curve:
        if accuracy >= target:
            return round
    return None


_OWN_TESTS = (
    "accuracy of the global model on the client's own test set, or on the test sets that its data "
    "are a mix of, weighted by their shares"
)
_COMMON_TEST = (
    "accuracy of the global model on the common test set, each class weighted by its share in the "
    "client's training data; null if none of them is in the test set"
)
