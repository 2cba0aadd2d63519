"""What a metric is, and the tests that it is measured by.

Tests count things, such as right answers, and counts add up over batches, clients and sites.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from ..core.census import Census
from ..core.evaluation import Answers, Exam, Tally, TestPlan
from ..core.records import RoundRecord, Value
from ..core.round import PlayedRound
from ..core.wire import State

BEST_ROUNDS = 5


class Examiner(Protocol):
    """Tests models, such as a backend."""

    plan: TestPlan

    def test(self, exams: Sequence[Exam]) -> Sequence[Answers]:
        """Return the counts of each piece of each exam."""
        ...


@dataclass(frozen=True)
class Tested:
    """The counts of a test of the global model, or of each client's own model."""

    __test__ = False  # it is not one of pytest's

    plan: TestPlan
    census: Census
    quick: bool
    counts: Sequence[Mapping[int, Mapping[str, Tensor]]]  # of each model: test set -> tally -> sums
    personal: bool  # whether every client has a model of its own

    def model_of(self, client: int) -> Mapping[int, Mapping[str, Tensor]]:
        """Return the counts of the model that a client uses, by test set."""
        return self.counts[client if self.personal else 0]

    @cached_property
    def by_class(self) -> list[Tensor]:
        """Samples of every class in each test set, float64.

        LookupError where the samples are at sites: count the classes in a tally of your own.
        """
        counts = []
        for test in range(len(self.plan.sets)):
            y = self.plan.samples(test, self.quick).y
            counts.append(torch.bincount(y, minlength=self.census.num_classes).double())
        return counts

    @cached_property
    def clients(self) -> list[float | None]:
        """Accuracy for each client; None: there is nothing to test it on."""
        if self.plan.shares is None:
            return self._by_own_classes()
        values = []
        for client, shares in enumerate(self.plan.shares):
            scores = self._by_test(self.model_of(client))
            values.append(_mix(scores, shares))
        return values

    @cached_property
    def accuracy(self) -> float:
        """Accuracy over all tests; if every client has its own model, the mean over clients."""
        if not self.personal:
            return _mean(self._by_test(self.counts[0]))
        if self.plan.shares is not None:
            return _mean(self.clients)
        return _mean([self._by_test(model)[0] for model in self.counts])

    def _by_test(self, model: Mapping[int, Mapping[str, Tensor]]) -> list[float | None]:
        """Return a model's accuracy on each test; None for a test without answers."""
        scores: dict[int, float | None] = {}
        for test, counts in model.items():
            right = counts["right" if "right" in counts else "right-by-class"]
            size = self.plan.size(test, self.quick)
            scores[test] = float(right.sum() / size) if size else None
        return [scores.get(test) for test in self.plan.order]

    def _by_own_classes(self) -> list[float | None]:
        """Weigh each class of the common test by its share among the client's own samples."""
        (total,) = self.by_class
        right = torch.stack([model[0]["right-by-class"] for model in self.counts])
        tested = self.census.label_mix.double() * (total > 0)
        covered = tested.sum(dim=1)
        scores = ((tested * right / total.clamp(min=1)).sum(dim=1) / covered).tolist()
        values = []
        for score, share in zip(scores, covered.tolist(), strict=True):
            values.append(score if share > 0 else None)
        return values


@dataclass(frozen=True)
class MeasuredRound:
    """All that a metric may look at when a round is over."""

    played: PlayedRound
    tested: Tested | None  # None: this round was not tested
    seconds_evaluate: float


