"""Accuracy of the model, or of each client's own: on all test data, and for each client; the headline figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
    shares: Sequence[Mapping[int, float]] | None,
    label_mix: Tensor,
    dtype: torch.dtype,
) -> Evaluation:
    """Test the global model, or each client's own, on every client's distribution.

    ``shares`` says for each client what part of its distribution a test set is; None: there is one test set for all,
    and each class is weighted by its share in the client's own data.
    """
    clients = len(label_mix)
    wanted = [{0: 1.0}] * clients if shares is None else shares
    if isinstance(params, dict):
        own = [_tested(model, params, tests, range(len(tests)), label_mix.shape[1], dtype)] * clients
    else:
        own = [_tested(model, p, tests, w, label_mix.shape[1], dtype) for p, w in zip(params, wanted, strict=True)]
    each = [sum(w[t] * _overall(hits[t]) for t in w) for hits, w in zip(own, wanted, strict=True)]
    accuracy = sum(map(_overall, own[0].values())) / len(tests) if isinstance(params, dict) else sum(each) / clients
    if shares is not None:
        return Evaluation(accuracy, list(each))
    right, count = torch.stack([hits[0][0] for hits in own]), own[0][0][1]
    tested = label_mix.double() * (count > 0)
    covered = tested.sum(dim=1)
    scores = ((tested * right / count.clamp(min=1)).sum(dim=1) / covered).tolist()
    return Evaluation(accuracy, [s if c > 0 else None for s, c in zip(scores, covered, strict=True)])


Hits = tuple[Tensor, Tensor]  # right answers and samples, of each class


def _tested(
    model: FedModel,
    params: State,
    tests: Sequence[Samples],
    wanted: Iterable[int],
    num_classes: int,
    dtype: torch.dtype,
) -> dict[int, Hits]:
    """Test one model on some of the test sets; on one that stands there twice, once."""
    model.set_weights(params)
    found: dict[int, Hits] = {}  # by object
    for t in wanted:
        if id(tests[t]) not in found:
            found[id(tests[t])] = _hits(model, tests[t], num_classes, dtype)
    return {t: found[id(tests[t])] for t in wanted}


def _overall(hits: Hits) -> float:
    right, count = hits
    return float(right.sum() / count.sum())


def _hits(model: FedModel, test: Samples, num_classes: int, dtype: torch.dtype) -> Hits:
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
