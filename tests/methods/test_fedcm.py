"""FedCM a second time, from the paper: every step is alpha g + (1 - alpha) Delta, Delta the last
global direction.
"""

from __future__ import annotations

import itertools

import pytest
import torch
from in_package import (
    Watch,
    assert_modules_of_others_are_left_alone,
    assert_same_bits,
    final,
    run_package,
)
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
    world,
)

import fedbr
from fedbr.core.rng import stream


class FedCMByHand(FedAvg):
    name = "fedcm"

    def __init__(self, setting: Setting, alpha: float) -> None:
        super().__init__(setting)
        self.alpha = alpha
        self.delta = [torch.zeros_like(w) for w in self.weights]

    def direction(self, client: int, slopes: Weights) -> Weights:
        return [
            self.alpha * g + (1 - self.alpha) * d for g, d in zip(slopes, self.delta, strict=True)
        ]

    def settle(self, old: Weights, who: list[int]) -> None:
        way = self.setting.lr * self.setting.steps
        self.delta = [
            (before - after) / way for before, after in zip(old, self.weights, strict=True)
        ]


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS.keys())
@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.6, 1.0])
def test_final_weights_are_those_of_the_second_implementation(
    alpha: float, setting: Setting
) -> None:
    weights = FedCMByHand(setting, alpha).run()
    for clients_at_once in (1, 2):
        run = run_package([fedbr.FedCM(alpha=alpha)], setting, clients_at_once=clients_at_once)
        assert distance(weights, final(run)) < TOLERANCE, f"clients_at_once = {clients_at_once}"


def test_the_default_alpha() -> None:
    assert (
        distance(FedCMByHand(Setting(), 0.1).run(), final(run_package([fedbr.FedCM()], Setting())))
        < TOLERANCE
    )


def test_every_alpha_is_far_from_every_other() -> None:
    ends = [FedCMByHand(Setting(), alpha).run() for alpha in (0.05, 0.1, 0.2, 0.6, 1.0)]
    for one, two in itertools.combinations(ends, 2):
        assert distance(one, two) > 1e3 * TOLERANCE


def first_slopes(weights: Weights, client: int, r: int, setting: Setting) -> Weights:
    """The gradient of the first batch of a round."""
    xs, ys = world()[client]
    picked = stream(setting.seed, "batches", r, client).integers(
        len(xs), size=(setting.steps, setting.batch)
    )[0]
    leaves = [w.clone().requires_grad_() for w in weights]
    return list(
        torch.autograd.grad(cross_entropy(predict(leaves, xs[picked]), one_hot(ys[picked])), leaves)
    )


@pytest.mark.parametrize("clients_at_once", [1, 2])
@pytest.mark.parametrize("alpha", [0.1, 0.7])
@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS.keys())
def test_first_directions_of_rounds_one_and_two(
    setting: Setting, alpha: float, clients_at_once: int
) -> None:
    """Round 1: alpha g, since Delta_0 = 0. Round 2: alpha g + (1 - alpha) (w0 - w1) / (eta K)."""
    watch = Watch("watch")
    run_package([fedbr.FedCM(alpha=alpha), watch.method], setting, clients_at_once=clients_at_once)
    w0, w1 = start_weights(), watch.rounds[0][1]
    assert distance(w0, w1) > 1e-3
    for i in setting.participants(1):
        wanted = [alpha * g for g in first_slopes(w0, i, 1, setting)]
        assert distance(wanted, watch.steps[1, i][0].slopes) < TOLERANCE
    for i in setting.participants(2):
        wanted = [
            alpha * g + (1 - alpha) * (before - after) / (setting.lr * setting.steps)
            for g, before, after in zip(first_slopes(w1, i, 2, setting), w0, w1, strict=True)
        ]
        assert distance(wanted, watch.steps[2, i][0].slopes) < TOLERANCE


