"""Figures against cases worked out by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import nn

from fedbr import metrics
from fedbr.core.census import Census
from fedbr.core.evaluation import BATCH, Answers, Exam, TestPlan, TestSet, answer
from fedbr.core.model import FedModel
from fedbr.core.records import ClassCounts, RoundRecord, Split
from fedbr.core.samples import Samples
from fedbr.core.wire import State
from fedbr.metrics import MeasuredRound, examine
from fedbr.metrics.accuracy import Accuracy
from fedbr.metrics.worst_client import WorstClient

OWN = [{0: 1.0}, {1: 1.0}]  # each client has its own test set
EVEN = [1 / 3] * 3  # a client with as many samples of each class


class Says(nn.Module):
    """A model that reads its answer from the sample."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.one_hot(x[:, 0].long(), 3).float()


def make_model() -> FedModel:
    linear = nn.Linear(3, 3)
    with torch.no_grad():
        linear.weight.copy_(torch.eye(3))
        linear.bias.zero_()
    return FedModel(Says(), 3, 3, linear)


def samples(answers: list[int], truth: list[int]) -> Samples:
    return Samples(torch.tensor(answers).float()[:, None], torch.tensor(truth))


class Examiner:
    """Holds test sets and lets models answer; counts how many batches went through a model."""

    def __init__(self, plan: TestPlan, model: FedModel) -> None:
        self.plan, self.model, self.batches = plan, model, 0

    def test(self, exams: Sequence[Exam]) -> list[Answers]:
        self.batches += sum(len(exam.pieces) for exam in exams)
        return [answer(self.model, self.plan, exam, torch.float32) for exam in exams]


def make_census(mix: list[list[float]]) -> Census:
    """Say of every client which share of its samples is of which class."""
    sizes = (1,) * len(mix)
    return Census(
        shape=(1,),
        num_classes=3,
        split=Split("", sizes, (1.0,) * len(mix)),
        classes=ClassCounts(3, None, None, ()),
        distinct=sizes,
        label_mix=torch.tensor(mix),
    )


def count_answers(
    *tests: Samples,
    clients: int = 2,
    order: Sequence[int] | None = None,
    shares: Sequence[Mapping[int, float]] | None = OWN,
    mix: list[list[float]] | None = None,
    models: State | Sequence[State] | None = None,
) -> tuple[metrics.Tested, Examiner]:
    """Test the model on each of the sets, by default the same one for all clients.

    order: the tests, by the place of their set. mix: shares of the classes, of each client.
    """
    model = make_model()
    sets = [TestSet.of(test) for test in tests]
    plan = TestPlan(sets, range(len(sets)) if order is None else order, shares)
    examiner = Examiner(plan, model)
    tallies = Accuracy().tallies(own_tests=shares is not None)
    census = make_census(mix or [EVEN] * clients)
    weights = model.weights() if models is None else models
    return examine(examiner, weights, census, tallies, quick=False), examiner


def worst(result: metrics.Tested) -> Any:
    measured = MeasuredRound(played=None, tested=result, seconds_evaluate=0.0)  # type: ignore
    return WorstClient().per_round(measured)["accuracy_worst"]


def good_and_bad() -> list[State]:
    """Return weights of a model that says what it reads, and of one that never does."""
    weights = make_model().weights()
    return [{name: sign * value for name, value in weights.items()} for sign in (1, -1)]


def test_one_test_set_is_weighted_by_each_clients_classes() -> None:
    # Right are 2/3 of class 0, 1/2 of class 1, 1/1 of class 2.
    test = samples([0, 0, 1, 2, 2, 2], [0, 0, 1, 1, 2, 0])
    mix = [[1.0, 0, 0], [0, 1.0, 0], [0, 0.5, 0.5]]
    result, _ = count_answers(test, shares=None, mix=mix)
    assert result.accuracy == pytest.approx(4 / 6)
    assert result.clients == pytest.approx([2 / 3, 1 / 2, 3 / 4])
    assert worst(result) == pytest.approx(1 / 2)


def test_a_client_whose_classes_are_not_tested_is_not_the_worst() -> None:
    mix = [[1.0, 0, 0], [0, 0, 1.0]]
    result, _ = count_answers(samples([0, 1], [0, 0]), shares=None, mix=mix)
    assert result.clients == [0.5, None]
    assert worst(result) == 0.5


def test_own_test_sets_are_averaged() -> None:
    result, _ = count_answers(samples([0, 1], [0, 1]), samples([0, 0, 0, 0], [0, 1, 2, 1]))
    assert result.clients == pytest.approx([1.0, 0.25])
    assert result.accuracy == pytest.approx(0.625)


def test_clients_that_are_mixes_of_test_sets() -> None:
    tests = [samples([0, 1], [0, 1]), samples([0, 0, 0, 0], [0, 1, 2, 1])]  # 1 and 1/4 are right
    shares = [{0: 1.0}, {0: 0.5, 1: 0.5}, {0: 0.2, 1: 0.8}]
    result, _ = count_answers(*tests, clients=3, shares=shares)
    assert result.clients == pytest.approx([1.0, 0.625, 0.4])
    assert result.accuracy == pytest.approx(0.625)  # each test set once, whoever has it


