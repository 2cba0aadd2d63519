"""How models are tested: on what, cut into which pieces, and what is counted of their answers.

Counts of pieces only have to be added, whoever made them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from .model import FedModel
from .samples import Samples
from .wire import State

BATCH = 512  # samples that go through the model together; the same for every number of workers


class Piece(NamedTuple):
    """Some samples of one test set, or of its quick part."""

    test: int
    start: int
    stop: int
    quick: bool = False


class Exam(NamedTuple):
    """A model, the pieces that it is asked, and what is counted of its answers."""

    model: State
    pieces: Sequence[Piece]
    tallies: tuple[str, ...]


# The counts of each piece; one that nobody could answer is missing.
Answers = Mapping[Piece, Tensor]


class Tally(ABC):
    """Something that is counted of a model's answers, and adds up over pieces and sites."""

    name: ClassVar[str]

    @abstractmethod
    def size(self, classes: int) -> int:
        """Return how many numbers there are."""

    @abstractmethod
    def count(self, truth: Tensor, logits: Tensor) -> Tensor:
        """Count the answers of one batch.

        Args:
            truth: the true classes, [n].
            logits: what the model gave, [n, classes].

        Returns:
            Whole numbers or float64, [size].
        """


class Right(Tally):
    """Right answers, of whatever class."""

    name = "right"

    def size(self, classes: int) -> int:
        return 1

    def count(self, truth: Tensor, logits: Tensor) -> Tensor:
        return (logits.argmax(dim=-1) == truth).sum()[None]


class RightByClass(Tally):
    """Right answers of every class."""

    name = "right-by-class"

    def size(self, classes: int) -> int:
        return classes

    def count(self, truth: Tensor, logits: Tensor) -> Tensor:
        right = (logits.argmax(dim=-1) == truth).long()
        zeros = torch.zeros(logits.shape[-1], dtype=torch.int64, device=logits.device)
        return zeros.scatter_add_(0, truth, right)  # bincount would wait for values


class Pairs(Tally):
    """How often a class was taken for which: row by row, the true class first."""

    name = "pairs"

    def size(self, classes: int) -> int:
        return classes**2

    def count(self, truth: Tensor, logits: Tensor) -> Tensor:
        classes = logits.shape[-1]
        zeros = torch.zeros(classes**2, dtype=torch.int64, device=logits.device)
        pairs = truth * classes + logits.argmax(dim=-1)
        return zeros.scatter_add_(0, pairs, torch.ones_like(truth))


TALLIES: dict[str, Tally] = {tally.name: tally for tally in (Right(), RightByClass(), Pairs())}


@dataclass(frozen=True)
class TestSet:
    """The samples of a test, and a part of them for the rounds before the last."""

    __test__ = False  # it is not one of pytest's

    size: int
    samples: Samples | None = None  # None: they are somewhere else
    part: Samples | None = None  # None: every round is tested on all

    @classmethod
    def of(cls, samples: Samples, part: Samples | None = None) -> TestSet:
        """Make a test set of samples that are here."""
        return cls(len(samples), samples, part)

    def to(self, device: torch.device) -> TestSet:
        """Return the set on a device."""
        samples = None if self.samples is None else self.samples.to(device)
        part = None if self.part is None else self.part.to(device)
        return replace(self, samples=samples, part=part)


@dataclass(frozen=True)
class TestPlan:
    """The test sets, each of them once, and which client is tested on what."""

    __test__ = False

    sets: Sequence[TestSet]
    order: Sequence[int]  # the tests as they are averaged; several may be of one set
    # For each client the share of each test; None: all clients are tested on the same.
    shares: Sequence[Mapping[int, float]] | None = None
    tallies: Mapping[str, Tally] = field(default_factory=lambda: TALLIES)

    @classmethod
    def empty(cls) -> TestPlan:
        """Return a plan for runs in which nothing is tested."""
        return cls((), ())

    def with_tallies(self, tallies: Iterable[Tally]) -> TestPlan:
        """Return a plan by which other things can be counted too."""
        added = {tally.name: tally for tally in tallies}
        return replace(self, tallies={**self.tallies, **added})

    def to(self, device: torch.device) -> TestPlan:
        """Return the plan with its samples on a device."""
        return replace(self, sets=[test.to(device) for test in self.sets])

    def size(self, test: int, quick: bool = False) -> int:
        """Return how many samples a set has, or its quick part."""
        test_set = self.sets[test]
        if quick and test_set.part is not None:
            return len(test_set.part)
        return test_set.size

    def samples(self, test: int, quick: bool = False) -> Samples:
        """Return the samples of a set, or of its quick part.

        Raises:
            LookupError: they are somewhere else.
        """
        test_set = self.sets[test]
        if quick and test_set.part is not None:
            return test_set.part
        if test_set.samples is None:
            raise LookupError(f"the samples of test set {test} are not here")
        return test_set.samples

    def pieces(self, tests: Iterable[int], quick: bool = False) -> list[Piece]:
        """Cut test sets into batches."""
        pieces = []
        for test in tests:
            size = self.size(test, quick)
            for start in range(0, size, BATCH):
                pieces.append(Piece(test, start, min(start + BATCH, size), quick))
        return pieces


def answer(model: FedModel, plan: TestPlan, exam: Exam, dtype: torch.dtype) -> Answers:
    """Let a model answer, and count.

    Args:
        model: the architecture, which takes over the exam's weights.
        plan: where the samples are.
        exam: the weights, the pieces, and what to count.
        dtype: in which the model computes.

    Returns:
        For each piece the counts of all tallies of the exam, one after the other.
    """
    model.set_weights(exam.model)
    tallies = [plan.tallies[name] for name in exam.tallies]
    was_training = model.training
    model.eval()
    counts = []
    with torch.inference_mode():
        for piece in exam.pieces:
            samples = plan.samples(piece.test, piece.quick)
            part = slice(piece.start, piece.stop)
            logits = model(samples.see(part, dtype)).logits
            truth = samples.y[part]
            counts.append(torch.cat([tally.count(truth, logits).double() for tally in tallies]))
    model.train(was_training)
    if not counts:
        return {}
    table = torch.stack(counts).cpu().clone()  # one wait for the device, in ordinary memory
    return dict(zip(exam.pieces, table, strict=True))