def test_delta_is_the_same_for_all_clients_and_steps_of_a_round() -> None:
    """Whoever took part before, and however often: it comes from the server, with the model."""
    alpha, setting = 0.3, Setting()
    before, after = Watch("before"), Watch("after")
    run_package([before.method, fedbr.FedCM(alpha=alpha), after.method], setting, clients_at_once=2)
    w_old, delta = start_weights(), [torch.zeros_like(w) for w in start_weights()]
    for r in range(1, setting.rounds + 1):
        for i in setting.participants(r):
            for one, two in zip(before.steps[r, i], after.steps[r, i], strict=True):
                result = [
                    (b - alpha * a) / (1 - alpha)
                    for a, b in zip(one.slopes, two.slopes, strict=True)
                ]
                assert distance(delta, result) < TOLERANCE
        w_new = after.rounds[r - 1][1]
        delta = [
            (old - new) / (setting.lr * setting.steps)
            for old, new in zip(w_old, w_new, strict=True)
        ]
        w_old = w_new


def test_delta_is_the_mean_of_all_directions_of_the_round() -> None:
    """With everybody and uniform weights: over all clients and steps, of what they went along."""
    watch, alpha, setting = Watch("watch"), 0.4, Setting(rounds=2, per_round=4)
    run_package([fedbr.FedCM(alpha=alpha), watch.method], setting)
    taken = [step.slopes for i in range(len(SIZES)) for step in watch.steps[1, i]]
    delta = [torch.stack(ds).mean(0) for ds in zip(*taken, strict=True)]
    w1 = watch.rounds[0][1]
    wanted = [
        alpha * g + (1 - alpha) * d
        for g, d in zip(first_slopes(w1, 0, 2, setting), delta, strict=True)
    ]
    assert distance(wanted, watch.steps[2, 0][0].slopes) < TOLERANCE


def test_order_with_scaffold_is_the_listed_one() -> None:
    """Both edit the gradient: FedCM last weighs the correction with alpha, FedCM first does not."""
    alpha, setting = 0.3, Setting(rounds=3)
    for methods in (
        [fedbr.SCAFFOLD(), fedbr.FedCM(alpha=alpha)],
        [fedbr.FedCM(alpha=alpha), fedbr.SCAFFOLD()],
    ):
        watches = [Watch("zero"), Watch("one"), Watch("two")]
        run_package(
            [watches[0].method, methods[0], watches[1].method, methods[1], watches[2].method],
            setting,
        )
        w1, w2 = (new for _, new in watches[2].rounds[:2])
        client = 3  # in round 3 for the second time, so that all parts are there
        assert client in setting.participants(3)
        slopes, middle, last = (watch.steps[3, client][0].slopes for watch in watches)
        if isinstance(methods[1], fedbr.FedCM):
            before, fedcm = middle, last
        else:
            before, fedcm = slopes, middle
        delta = [(a - b) / (setting.lr * setting.steps) for a, b in zip(w1, w2, strict=True)]
        wanted = [alpha * g + (1 - alpha) * d for g, d in zip(before, delta, strict=True)]
        assert distance(wanted, fedcm) < TOLERANCE
        assert distance(slopes, middle) > 1e-3
        assert distance(middle, last) > 1e-3


def test_delta_travels_down_with_the_model_and_nothing_travels_up() -> None:
    plain, run = run_package([], Setting()), run_package([fedbr.FedCM()], Setting())
    assert [up for up, _ in run.bytes] == [up for up, _ in plain.bytes]
    assert [down for _, down in run.bytes][1:] == [2 * down for _, down in plain.bytes][1:]


@pytest.mark.parametrize("clients_at_once", [1, 2])
def test_with_alpha_one_it_is_fedavg_to_the_bit(clients_at_once: int) -> None:
    for setting in SETTINGS.values():
        assert_same_bits(
            run_package([fedbr.FedCM(alpha=1)], setting, clients_at_once=clients_at_once),
            run_package([], setting, clients_at_once=clients_at_once),
        )


def test_modules_of_other_methods_are_left_alone() -> None:
    assert_modules_of_others_are_left_alone(fedbr.FedCM(alpha=0.2), Setting())


@pytest.mark.parametrize(
    "bad",
    [
        {"alpha": 0},
        {"alpha": -0.1},
        {"alpha": 1.1},
        {"alpha": float("nan")},
        {"alpha": "low"},
        {"beta": 1},
    ],
)
def test_bad_parameters_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        fedbr.FedCM.model_validate(bad)
