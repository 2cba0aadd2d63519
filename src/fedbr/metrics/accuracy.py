"""Accuracy of the model, or of each client's own: on all test data, and for each client; the headline figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..core.data import Samples
from ..core.model import FedModel
from ..core.wire import State

EVALUATION_BATCH = 512
BEST_ROUNDS = 5


@dataclass(frozen=True)
class Evaluation:
    accuracy: float
    clients: list[float | None]  # None: none of the client's classes is in the test set

    @property
    def worst(self) -> float:
        return min(c for c in self.clients if c is not None)


def evaluate(
    model: FedModel,
    params: State | Sequence[State],
    tests: Sequence[Samples],
    shares: Tensor | None,
    label_mix: Tensor,
    dtype: torch.dtype,
) -> Evaluation:
    """Test the global model, or each client's own, on every client's distribution.

    ``shares`` [clients, tests] says what part of a client's distribution each test set is; None: there is one test
    set for all, and each class is weighted by its share in the client's own data.
    """
    clients = len(label_mix)
    models = [params] * clients if isinstance(params, dict) else params
    wanted = torch.ones(clients, 1) if shares is None else shares
    hits: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}  # of a model on a test set
    for own, part in zip(models, wanted, strict=True):
        model.set_weights(own)
        for t in range(len(tests)):
            if (id(own), t) not in hits and (part[t] > 0 or isinstance(params, dict)):
                hits[id(own), t] = _hits(model, tests[t], label_mix.shape[1], dtype)
    overall = {key: float(right.sum() / count.sum()) for key, (right, count) in hits.items()}
    each = [
        sum(float(part[t]) * overall.get((id(own), t), 0.0) for t in range(len(tests)))
        for own, part in zip(models, wanted, strict=True)
    ]
    accuracy = sum(overall.values()) / len(tests) if isinstance(params, dict) else sum(each) / clients
    if shares is not None:
        return Evaluation(accuracy, list(each))
    right, count = torch.stack([hits[id(own), 0][0] for own in models]), hits[id(models[0]), 0][1]
    tested = label_mix.double() * (count > 0)
    covered = tested.sum(dim=1)
    scores = ((tested * right / count.clamp(min=1)).sum(dim=1) / covered).tolist()
    return Evaluation(accuracy, [s if c > 0 else None for s, c in zip(scores, covered, strict=True)])


def _hits(model: FedModel, test: Samples, num_classes: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Count right answers and samples of each class."""
    batches = [slice(i, i + EVALUATION_BATCH) for i in range(0, len(test), EVALUATION_BATCH)]
    guesses = torch.cat([model.predict(test.see(b, dtype)) for b in batches])
    right = torch.bincount(test.y[guesses == test.y], minlength=num_classes)
    return right.double(), torch.bincount(test.y, minlength=num_classes).double()


def definitions(own_tests: bool) -> dict[str, str]:
    """Say in words what each figure of a result means."""
    client = (
        "accuracy of the global model on the client's own test set, or on the test sets that its data are a mix of, "
        "weighted by their shares"
        if own_tests
        else "accuracy of the global model on the common test set, each class weighted by its share in the client's "
        "training data; null if none of them is in the test set"
    )
    return {
        "model": "the global model; for a stack that keeps each client's own (local), that one in its place, and then "
        "accuracy is the mean over clients",
        "accuracy": "accuracy of the global model after aggregation, "
        + ("mean over all test sets" if own_tests else "on the common held-out test set"),
        "accuracy_clients": f"{client}; all clients, whether they took part in the round or not",
        "accuracy_worst": "the smallest of accuracy_clients in that round",
        "accuracy.top5": f"mean of the {BEST_ROUNDS} best evaluated rounds (of fewer, if there are fewer)",
        "accuracy.final": "accuracy after the last round",
        "accuracy.best": "accuracy of the best evaluated round",
        "accuracy.worst_top5": f"mean of the {BEST_ROUNDS} best rounds of accuracy_worst",
        "speed-up": "mean rounds to the target of FedAvg (or of the first stack) divided by the stack's own, over the "
        "same seeds; a run that never reaches it counts with all its rounds, which makes the ratio a bound: > if only "
        "FedAvg has such runs, < if only the stack has, ~ if both have",
        "rounds_to": "first round whose accuracy is at least the target; null if none is",
        "loss": "cross-entropy of the batches that clients trained on, without the methods' own terms; mean over "
        "clients and local steps",
        "bytes_up": "what all clients of the round sent: weights, methods' sections, pseudo-data",
        "bytes_down": "what all clients of the round received",
        "seconds_train": "wall time of local training and aggregation",
        "seconds_evaluate": "wall time of testing",
    }


def summarise(lines: Sequence[dict[str, Any]], targets: Sequence[float]) -> dict[str, Any]:
    """Return the headline figures of a run from its rounds."""
    tested = [line for line in lines if line["accuracy"] is not None]
    curve = [line["accuracy"] for line in tested]
    worst = [line["accuracy_worst"] for line in tested]
    reached = {str(t): next((line["round"] for line in tested if line["accuracy"] >= t), None) for t in targets}
    return {
        "accuracy": {
            "top5": _best(curve),
            "final": curve[-1] if curve else None,
            "best": max(curve, default=None),
            "worst_top5": _best(worst),
        },
        "rounds_to": reached,
    }


def _best(values: Sequence[float]) -> float | None:
    top = sorted(values, reverse=True)[:BEST_ROUNDS]
    return sum(top) / len(top) if top else None
