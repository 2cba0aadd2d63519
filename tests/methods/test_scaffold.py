"""SCAFFOLD a second time, from the paper (option II), and what it is for: no drift of clients on
different optima.
"""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch
from in_package import (
    Watch,
    assert_modules_of_others_are_left_alone,
    final,
    run_package,
)
from torch import Tensor
from world import (
    SETTINGS,
    SIZES,
    TOLERANCE,
    FedAvg,
    Setting,
    Weights,
    cross_entropy,
    distance,
    one_hot,
    predict,
    start_weights,
    sum_of,
    world,
)

import fedbr


def zeros() -> Weights:
    return [torch.zeros_like(w) for w in start_weights()]


class ScaffoldByHand(FedAvg):
    name = "scaffold"

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self.c = zeros()
        self.own = [zeros() for _ in self.clients]  # c_i
        self.uploads: dict[int, Weights] = {}

    def direction(self, client: int, slopes: Weights) -> Weights:
        return [g + c - own for g, c, own in zip(slopes, self.c, self.own[client], strict=True)]

    def leave(self, client: int, weights: Weights) -> None:
        old, way = self.own[client], self.setting.steps * self.setting.lr
        self.own[client] = [
            own - c + (before - after) / way
            for own, c, before, after in zip(old, self.c, self.weights, weights, strict=True)
        ]
        self.uploads[client] = [new - own for new, own in zip(self.own[client], old, strict=True)]

    def settle(self, old: Weights, who: list[int]) -> None:
        for i in who:
            self.c = [
                c + up / len(self.clients) for c, up in zip(self.c, self.uploads[i], strict=True)
            ]


@functools.cache
def by_hand(setting: Setting) -> ScaffoldByHand:
    done = ScaffoldByHand(setting)
    done.run()
    return done


def mean(variates: list[Weights]) -> Weights:
    return [sum_of(ws) / len(ws) for ws in zip(*variates, strict=True)]


@pytest.mark.parametrize("clients_at_once", [1, 2])
@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS.keys())
def test_final_weights_are_those_of_the_second_implementation(
    setting: Setting, clients_at_once: int
) -> None:
    run = run_package([fedbr.SCAFFOLD()], setting, clients_at_once=clients_at_once)
    assert distance(by_hand(setting).weights, final(run)) < TOLERANCE
    if setting.rounds > 1:
        assert distance(FedAvg(setting).run(), final(run)) > 1e3 * TOLERANCE


def test_the_rounds_have_newcomers_returners_and_absentees() -> None:
    """What the default setting is there for."""
    who = [Setting().participants(r) for r in range(1, 6)]
    assert who == [[0, 2], [2, 3], [2, 3], [0, 1], [1, 3]]


@pytest.mark.parametrize("clients_at_once", [1, 2])
@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS.keys())
def test_correction_is_the_mean_of_all_variates_minus_ones_own(
    setting: Setting, clients_at_once: int
) -> None:
    """Variates survive absence, the mean counts those who never took part (with 0), and a round
    changes neither.

    All of it is worked out from the weights that the package itself received and reached.
    """
    before, after = Watch("before"), Watch("after")
    run_package(
        [before.method, fedbr.SCAFFOLD(), after.method], setting, clients_at_once=clients_at_once
    )
    own = [zeros() for _ in SIZES]
    for r in range(1, setting.rounds + 1):
        c, new = mean(own), list(own)
        for i in setting.participants(r):
            seen, changed = before.steps[r, i], after.steps[r, i]
            assert len(seen) == len(changed) == setting.steps
            for one, two in zip(seen, changed, strict=True):
                correction = [b - a for a, b in zip(one.slopes, two.slopes, strict=True)]
                assert (
                    distance([a - b for a, b in zip(c, own[i], strict=True)], correction)
                    < TOLERANCE
                )
            way = [
                (w - v) / (setting.steps * setting.lr)
                for w, v in zip(seen[0].received, after.ends[r, i], strict=True)
            ]
            new[i] = [a - b + w for a, b, w in zip(own[i], c, way, strict=True)]
        own = new


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS.keys())
def test_server_holds_the_mean_of_all_variates(setting: Setting) -> None:
    """By hand too: uploads of differences keep c at the mean of all c_i."""
    assert distance(mean(by_hand(setting).own), by_hand(setting).c) < TOLERANCE


def test_a_variate_is_the_mean_gradient_of_the_round() -> None:
    """c_i+ = c_i - c + (w_g - w_i) / (K eta) is the mean of the K gradients as they were before
    their correction.
    """
    before, after = Watch("before"), Watch("after")
    setting = Setting(rounds=4, per_round=4)
    run_package([before.method, fedbr.SCAFFOLD(), after.method], setting)
    for r in range(2, setting.rounds + 1):
        own = [mean([step.slopes for step in before.steps[r - 1, i]]) for i in range(len(SIZES))]
        for i in range(len(SIZES)):
            first, corrected = before.steps[r, i][0].slopes, after.steps[r, i][0].slopes
            wanted = [g + c - o for g, c, o in zip(first, mean(own), own[i], strict=True)]
            assert distance(wanted, corrected) < TOLERANCE


def test_variates_travel_with_the_model_both_ways() -> None:
    """Down: w_g and c. Up: w_i and the change of c_i. From the second round at the latest."""
    plain, run = run_package([], Setting()), run_package([fedbr.SCAFFOLD()], Setting())
    assert [(2 * up, 2 * down) for up, down in plain.bytes][1:] == run.bytes[1:]


def test_modules_of_other_methods_are_left_alone() -> None:
    assert_modules_of_others_are_left_alone(fedbr.SCAFFOLD(), Setting())