class Metric(ABC):
    """One measure of a run, or a few that belong together.

    To add one, write a class such as this in a file beside this one, and a line in METRICS.

    >>> from fedbr.metrics import Metric
    >>> class Spread(Metric):
    ...     '''Best minus worst client.'''
    ...     name = "spread"
    ...     adds_up = "from the accuracy of each client"
    ...     def definitions(self, own_tests):
    ...         return {"spread": "accuracy of the best client minus that of the worst"}
    ...     def per_round(self, measured):
    ...         if measured.tested is None:
    ...             return {"spread": None}
    ...         values = [value for value in measured.tested.clients if value is not None]
    ...         return {"spread": max(values) - min(values)}
    """

    name: ClassVar[str]
    adds_up: ClassVar[str]  # how the values are made where samples are at several sites

    def definitions(self, own_tests: bool) -> Mapping[str, str]:
        """Say in words what each of its values means, by its name.

        Args:
            own_tests: whether clients are tested on samples of their own, not on a common set.
        """
        return {}

    def tallies(self, own_tests: bool) -> Sequence[Tally]:
        """Return what has to be counted of the models' answers.

        Args:
            own_tests: whether clients are tested on samples of their own, not on a common set.
        """
        return ()

    def per_round(self, measured: MeasuredRound) -> Mapping[str, Value]:
        """Return its values for a round, by their names in ``metrics.jsonl``."""
        return {}

    def per_run(
        self, rounds: Sequence[RoundRecord], targets: Sequence[float]
    ) -> Mapping[str, Value]:
        """Return its values for a run, by their names in ``results.json``.

        Args:
            rounds: all rounds that are done; there may be none.
            targets: the accuracies of the recipe (``metrics.targets``).
        """
        return {}


def mean_of_best(values: Sequence[float | None]) -> float | None:
    """Return the mean over the best rounds that were tested; None if none was.

    >>> mean_of_best([0.1, None, 0.6, 0.5, 0.5, 0.5, 0.4])
    0.5
    """
    tested = [value for value in values if value is not None]
    top = sorted(tested, reverse=True)[:BEST_ROUNDS]
    return sum(top) / len(top) if top else None


def examine(
    examiner: Examiner,
    models: State | Sequence[State],
    census: Census,
    tallies: Sequence[Tally],
    quick: bool,
) -> Tested:
    """Test the global model, or each client's own, as the plan of the examiner says.

    Args:
        models: the weights of one model for all, or of one for each client.
        tallies: what is counted.
        quick: whether the quick parts of the test sets are enough.
    """
    plan, personal = examiner.plan, not isinstance(models, dict)
    names = tuple(tally.name for tally in tallies)
    exams = []
    for client, model in enumerate([models] if isinstance(models, dict) else models):
        tests = plan.order
        if personal and plan.shares is not None:
            tests = [plan.order[test] for test in plan.shares[client]]
        exams.append(Exam(model, plan.pieces(dict.fromkeys(tests), quick), names))
    sizes = [tally.size(census.num_classes) for tally in tallies]
    counts = []
    for exam, answers in zip(exams, examiner.test(exams), strict=True):
        counts.append(_add_up(plan, exam, answers, sizes, quick))
    return Tested(plan, census, quick, counts, personal)


def _add_up(
    plan: TestPlan, exam: Exam, answers: Answers, sizes: Sequence[int], quick: bool
) -> dict[int, dict[str, Tensor]]:
    """Add up the pieces of each test set; a set without all of its answers is left out."""
    totals: dict[int, Tensor] = {}
    missing = {piece.test for piece in exam.pieces if piece not in answers}
    for piece in exam.pieces:
        if piece.test in missing:
            continue
        counts = answers[piece]
        if piece.test in totals:
            counts = totals[piece.test] + counts
        totals[piece.test] = counts
    named: dict[int, dict[str, Tensor]] = {}
    for test, total in totals.items():
        parts = torch.split(total, list(sizes))
        named[test] = dict(zip(exam.tallies, parts, strict=True))
    return named


def _mix(scores: Sequence[float | None], shares: Mapping[int, float]) -> float | None:
    """Return the mean of scores on test sets, weighted by a client's shares; empty sets are out."""
    weighted = total = 0.0
    for test, share in shares.items():
        score = scores[test]
        if score is not None:
            weighted += share * score
            total += share
    return weighted / total if total else None


def _mean(scores: Sequence[float | None]) -> float:
    values = [score for score in scores if score is not None]
    return sum(values) / len(values)
