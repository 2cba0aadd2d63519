"""FedProx a second time, from the paper: every client minimises its loss + mu/2 |w - w_g|^2."""

from __future__ import annotations

import itertools

import pytest
import torch
from in_package import (
    Step,
    Watch,
    assert_modules_of_others_are_left_alone,
    assert_same_bits,
    final,
    run_package,
)
from torch import Tensor
from world import (
    SETTINGS,
    TOLERANCE,
    FedAvg,
    Setting,
    Weights,
    cross_entropy,
    distance,
    predict,
)

import fedbr


class FedProxByHand(FedAvg):
    name = "fedprox"

    def __init__(self, setting: Setting, mu: float) -> None:
        super().__init__(setting)
        self.mu = mu

    def term(self, weights: Weights) -> Tensor:
        return self.mu / 2 * squared_distance(weights, self.weights)


def squared_distance(a: Weights, b: Weights) -> Tensor:
    total = torch.zeros((), dtype=torch.float64)
    for v, w in zip(a, b, strict=True):
        total = total + ((v - w) ** 2).sum()
    return total


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS.keys())
@pytest.mark.parametrize("mu", [0.01, 0.1, 2.0])
def test_final_weights_are_those_of_the_second_implementation(mu: float, setting: Setting) -> None:
    weights = FedProxByHand(setting, mu).run()
    for clients_at_once in (1, 2):
        run = run_package([fedbr.FedProx(mu=mu)], setting, clients_at_once=clients_at_once)
        assert distance(weights, final(run)) < TOLERANCE, f"clients_at_once = {clients_at_once}"


def test_the_default_weight() -> None:
    assert (
        distance(
            FedProxByHand(Setting(), 0.1).run(), final(run_package([fedbr.FedProx()], Setting()))
        )
        < TOLERANCE
    )


def test_every_weight_is_far_from_every_other() -> None:
    """The comparison has teeth: half or twice the factor would be seen."""
    ends = [
        FedProxByHand(Setting(), mu).run()
        for mu in (0.0, 0.005, 0.01, 0.05, 0.1, 0.2, 1.0, 2.0, 4.0)
    ]
    for one, two in itertools.combinations(ends, 2):
        assert distance(one, two) > 1e3 * TOLERANCE


@pytest.mark.parametrize("mu", [0.1, 3.0])
@pytest.mark.parametrize("clients_at_once", [1, 2])
def test_gradient_is_that_of_finite_differences(mu: float, clients_at_once: int) -> None:
    """Of the loss and the squared distance with its whole factor, mu/2, at the points where the
    package took it.
    """
    watch, h = Watch("watch"), 1e-5
    run_package(
        [fedbr.FedProx(mu=mu), watch.method], Setting(rounds=2), clients_at_once=clients_at_once
    )
    for steps in watch.steps.values():
        for k, step in enumerate(steps):

            def value(step: Step = step) -> float:
                loss = cross_entropy(predict(step.weights, step.x), step.y)
                return float(loss + mu / 2 * squared_distance(step.weights, step.received))

            assert (distance(step.weights, step.received) > 1e-3) == (
                k > 0
            )  # the term acts from step 2 on
            for weight, slope in zip(step.weights, step.slopes, strict=True):
                flat = weight.view(-1)  # shares its memory, so value() sees each nudge
                for i in range(len(flat)):
                    old = float(flat[i])
                    flat[i] = old + h
                    up = value()
                    flat[i] = old - h
                    down = value()
                    flat[i] = old
                    assert abs((up - down) / (2 * h) - float(slope.reshape(-1)[i])) < 1e-8


def test_the_loss_of_the_lines_is_the_cross_entropy_alone() -> None:
    by_hand = FedProxByHand(Setting(rounds=3), 1.0)
    by_hand.run()
    means = [
        sum(losses) / len(losses)
        for client, losses in sorted(by_hand.losses.items())
        if client in (2, 3)
    ]
    assert Setting().participants(3) == [2, 3]
    assert run_package([fedbr.FedProx(mu=1.0)], Setting(rounds=3)).loss[-1] == pytest.approx(
        sum(means) / 2, abs=1e-12
    )


def test_a_strong_pull_keeps_clients_at_home() -> None:
    """With eta * mu = 1 every step goes back to w_g and then one gradient further: K steps end like
    one.
    """
    watch = Watch("watch")
    setting = Setting(rounds=3, steps=4)
    run_package([fedbr.FedProx(mu=1 / setting.lr), watch.method], setting)
    for key, steps in watch.steps.items():
        last = steps[-1]
        loss_slopes = slopes_of_loss(last.weights, last.x, last.y)
        wanted = [w - setting.lr * g for w, g in zip(last.received, loss_slopes, strict=True)]
        assert distance(wanted, watch.ends[key]) < TOLERANCE


def slopes_of_loss(weights: Weights, x: Tensor, y: Tensor) -> Weights:
    leaves = [w.clone().requires_grad_() for w in weights]
    return list(torch.autograd.grad(cross_entropy(predict(leaves, x), y), leaves))


def test_nothing_more_is_sent_than_the_model() -> None:
    assert run_package([fedbr.FedProx(mu=1.0)], Setting()).bytes == run_package([], Setting()).bytes


@pytest.mark.parametrize("clients_at_once", [1, 2])
def test_without_weight_it_is_fedavg_to_the_bit(clients_at_once: int) -> None:
    for setting in SETTINGS.values():
        assert_same_bits(
            run_package([fedbr.FedProx(mu=0)], setting, clients_at_once=clients_at_once),
            run_package([], setting, clients_at_once=clients_at_once),
        )


def test_modules_of_other_methods_are_left_alone() -> None:
    assert_modules_of_others_are_left_alone(fedbr.FedProx(mu=5.0), Setting())


@pytest.mark.parametrize(
    "bad", [{"mu": -0.1}, {"mu": float("nan")}, {"mu": float("inf")}, {"mu": "much"}, {"nu": 1}]
)
def test_bad_parameters_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        fedbr.FedProx.model_validate(bad)
