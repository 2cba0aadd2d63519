"""Figures against cases worked out by hand."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fedbr.core.evaluation import BATCH, count
from fedbr.core.model import FedModel
from fedbr.core.samples import Samples
from fedbr.metrics.accuracy import evaluate, summarise

OWN = [{0: 1.0}, {1: 1.0}]  # each client has its own test set


class Says(nn.Module):
    """A model that reads its answer from the sample."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.one_hot(x[:, 0].long(), 3).float()


def model() -> FedModel:
    linear = nn.Linear(3, 3)
    with torch.no_grad():
        linear.weight.copy_(torch.eye(3))
        linear.bias.zero_()
    return FedModel(Says(), 3, 3, linear)


def samples(answers: list[int], truth: list[int]) -> Samples:
    return Samples(torch.tensor(answers).float()[:, None], torch.tensor(truth))


class Room:
    """Holds test sets and lets models answer."""

    def __init__(self, m: FedModel, *tests: Samples) -> None:
        self.model, self.tests = m, tests

    def test(self, exams):
        return [
            count(self.model, params, self.tests, asked, torch.float32) for params, asked in exams
        ]


def test_one_test_set_is_weighted_by_each_clients_classes() -> None:
    m = model()
    test = samples(
        [0, 0, 1, 2, 2, 2], [0, 0, 1, 1, 2, 0]
    )  # right: class 0 2/3, class 1 1/2, class 2 1/1
    mix = torch.tensor([[1.0, 0, 0], [0, 1.0, 0], [0, 0.5, 0.5]])
    result = evaluate(Room(m, test), m.state_dict(), range(1), None, mix)
    assert result.accuracy == pytest.approx(4 / 6)
    assert result.clients == pytest.approx([2 / 3, 1 / 2, 3 / 4])
    assert result.worst == pytest.approx(1 / 2)


def test_a_client_whose_classes_are_not_tested_is_not_the_worst() -> None:
    m = model()
    mix = torch.tensor([[1.0, 0, 0], [0, 0, 1.0]])
    result = evaluate(Room(m, samples([0, 1], [0, 0])), m.state_dict(), range(1), None, mix)
    assert result.clients == [0.5, None]
    assert result.worst == 0.5


def test_own_test_sets_are_averaged() -> None:
    m = model()
    tests = [samples([0, 1], [0, 1]), samples([0, 0, 0, 0], [0, 1, 2, 1])]
    result = evaluate(Room(m, *tests), m.state_dict(), range(2), OWN, torch.full((2, 3), 1 / 3))
    assert result.clients == pytest.approx([1.0, 0.25])
    assert result.accuracy == pytest.approx(0.625)


def test_clients_that_are_mixes_of_test_sets() -> None:
    m = model()
    tests = [samples([0, 1], [0, 1]), samples([0, 0, 0, 0], [0, 1, 2, 1])]  # 1 and 1/4 are right
    shares = [{0: 1.0}, {0: 0.5, 1: 0.5}, {0: 0.2, 1: 0.8}]
    result = evaluate(Room(m, *tests), m.state_dict(), range(2), shares, torch.full((3, 3), 1 / 3))
    assert result.clients == pytest.approx([1.0, 0.625, 0.4])
    assert result.accuracy == pytest.approx(0.625)  # each test set once, whoever has it


def test_a_test_set_of_several_clients_is_run_once_and_counts_for_each() -> None:
    m, runs = model(), []
    m.register_forward_hook(lambda *_: runs.append(1))
    good, bad = samples([0, 1], [0, 1]), samples([0, 0], [1, 2])
    result = evaluate(
        Room(m, good, good, bad),
        m.weights(),
        range(3),
        [{0: 1.0}, {1: 1.0}, {2: 1.0}],
        torch.ones(3, 3) / 3,
    )
    assert len(runs) == 2
    assert (result.clients, result.accuracy) == ([1.0, 1.0, 0.0], 2 / 3)


def test_own_models_are_tested_each_on_its_own() -> None:
    m = model()
    good, bad = ({k: sign * v for k, v in m.weights().items()} for sign in (1, -1))
    tests = [samples([0, 1], [0, 1]), samples([2, 2], [2, 2])]
    result = evaluate(Room(m, *tests), [good, bad], range(2), OWN, torch.full((2, 3), 1 / 3))
    assert (result.clients, result.accuracy) == ([1.0, 0.0], 0.5)
    common = evaluate(
        Room(m, *tests), [good, bad], range(1), None, torch.tensor([[1.0, 0, 0], [0, 1.0, 0]])
    )
    assert (common.clients, common.accuracy) == ([1.0, 0.0], 0.5)


def line(round: int, accuracy: float | None, worst: float | None = 0.0) -> dict[str, object]:
    return {"round": round, "accuracy": accuracy, "accuracy_worst": worst}


def test_headline_figures() -> None:
    values = [0.1, 0.5, 0.9, 0.3, 0.7, 0.8, 0.6]
    lines = [line(i + 1, v, v / 2) for i, v in enumerate(values)]
    result = summarise(lines, [0.5, 0.95])
    assert result["accuracy"]["top5"] == pytest.approx((0.9 + 0.8 + 0.7 + 0.6 + 0.5) / 5)
    assert result["accuracy"]["worst_top5"] == pytest.approx(0.35)
    assert result["accuracy"]["final"] == 0.6
    assert result["accuracy"]["best"] == 0.9
    assert result["rounds_to"] == {"0.5": 2, "0.95": None}


def test_rounds_that_were_not_tested_do_not_count() -> None:
    result = summarise(
        [line(1, None, None), line(2, 0.4), line(3, None, None), line(4, 0.6)], [0.5]
    )
    assert result["rounds_to"] == {"0.5": 4}
    assert result["accuracy"]["top5"] == pytest.approx(0.5)
    assert summarise([], [0.5])["accuracy"]["final"] is None


def test_other_sets_of_the_examiner_are_left_alone() -> None:
    m = model()
    room = Room(m, samples([0], [1]), samples([0, 1], [0, 1]), samples([2, 2], [2, 0]))
    result = evaluate(room, m.weights(), range(1, 3), OWN, torch.full((2, 3), 1 / 3))
    assert (result.clients, result.accuracy) == ([1.0, 0.5], 0.75)


def test_more_than_one_batch_is_added_up() -> None:
    m, size = model(), 2 * BATCH + 5
    answers = torch.randint(0, 3, (2, size), generator=torch.Generator().manual_seed(0))
    result = evaluate(
        Room(m, samples(*answers.tolist())), m.weights(), range(1), None, torch.ones(1, 3) / 3
    )
    assert result.accuracy == pytest.approx(
        float((answers[0] == answers[1]).double().mean()), abs=1e-12
    )


def test_a_client_without_test_samples_has_no_accuracy_and_spoils_none() -> None:
    m = model()
    nothing = Samples(torch.zeros(0, 1), torch.zeros(0, dtype=torch.long))
    for models in (m.weights(), [m.weights()] * 3):
        room = Room(m, samples([0, 1], [0, 0]), nothing, samples([2], [2]))
        result = evaluate(
            room, models, range(3), [{0: 1.0}, {1: 1.0}, {2: 1.0}], torch.full((3, 3), 1 / 3)
        )
        assert result.clients == [0.5, None, 1.0]
        assert result.accuracy == 0.75
        assert result.worst == 0.5
    mixed = evaluate(room, m.weights(), range(3), [{0: 0.5, 1: 0.5}], torch.full((1, 3), 1 / 3))
    assert mixed.clients == [0.5]