def test_a_test_set_of_several_clients_is_run_once_and_counts_for_each() -> None:
    good, bad = samples([0, 1], [0, 1]), samples([0, 0], [1, 2])
    shares = [{0: 1.0}, {1: 1.0}, {2: 1.0}]
    result, examiner = count_answers(good, bad, clients=3, order=[0, 0, 1], shares=shares)
    assert examiner.batches == 2
    assert (result.clients, result.accuracy) == ([1.0, 1.0, 0.0], 2 / 3)


def test_own_models_are_tested_each_on_its_own() -> None:
    tests = [samples([0, 1], [0, 1]), samples([2, 2], [2, 2])]
    result, _ = count_answers(*tests, models=good_and_bad())
    assert result.personal
    assert (result.clients, result.accuracy) == ([1.0, 0.0], 0.5)
    mix = [[1.0, 0, 0], [0, 1.0, 0]]
    common, _ = count_answers(tests[0], shares=None, mix=mix, models=good_and_bad())
    assert (common.clients, common.accuracy) == ([1.0, 0.0], 0.5)


def test_other_sets_of_the_examiner_are_left_alone() -> None:
    tests = [samples([0], [1]), samples([0, 1], [0, 1]), samples([2, 2], [2, 0])]
    result, examiner = count_answers(*tests, order=[1, 2])
    assert examiner.batches == 2
    assert (result.clients, result.accuracy) == ([1.0, 0.5], 0.75)


def test_more_than_one_batch_is_added_up() -> None:
    size = 2 * BATCH + 5
    answers = torch.randint(0, 3, (2, size), generator=torch.Generator().manual_seed(0))
    result, examiner = count_answers(samples(*answers.tolist()), clients=1, shares=None)
    assert examiner.batches == 3
    expected = float((answers[0] == answers[1]).double().mean())
    assert result.accuracy == pytest.approx(expected, abs=1e-12)


def test_a_client_without_test_samples_has_no_accuracy_and_spoils_none() -> None:
    nothing = Samples(torch.zeros(0, 1), torch.zeros(0, dtype=torch.long))
    tests = samples([0, 1], [0, 0]), nothing, samples([2], [2])
    shares = [{0: 1.0}, {1: 1.0}, {2: 1.0}]
    for models in (None, [make_model().weights()] * 3):
        result, _ = count_answers(*tests, clients=3, shares=shares, models=models)
        assert result.clients == [0.5, None, 1.0]
        assert result.accuracy == 0.75
        assert worst(result) == 0.5
    mixed, _ = count_answers(*tests, clients=1, shares=[{0: 0.5, 1: 0.5}])
    assert mixed.clients == [0.5]


def test_only_a_part_is_tested_in_between() -> None:
    whole, part = samples([0, 1, 2, 0], [0, 1, 2, 1]), samples([0, 0], [0, 1])
    plan = TestPlan([TestSet.of(whole, part)], [0])
    examiner = Examiner(plan, make_model())
    for quick, expected in ((True, 0.5), (False, 0.75)):
        tallies = Accuracy().tallies(own_tests=False)
        weights = examiner.model.weights()
        result = examine(examiner, weights, make_census([EVEN]), tallies, quick)
        assert result.accuracy == expected


def test_a_set_that_is_not_answered_whole_does_not_count() -> None:
    """A site was lost while it counted: the counts of one batch are not those of its test set."""

    class Forgetful(Examiner):
        def test(self, exams: Sequence[Exam]) -> list[Answers]:
            return [{p: c for p, c in a.items() if p.start < BATCH} for a in super().test(exams)]

    long, short = samples([0] * (BATCH + 1), [0] * (BATCH + 1)), samples([0, 1], [0, 0])
    plan = TestPlan([TestSet.of(long), TestSet.of(short)], [0, 1], OWN)
    examiner = Forgetful(plan, make_model())
    tallies = Accuracy().tallies(own_tests=True)
    result = examine(examiner, examiner.model.weights(), make_census([EVEN] * 2), tallies, False)
    assert (result.clients, result.accuracy) == ([None, 0.5], 0.5)


def rounds(*accuracies: float | None) -> list[RoundRecord]:
    """Make the rounds of a run in which the worst client is half as good; None: not tested."""
    records = []
    for i, accuracy in enumerate(accuracies):
        half = None if accuracy is None else accuracy / 2
        records.append(RoundRecord(i + 1, (), 0.0, accuracy=accuracy, accuracy_worst=half))
    return records


def test_values_of_a_run() -> None:
    played = rounds(0.1, 0.5, 0.9, 0.3, 0.7, 0.8, 0.6)
    result = Accuracy().per_run(played, [0.5, 0.95])
    assert result["accuracy"]["top5"] == pytest.approx((0.9 + 0.8 + 0.7 + 0.6 + 0.5) / 5)
    assert result["accuracy"]["final"] == 0.6
    assert result["accuracy"]["best"] == 0.9
    assert result["rounds_to"] == {"0.5": 2, "0.95": None}
    assert WorstClient().per_run(played, [])["accuracy"]["worst_top5"] == pytest.approx(0.35)


def test_rounds_that_were_not_tested_do_not_count() -> None:
    result = Accuracy().per_run(rounds(None, 0.4, None, 0.6), [0.5])
    assert result["rounds_to"] == {"0.5": 4}
    assert result["accuracy"]["top5"] == pytest.approx(0.5)
    assert Accuracy().per_run([], [0.5])["accuracy"]["final"] is None
