"""Accuracy of the model, or of each client's own: on all test data, and for each client; the
headline figures.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from ..core.evaluation import Exam, pieces
from ..core.samples import Samples
from ..core.wire import State

BEST_ROUNDS = 5


@dataclass(frozen=True)
class Evaluation:
    accuracy: float
    clients: list[
        float | None
    ]  # None: nothing to test it on, or none of its classes is in the test set

    @property
    def worst(self) -> float:
        return min(c for c in self.clients if c is not None)


class Examiner(Protocol):
    """Whoever holds test sets and lets models answer."""

    tests: Sequence[Samples]

    def test(self, exams: Sequence[Exam]) -> Sequence[Tensor]: ...


def evaluate(
    examiner: Examiner,
    models: State | Sequence[State],
    sets: range,
    shares: Sequence[Mapping[int, float]] | None,
    label_mix: Tensor,
) -> Evaluation:
    """Test the global model, or each client's own, on every client's distribution.

    ``sets`` are the examiner's test sets to use. ``shares`` says for each client what part of its
    distribution each of them is; None: there is one for all, and each class is weighted by its
    share in the client's own data.
    """
    clients = len(label_mix)
    wanted = [{0: 1.0}] * clients if shares is None else shares
    if isinstance(models, dict):
        (all_hits,) = _hits(examiner, [models], sets, [range(len(sets))], label_mix.shape[1])
        scores = {t: _overall(hits) for t, hits in all_hits.items()}
        each = [_mixed(scores, some) for some in shares or ()]
        accuracy, own = _mean(scores.values()), [all_hits]
    else:
        own = _hits(examiner, models, sets, wanted, label_mix.shape[1])
        each = [
            _mixed({t: _overall(h) for t, h in hits.items()}, some)
            for hits, some in zip(own, wanted, strict=True)
        ]
        accuracy = _mean(each)
    if shares is not None:
        return Evaluation(accuracy, each)
    right, total = torch.stack([hits[0][0] for hits in own]), own[0][0][1]  # [1 or clients, K], [K]
    tested = label_mix.double() * (total > 0)
    covered = tested.sum(dim=1)
    by_class = ((tested * right / total.clamp(min=1)).sum(dim=1) / covered).tolist()
    return Evaluation(
        accuracy, [s if c > 0 else None for s, c in zip(by_class, covered.tolist(), strict=True)]
    )


Hits = tuple[Tensor, Tensor]  # right answers and samples, of each class


def _hits(
    examiner: Examiner,
    models: Sequence[State],
    sets: range,
    wanted: Sequence[Iterable[int]],
    num_classes: int,
) -> list[dict[int, Hits]]:
    """Test every model on the test sets that it is wanted for; on one that stands there twice,
    once.
    """
    tests = examiner.tests
    same = {id(tests[s]): s for s in reversed(sets)}  # the first of those that are one object
    first = [same[id(tests[s])] for s in sets]
    exams = [
        (model, pieces(tests, dict.fromkeys(first[t] for t in some)))
        for model, some in zip(models, wanted, strict=True)
    ]
    answers = examiner.test(exams)
    answered = examiner.tests  # without sets that nobody could answer
    totals = {
        s: torch.bincount(answered[s].y, minlength=num_classes).double() for s in same.values()
    }
    found = []
    for some, (_, asked), counts in zip(wanted, exams, answers, strict=True):
        right = {first[t]: torch.zeros(num_classes, dtype=torch.float64) for t in some}
        for piece, counted in zip(asked, counts, strict=True):
            right[piece.test] += counted
        found.append({t: (right[first[t]], totals[first[t]]) for t in some})
    return found


def _overall(hits: Hits) -> float | None:
    """Return the share of right answers; None if there was no question."""
    right, total = hits
    return float(right.sum() / total.sum()) if total.any() else None


def _mixed(scores: Mapping[int, float | None], shares: Mapping[int, float]) -> float | None:
    """Return a client's score, a mix of those on test sets; one that is empty says nothing."""
    known = {t: score for t in shares if (score := scores[t]) is not None}
    return (
        sum(shares[t] * s for t, s in known.items()) / sum(shares[t] for t in known)
        if known
        else None
    )


def _mean(scores: Iterable[float | None]) -> float:
    known = [s for s in scores if s is not None]
    return sum(known) / len(known)


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
        "model": "the global model; for a variant that keeps each client's own (local), that one in its place, and then "
        "accuracy is the mean over clients",
        "accuracy": "accuracy of the global model after aggregation, "
        + ("mean over all test sets" if own_tests else "on the common held-out test set"),
        "test_samples": "how many samples the rounds are tested on, the same ones every time and the same share of "
        "each class; the last round is always tested on all",
        "accuracy_clients": f"{client}; all clients, whether they took part in the round or not",
        "accuracy_worst": "the smallest of accuracy_clients in that round",
        "accuracy.top5": f"mean of the {BEST_ROUNDS} best evaluated rounds (of fewer, if there are fewer)",
        "accuracy.final": "accuracy after the last round",
        "accuracy.best": "accuracy of the best evaluated round",
        "accuracy.worst_top5": f"mean of the {BEST_ROUNDS} best rounds of accuracy_worst",
        "speed-up": "mean rounds to the target of FedAvg (or of the first variant) divided by the variant's own, over the "
        "same seeds; a run that never reaches it counts with all its rounds, which makes the ratio a bound: > if only "
        "FedAvg has such runs, < if only the variant has, ~ if both have",
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
    reached = {
        str(t): next((line["round"] for line in tested if line["accuracy"] >= t), None)
        for t in targets
    }
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
