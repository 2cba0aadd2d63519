"""Mixup a second time: batches are mixed with a permutation of themselves, inputs and labels."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
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
    TOLERANCE,
    FedAvg,
    Setting,
    distance,
    one_hot,
    world,
)

import fedbr
from fedbr.core.rng import stream


class MixupByHand(FedAvg):
    name = "mixup"

    def __init__(self, setting: Setting, alpha: float) -> None:
        super().__init__(setting)
        self.alpha = alpha

    def mix(self, x: Tensor, y: Tensor, own: np.random.Generator) -> tuple[Tensor, Tensor]:
        lam = own.beta(self.alpha, self.alpha)
        partner = own.permutation(len(x))
        mixed_x = [lam * x[i] + (1 - lam) * x[int(partner[i])] for i in range(len(x))]
        mixed_y = [lam * y[i] + (1 - lam) * y[int(partner[i])] for i in range(len(x))]
        return torch.stack(mixed_x), torch.stack(mixed_y)


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS.keys())
@pytest.mark.parametrize("alpha", [0.05, 0.2, 1.0, 5.0])
def test_final_weights_are_those_of_the_second_implementation(
    alpha: float, setting: Setting
) -> None:
    by_hand = MixupByHand(setting, alpha)
    weights = by_hand.run()
    last = [np.mean(by_hand.losses[i]) for i in setting.participants(setting.rounds)]
    for clients_at_once in (1, 2):
        run = run_package([fedbr.Mixup(alpha=alpha)], setting, clients_at_once=clients_at_once)
        assert distance(weights, final(run)) < TOLERANCE, f"clients_at_once = {clients_at_once}"
        assert run.loss[-1] == pytest.approx(
            np.mean(last), abs=TOLERANCE
        )  # of the batches as they were trained on


def test_the_default_alpha() -> None:
    assert (
        distance(MixupByHand(Setting(), 0.2).run(), final(run_package([fedbr.Mixup()], Setting())))
        < TOLERANCE
    )


def test_every_alpha_is_far_from_every_other() -> None:
    ends = [
        FedAvg(Setting()).run(),
        *(MixupByHand(Setting(), alpha).run() for alpha in (0.05, 0.2, 1.0, 5.0)),
    ]
    for one, two in itertools.combinations(ends, 2):
        assert distance(one, two) > 1e3 * TOLERANCE


@pytest.mark.parametrize("clients_at_once", [1, 2])
@pytest.mark.parametrize("alpha", [0.2, 2.0])
@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS.keys())
def test_batches_are_those_of_the_stream(
    setting: Setting, alpha: float, clients_at_once: int
) -> None:
    """Each client has one lam a step, and mixes within its own batch; inputs and soft labels by
    hand.
    """
    watch = Watch("watch")
    run_package([fedbr.Mixup(alpha=alpha), watch.method], setting, clients_at_once=clients_at_once)
    for r in range(1, setting.rounds + 1):
        for i in setting.participants(r):
            xs, ys = world()[i]
            picked = stream(setting.seed, "batches", r, i).integers(
                len(xs), size=(setting.steps, setting.batch)
            )
            rng = stream(setting.seed, "mixup", r, i)
            for k, step in enumerate(watch.steps[r, i]):
                lam, perm = rng.beta(alpha, alpha), rng.permutation(setting.batch)
                for b in range(setting.batch):
                    one, two = picked[k][b], picked[k][perm[b]]
                    assert torch.allclose(
                        step.x[b], lam * xs[one] + (1 - lam) * xs[two], rtol=0, atol=1e-14
                    )
                    wanted = lam * one_hot(ys[one]) + (1 - lam) * one_hot(ys[two])
                    assert torch.allclose(step.y[b], wanted, rtol=0, atol=1e-14)


def test_labels_are_mixed_and_still_sum_to_one() -> None:
    watch = Watch("watch")
    run_package([fedbr.Mixup(alpha=1.0), watch.method], Setting())
    labels = torch.cat([step.y for steps in watch.steps.values() for step in steps])
    assert torch.allclose(
        labels.sum(1), torch.ones(len(labels), dtype=torch.float64), rtol=0, atol=1e-14
    )
    assert int(((labels > 0) & (labels < 1)).any(1).sum()) > len(labels) / 4


def test_images_are_mixed_whole() -> None:
    """One lam for all pixels of a batch, whatever the shape of a sample."""
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(12, 1, 6, 6)), np.arange(12) % 3
    federation = fedbr.Federation.from_clients([(x[:5], y[:5]), (x[5:], y[5:])], test=(x, y))
    images: dict[int, Tensor] = {}

    class Sees(fedbr.Method):
        name = "sees"

        def on_batch(self, ctx: fedbr.ClientContext, batch: fedbr.Batch) -> fedbr.Batch:
            images.update(zip(ctx.clients.tolist(), batch.x, strict=True))
            return batch

    options: dict[str, Any] = {
        "rounds": 1,
        "local_steps": 1,
        "batch_size": 4,
        "seed": 2,
        "clients_at_once": 2,
        "dtype": "float64",
    }
    fedbr.train(federation, "mlp", [fedbr.Mixup(alpha=1.0), Sees()], hidden=(3,), **options)
    for i, own in enumerate((x[:5], x[5:])):
        batch = own[stream(2, "batches", 1, i).integers(len(own), size=(1, 4))[0]]
        draws = stream(2, "mixup", 1, i)
        lam, perm = draws.beta(1.0, 1.0), draws.permutation(4)
        assert np.allclose(
            images[i].numpy(), lam * batch + (1 - lam) * batch[perm], rtol=0, atol=1e-14
        )


def test_nothing_more_is_sent_than_the_model() -> None:
    assert run_package([fedbr.Mixup()], Setting()).bytes == run_package([], Setting()).bytes


@pytest.mark.parametrize("clients_at_once", [1, 2])
def test_with_alpha_zero_it_is_fedavg_to_the_bit(clients_at_once: int) -> None:
    for setting in SETTINGS.values():
        assert_same_bits(
            run_package([fedbr.Mixup(alpha=0)], setting, clients_at_once=clients_at_once),
            run_package([], setting, clients_at_once=clients_at_once),
        )


def test_a_batch_of_one_is_mixed_with_itself() -> None:
    setting = Setting(batch=1)
    assert (
        distance(FedAvg(setting).run(), final(run_package([fedbr.Mixup(alpha=0.5)], setting)))
        < TOLERANCE
    )


@pytest.mark.parametrize(
    "bad",
    [
        {"alpha": -0.1},
        {"alpha": float("nan")},
        {"alpha": float("inf")},
        {"alpha": "half"},
        {"beta": 1},
    ],
)
def test_bad_parameters_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        fedbr.Mixup.model_validate(bad)
