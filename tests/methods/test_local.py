"""Local training a second time: every client alone, from the common start; nothing is sent; each
tests its own.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from in_package import (
    final,
    run_package,
)
from world import (
    CLASSES,
    SETTINGS,
    SIZES,
    TOLERANCE,
    Clients,
    FedAvg,
    Setting,
    Weights,
    accuracy,
    distance,
    held_out,
    predict,
    start_weights,
    world,
)

import fedbr
from fedbr.backends.base import LocalBackend
from fedbr.metrics import examine

LONG = Setting(rounds=6, steps=6, lr=0.5)  # far enough for the accuracies to differ


class Alone:
    """Every client's own model after each round, and the loss of the round."""

    def __init__(self, setting: Setting, clients: Clients | None = None) -> None:
        by_hand = FedAvg(setting, clients)
        own = [start_weights() for _ in by_hand.clients]
        self.models: list[list[Weights]] = []
        self.loss: list[float] = []
        for r in range(1, setting.rounds + 1):
            who = setting.participants(r, len(own))
            for i in who:
                own[i] = by_hand.train_client(i, r, own[i])
            self.models.append(list(own))
            self.loss.append(float(np.mean([by_hand.losses[i] for i in who])))


def run_and_watch(setting: Setting, **options: Any) -> tuple[fedbr.Run, list[list[Weights]]]:
    """Train with the package; return also what it tested in each round: the clients' own models."""
    tested: list[list[Weights]] = []

    def watched(backend: LocalBackend, params: Any, *rest: Any) -> Any:
        tested.append(
            [
                [own[key].clone() for key, _ in backend.setup.model.named_parameters()]
                for own in params
            ]
        )
        return examine(backend, params, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedbr.metrics.examine", watched)
        run = run_package([fedbr.Local()], setting, evaluate_every=1, **options)
    assert len(tested) == setting.rounds
    return run, tested


def own_tests() -> list[tuple[torch.Tensor, torch.Tensor]]:
    """One for each client, of different sizes, so that a mean over clients is none over samples."""
    return [held_out(size, seed) for seed, size in enumerate((7, 31, 12, 50))]


@pytest.mark.parametrize("clients_at_once", [1, 2])
@pytest.mark.parametrize("setting", [*SETTINGS.values(), LONG], ids=[*SETTINGS.keys(), "long"])
def test_weights_are_those_of_each_client_alone(setting: Setting, clients_at_once: int) -> None:
    """Of every client after every round; a client goes on from its own model, however long it was
    absent.
    """
    alone = Alone(setting)
    run, tested = run_and_watch(setting, clients_at_once=clients_at_once)
    for r in range(setting.rounds):
        for i in range(len(SIZES)):
            assert distance(alone.models[r][i], tested[r][i]) < TOLERANCE, (
                f"round {r + 1}, client {i}"
            )
    assert run.loss == pytest.approx(alone.loss, abs=TOLERANCE)


def test_one_client_alone_is_fedavg() -> None:
    """The common start is the model's, and rounds do not matter to whoever is alone."""
    setting, clients = Setting(per_round=1), world()[:1]
    _, tested = run_and_watch(setting, clients=clients)
    plain = run_package([], setting, clients=clients)
    assert distance(final(plain), tested[-1][0]) < TOLERANCE


@pytest.mark.parametrize("setting", [Setting(), LONG, Setting(per_round=4)])
def test_accuracy_with_own_tests_is_the_mean_over_clients_of_their_own_models(
    setting: Setting,
) -> None:
    """All clients, whether they took part or not; those who never did have the weights of the
    start.
    """
    alone, tests = Alone(setting), own_tests()
    run = run_package([fedbr.Local()], setting, test=tests, evaluate_every=1)
    assert len(run.accuracy) == setting.rounds
    for r in range(setting.rounds):
        wanted = [
            accuracy(model, *test) for model, test in zip(alone.models[r], tests, strict=True)
        ]
        assert run.accuracy_clients[r] == pytest.approx(wanted)
        assert run.accuracy[r] == pytest.approx(sum(wanted) / len(wanted))
        assert run.lines[r]["accuracy_worst"] == pytest.approx(min(wanted))


@pytest.mark.parametrize("setting", [Setting(), LONG])
def test_accuracy_with_a_common_test_is_the_mean_of_all_models_on_it(setting: Setting) -> None:
    alone, test = Alone(setting), held_out(60, 9)
    run = run_package([fedbr.Local()], setting, test=test, evaluate_every=1)
    for r in range(setting.rounds):
        scores = [accuracy(model, *test) for model in alone.models[r]]
        assert run.accuracy[r] == pytest.approx(sum(scores) / len(scores))
    assert len(set(scores)) > 2  # models do differ


def test_clients_accuracy_with_a_common_test_weighs_classes_as_in_their_own_data() -> None:
    """The definition that holds for the global model, with the client's own in its place."""
    alone, (x, y) = Alone(LONG), held_out(60, 9)
    run = run_package([fedbr.Local()], LONG, test=(x, y))
    for i, model in enumerate(alone.models[-1]):
        right = predict(model, x).argmax(1) == y
        mine = world()[i][1]
        wanted = sum(
            float((mine == k).double().mean() * right[y == k].double().mean())
            for k in range(CLASSES)
        )
        assert run.accuracy_clients[-1][i] == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize("clients_at_once", [1, 2])
def test_clients_never_influence_each_other(clients_at_once: int) -> None:
    """Other data, and more of it, for client 1: all others are what they were."""
    clients = world()
    rng = np.random.default_rng(1)
    other = (
        torch.from_numpy(rng.normal(size=(17, clients[1][0].shape[1]))),
        torch.from_numpy(rng.integers(3, size=17)),
    )
    for setting in (LONG, Setting(per_round=4)):
        one, before = run_and_watch(
            setting, clients=clients, test=own_tests(), clients_at_once=clients_at_once
        )
        two, after = run_and_watch(
            setting,
            clients=[clients[0], other, *clients[2:]],
            test=own_tests(),
            clients_at_once=clients_at_once,
        )
        for r in range(setting.rounds):
            for i in (0, 2, 3):
                assert one.accuracy_clients[r][i] == two.accuracy_clients[r][i]
                assert distance(before[r][i], after[r][i]) < TOLERANCE
        assert distance(before[-1][1], after[-1][1]) > 1e-3


@pytest.mark.parametrize("setting", [*SETTINGS.values(), LONG], ids=[*SETTINGS.keys(), "long"])
def test_nothing_is_sent(setting: Setting) -> None:
    run = run_package([fedbr.Local()], setting, evaluate_every=1)
    assert run.bytes == [(0, 0)] * setting.rounds


def test_it_is_not_fedavg() -> None:
    """The tests above have teeth: a single round apart, clients already differ from the common
    model.
    """
    alone = Alone(LONG)
    together = FedAvg(LONG).run()
    assert all(distance(together, model) > 0.1 for model in alone.models[-1])
    assert len(alone.models[-1]) == len(SIZES)


def test_it_goes_with_no_other_method() -> None:
    with pytest.raises(fedbr.InputError, match="local"):
        run_package([fedbr.Local(), fedbr.FedProx()], Setting())


def test_parameters_are_refused() -> None:
    with pytest.raises(ValueError, match="mu"):
        fedbr.Local.model_validate({"mu": 1})
