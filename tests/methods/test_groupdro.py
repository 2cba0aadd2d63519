"""GroupDRO a second time: q_i grows by exp(eta times the client's loss), and weighs the clients of
the round.
"""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from in_package import (
    Watch,
    assert_same_bits,
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
    distance,
)

import fedbr


class GroupDROByHand(FedAvg):
    name = "groupdro"

    def __init__(self, setting: Setting, eta: float) -> None:
        super().__init__(setting)
        self.eta = eta
        self.q = [1.0 for _ in self.clients]
        self.history: list[list[float]] = []  # the aggregation weights of each round

    def portions(self, who: list[int]) -> list[float]:
        for i in who:
            self.q[i] *= math.exp(self.eta * sum(self.losses[i]) / len(self.losses[i]))
        total = sum(self.q[i] for i in who)
        self.history.append([self.q[i] / total for i in who])
        return self.history[-1]


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS.keys())
@pytest.mark.parametrize("eta", [0.01, 0.3, 2.0])
def test_final_weights_are_those_of_the_second_implementation(eta: float, setting: Setting) -> None:
    weights = GroupDROByHand(setting, eta).run()
    for clients_at_once in (1, 2):
        run = run_package([fedbr.GroupDRO(eta=eta)], setting, clients_at_once=clients_at_once)
        assert distance(weights, final(run)) < TOLERANCE, f"clients_at_once = {clients_at_once}"


def test_the_default_eta() -> None:
    assert (
        distance(
            GroupDROByHand(Setting(), 0.01).run(), final(run_package([fedbr.GroupDRO()], Setting()))
        )
        < TOLERANCE
    )


def test_every_eta_is_far_from_every_other() -> None:
    ends = [GroupDROByHand(Setting(), eta).run() for eta in (0.0, 0.01, 0.1, 0.3, 2.0)]
    for one, two in itertools.combinations(ends, 2):
        assert distance(one, two) > 1e3 * TOLERANCE


def find_portions(models: list[Weights], mean: Weights) -> list[float]:
    """The aggregation weights, by least squares: mean = sum of p_i w_i."""
    columns = torch.stack([torch.cat([w.flatten() for w in weights]) for weights in models], dim=1)
    target = torch.cat([w.flatten() for w in mean])
    portions: list[float] = torch.linalg.lstsq(columns, target).solution.tolist()
    assert torch.allclose(
        columns @ torch.tensor(portions, dtype=torch.float64), target, rtol=0, atol=1e-12
    )
    return portions


@pytest.mark.parametrize("clients_at_once", [1, 2])
@pytest.mark.parametrize("eta", [0.05, 1.0])
def test_weights_of_three_rounds(eta: float, clients_at_once: int) -> None:
    """Two of four clients a round: q starts at 1 for newcomers, goes on for returners, and counts
    in the same round.
    """
    setting, watch = Setting(), Watch("watch")
    by_hand = GroupDROByHand(setting, eta)
    by_hand.run()
    run_package([fedbr.GroupDRO(eta=eta), watch.method], setting, clients_at_once=clients_at_once)
    q = [1.0] * len(SIZES)
    who = [setting.participants(r) for r in range(1, setting.rounds + 1)]
    assert who[:3] == [[0, 2], [2, 3], [2, 3]]
    for r, (clients, (models, new)) in enumerate(zip(who, watch.rounds, strict=True), start=1):
        for i in clients:
            q[i] *= math.exp(eta * mean_loss(watch, r, i))
        wanted = [q[i] / sum(q[j] for j in clients) for i in clients]
        portions = find_portions(models, new)
        assert portions == pytest.approx(wanted, abs=1e-9)
        assert portions == pytest.approx(by_hand.history[r - 1], abs=1e-9)
        assert (
            max(portions) - min(portions) > 1e-3 * eta
        )  # the weights of this round are not uniform, from the first on


def mean_loss(watch: Watch, r: int, client: int) -> float:
    """Over the local steps, from the batches and weights that the package had."""
    losses = []
    for step in watch.steps[r, client]:
        logits = (
            torch.tanh(step.x @ step.weights[0].T + step.weights[1]) @ step.weights[2].T
            + step.weights[3]
        )
        losses.append(float(-(step.y * logits.log_softmax(1)).sum(1).mean()))
    return sum(losses) / len(losses)


class Surcharge(fedbr.Method):
    """A term without a gradient, different for each client."""

    name = "surcharge"

    def loss(self, ctx: fedbr.ClientContext, batch: fedbr.Batch, out: fedbr.Output) -> Tensor:
        return 10.0 * ctx.clients.to(torch.float64)


def test_terms_of_other_methods_do_not_count() -> None:
    plain = run_package([fedbr.GroupDRO(eta=0.5)], Setting())
    for methods in ([Surcharge(), fedbr.GroupDRO(eta=0.5)], [fedbr.GroupDRO(eta=0.5), Surcharge()]):
        assert_same_bits(run_package(methods, Setting()), plain)


def test_who_has_the_larger_loss_weighs_more() -> None:
    watch = Watch("watch")
    setting = Setting(rounds=1, per_round=4)
    run_package([fedbr.GroupDRO(eta=1.0), watch.method], setting)
    losses = [mean_loss(watch, 1, i) for i in range(len(SIZES))]
    portions = find_portions(*watch.rounds[0])
    assert sorted(range(4), key=losses.__getitem__) == sorted(range(4), key=portions.__getitem__)
    assert sum(portions) == pytest.approx(1)


def test_a_client_sends_one_number_with_its_model() -> None:
    plain, run = run_package([], Setting()), run_package([fedbr.GroupDRO()], Setting())
    for (up, down), (more, same) in zip(plain.bytes, run.bytes, strict=True):
        assert more - up <= 8 * Setting().per_round
        assert same == down


def test_large_q_do_not_overflow() -> None:
    """exp(eta * loss) is infinite here; the ratio of two q is not."""
    setting = Setting(rounds=4, per_round=4)
    by_hand = GroupDROByHand(setting, 0.0)
    logs = [0.0] * len(SIZES)

    def portions(who: list[int]) -> list[float]:
        for i in who:
            logs[i] += 900.0 * sum(by_hand.losses[i]) / len(by_hand.losses[i])
        shares = [math.exp(logs[i] - max(logs)) for i in who]
        return [share / sum(shares) for share in shares]

    by_hand.portions = portions  # type: ignore[method-assign]
    run = run_package([fedbr.GroupDRO(eta=900.0)], setting)
    assert distance(by_hand.run(), final(run)) < 1e-8


@pytest.mark.parametrize("clients_at_once", [1, 2])
def test_without_eta_it_is_fedavg_to_the_bit(clients_at_once: int) -> None:
    for setting in SETTINGS.values():
        assert_same_bits(
            run_package([fedbr.GroupDRO(eta=0)], setting, clients_at_once=clients_at_once),
            run_package([], setting, clients_at_once=clients_at_once),
        )


def test_two_that_weigh_are_refused() -> None:
    class Weighs(fedbr.Method):
        name = "weighs"

        def weigh(self, state, replies):  # type: ignore[no-untyped-def]
            return None

    with pytest.raises(fedbr.InputError, match="aggregation weights"):
        run_package([fedbr.GroupDRO(), Weighs()], Setting())


@pytest.mark.parametrize(
    "bad",
    [{"eta": -0.01}, {"eta": float("nan")}, {"eta": float("inf")}, {"eta": "fast"}, {"mu": 1}],
)
def test_bad_parameters_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        fedbr.GroupDRO.model_validate(bad)
