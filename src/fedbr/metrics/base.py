"""What a metric is, and what it is made of: sums that add up over batches, clients and sites."""

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
    """Whoever lets models answer what a plan asks."""

    plan: TestPlan

    def test(self, exams: Sequence[Exam]) -> Sequence[Answers]: ...


@dataclass(frozen=True)
class Tested:
    """What was counted of the answers of the global model, or of each client's own."""

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
        """Samples of every class in each test set whose samples are here, float64."""
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
        return [
            _mixed(self._by_test(self.model_of(client)), shares)
            for client, shares in enumerate(self.plan.shares)
        ]

    @cached_property
    def accuracy(self) -> float:
        """Accuracy over all tests; of models of the clients' own, the mean over clients."""
        if not self.personal:
            return _mean(self._by_test(self.counts[0]))
        if self.plan.shares is not None:
            return _mean(self.clients)
        return _mean([self._by_test(model)[0] for model in self.counts])

    def _by_test(self, model: Mapping[int, Mapping[str, Tensor]]) -> list[float | None]:
        """Return a model's accuracy on each test; None where nobody could say."""
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
        return [s if c > 0 else None for s, c in zip(scores, covered.tolist(), strict=True)]


@dataclass(frozen=True)
class MeasuredRound:
    """All that a metric may look at when a round is over."""

    played: PlayedRound
    tested: Tested | None  # None: this round was not tested
    seconds_evaluate: float


class Metric(ABC):
    """One figure of merit, or a few that belong together.

    To add one: a file in this room with a class such as this, and a line in METRICS.

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
    ...         known = [a for a in measured.tested.clients if a is not None]
    ...         return {"spread": max(known) - min(known)}
    """

    name: ClassVar[str]
    adds_up: ClassVar[str]  # how the figure is made where samples are at several sites

    def definitions(self, own_tests: bool) -> Mapping[str, str]:
        """Say in words what each of its figures means.

        own_tests: whether clients are tested on samples of their own, not on a common set.
        """
        return {}

    def tallies(self, own_tests: bool) -> Sequence[Tally]:
        """Return what it wants counted of the models' answers."""
        return ()

    def per_round(self, measured: MeasuredRound) -> Mapping[str, Value]:
        """Return its figures of a round, by the names that they have in ``metrics.jsonl``."""
        return {}

    def per_run(
        self, rounds: Sequence[RoundRecord], targets: Sequence[float]
    ) -> Mapping[str, Value]:
        """Return its figures of a run, by the names that they have in ``results.json``."""
        return {}


def best(values: Sequence[float | None]) -> float | None:
    """Return the mean of the best rounds that were tested; None if none was."""
    known = sorted((value for value in values if value is not None), reverse=True)[:BEST_ROUNDS]
    return sum(known) / len(known) if known else None


def examine(
    examiner: Examiner,
    models: State | Sequence[State],
    census: Census,
    tallies: Sequence[Tally],
    quick: bool,
) -> Tested:
    """Test the global model, or each client's own, on what the plan says.

    models: one for all, or one for each client. Returns the counts of all tallies.
    """
    plan, personal = examiner.plan, not isinstance(models, dict)
    names = tuple(tally.name for tally in tallies)
    exams = []
    for client, model in enumerate([models] if isinstance(models, dict) else models):
        wanted = plan.order
        if personal and plan.shares is not None:
            wanted = [plan.order[test] for test in plan.shares[client]]
        exams.append(Exam(model, plan.pieces(dict.fromkeys(wanted), quick), names))
    sizes = [tally.size(census.num_classes) for tally in tallies]
    counts = []
    for exam, answers in zip(exams, examiner.test(exams), strict=True):
        counts.append(_add_up(plan, exam, answers, sizes, quick))
    return Tested(plan, census, quick, counts, personal)


def _add_up(
    plan: TestPlan, exam: Exam, answers: Answers, sizes: Sequence[int], quick: bool
) -> dict[int, dict[str, Tensor]]:
    """Add up the pieces of each test set; one that is not answered whole is left out."""
    totals: dict[int, Tensor] = {}
    missing = {piece.test for piece in exam.pieces if piece not in answers}
    for piece in exam.pieces:
        if piece.test not in missing:
            counts = answers[piece]
            totals[piece.test] = totals[piece.test] + counts if piece.test in totals else counts
    named: dict[int, dict[str, Tensor]] = {}
    for test, total in totals.items():
        parts = torch.split(total, list(sizes))
        named[test] = dict(zip(exam.tallies, parts, strict=True))
    return named


def _mixed(scores: Sequence[float | None], shares: Mapping[int, float]) -> float | None:
    """Return a client's score, a mix of those on test sets; one that is empty says nothing."""
    known = {test: score for test in shares if (score := scores[test]) is not None}
    if not known:
        return None
    weighed = sum(shares[test] * score for test, score in known.items())
    return weighed / sum(shares[test] for test in known)


def _mean(scores: Sequence[float | None]) -> float:
    known = [score for score in scores if score is not None]
    return sum(known) / len(known)