@pytest.mark.parametrize("bad", [{"mu": 0.1}, {"option": 1}])
def test_bad_parameters_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        fedbr.SCAFFOLD.model_validate(bad)


# ------------------------------------------------------------------------------------------
# quadratics: no drift


def curves(client: int) -> tuple[Weights, Weights]:
    """a and b of the client's loss, the sum over all weights of a/2 (w - b)^2."""
    rng = np.random.default_rng([8, client])
    shapes = [w.shape for w in start_weights()]
    a = [torch.from_numpy(rng.uniform(0.5, 3.0, size=shape)) for shape in shapes]
    b = [torch.from_numpy(rng.normal(scale=2.0, size=shape)) for shape in shapes]
    return a, b


class Quadratic(fedbr.Method):
    """Put the gradient of a quadratic, one for each client, in the place of that of the
    cross-entropy.
    """

    name = "quadratic"

    def on_grad(self, ctx: fedbr.ClientContext, params: dict[str, Tensor]) -> None:
        for i, client in enumerate(ctx.clients.tolist()):
            for p, a, b in zip(params.values(), *curves(client), strict=True):
                assert p.grad is not None
                p.grad[i] = a * (p.detach()[i] - b)


def optimum() -> Weights:
    """Of the mean over clients: sum a b / sum a."""
    everybody = [curves(i) for i in range(len(SIZES))]
    return [
        sum_of([a[k] * b[k] for a, b in everybody]) / sum_of([a[k] for a, _ in everybody])
        for k in range(len(start_weights()))
    ]


def drifted(setting: Setting) -> Weights:
    """Where FedAvg stops: K local steps shrink a client's error by r = (1 - eta a)^K; sum (1-r) b /
    sum (1-r).
    """
    everybody = [
        ([1 - (1 - setting.lr * w) ** setting.steps for w in a], b)
        for a, b in map(curves, range(len(SIZES)))
    ]
    return [
        sum_of([s[k] * b[k] for s, b in everybody]) / sum_of([s[k] for s, _ in everybody])
        for k in range(len(start_weights()))
    ]


def test_on_quadratics_fedavg_drifts_and_scaffold_finds_the_optimum() -> None:
    setting = Setting(rounds=60, steps=10, batch=1, lr=0.1, per_round=4)
    fedavg = final(run_package([Quadratic()], setting))
    scaffold = final(run_package([Quadratic(), fedbr.SCAFFOLD()], setting))
    assert distance(drifted(setting), fedavg) < 1e-9
    assert distance(optimum(), fedavg) > 0.1
    assert distance(optimum(), scaffold) < 1e-9


def test_on_quadratics_scaffold_finds_the_optimum_with_half_of_the_clients() -> None:
    """Variates that were forgotten in a client's absence would not get there."""
    setting = Setting(rounds=150, steps=5, batch=1, lr=0.05, per_round=2)
    assert distance(optimum(), final(run_package([Quadratic(), fedbr.SCAFFOLD()], setting))) < 1e-6


# --------------------------------------------------------------------------------- cross-entropy:
# copies of a sample


def test_on_copies_of_one_sample_scaffold_finds_the_shares_of_the_labels() -> None:
    """The same input is class 0 for two clients and class 1 for the third: the mean loss is least
    at p = 2/3, 1/3.

    Every batch of a client is the same, so nothing but drift keeps FedAvg away from that.
    """
    x = world()[0][0][:1]
    clients = [(x.repeat(3, 1), torch.tensor([label] * 3)) for label in (0, 0, 1)]
    setting = Setting(rounds=80, steps=10, batch=2, lr=0.2, per_round=3)
    share, slope = {}, {}
    for name, methods in (("fedavg", []), ("scaffold", [fedbr.SCAFFOLD()])):
        run = run_package(methods, setting, clients=clients, test=(x, torch.tensor([1])), classes=2)
        leaves = [w.clone().requires_grad_() for w in final(run)]
        losses = [
            cross_entropy(predict(leaves, x), one_hot(torch.tensor([label]), 2))
            for label in (0, 0, 1)
        ]
        slope[name] = max(
            float(g.abs().max()) for g in torch.autograd.grad(torch.stack(losses).mean(), leaves)
        )
        share[name] = float(predict(leaves, x).detach().softmax(1)[0, 0])
    assert abs(share["fedavg"] - 2 / 3) > 0.02
    assert slope["fedavg"] > 0.01
    assert abs(share["scaffold"] - 2 / 3) < 1e-6
    assert slope["scaffold"] < 1e-6


@pytest.mark.parametrize(("aggregate", "optimum"), [("uniform", 0.5), ("samples", 0.75)])
def test_the_variates_follow_the_aggregation_weights(aggregate: str, optimum: float) -> None:
    """Thirty copies of a sample with class 0 and ten with class 1: what is the probability of class
    0 in the end?
    """
    x = torch.ones(40, 2, dtype=torch.float64)
    clients = [
        (x[:30], torch.zeros(30, dtype=torch.long)),
        (x[30:], torch.ones(10, dtype=torch.long)),
    ]
    federation = fedbr.Federation.from_clients(clients, test=(x, torch.arange(40) % 2))
    model = fedbr.FedModel(torch.nn.Linear(2, 3), 3, 2).double()
    run = fedbr.train(
        federation,
        model,
        [fedbr.SCAFFOLD()],
        rounds=150,
        local_steps=20,
        batch_size=2,
        lr=0.05,
        dtype="float64",
        aggregate=aggregate,
        evaluate_every=0,  # type: ignore[arg-type]
    )
    assert run.model(x[:1]).logits.softmax(dim=-1)[0, 0].item() == pytest.approx(optimum, abs=1e-3)
