"""Optimisers step as torch's do, and another one is an entry in a table."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

import fedbr
from fedbr.core.optim import OPTIMIZERS, SGD, Gradient, Optimizer
from fedbr.core.spec import Spec
from fedbr.recipe.schema import TrainConfig
from fedbr.util.errors import InputError
from fedbr.util.validation import validate
from playing import Play


def spec(**more: Any) -> Spec:
    return Spec((1,), 10, 1, 1, 5, 32, 0.1, **more)


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize(("momentum", "nesterov"), [(0.0, False), (0.9, False), (0.9, True)])
def test_the_step_is_that_of_torchs_sgd_to_the_bit(
    momentum: float, weight_decay: float, nesterov: bool
) -> None:
    generator = torch.Generator().manual_seed(0)
    theirs = [
        torch.randn(shape, generator=generator, requires_grad=True) for shape in ((5, 3), (4,))
    ]
    ours = [p.detach().clone().requires_grad_() for p in theirs]
    settings = {"momentum": momentum, "weight_decay": weight_decay, "nesterov": nesterov}
    torchs = torch.optim.SGD(theirs, lr=0.1, foreach=True, **settings)  # type: ignore[arg-type]
    own = SGD(ours, spec(**settings))
    for _ in range(6):
        grads = [torch.randn(p.shape, generator=generator) for p in theirs]
        for p, g in zip(theirs, grads, strict=True):
            p.grad = g.clone()
        torchs.step()
        kept = [g.clone() for g in grads]
        own.step(Gradient(ours, grads))
        assert all(map(torch.equal, theirs, ours))
        assert all(map(torch.equal, kept, grads))


def test_reach_is_how_far_a_constant_gradient_carries() -> None:
    for settings in ({}, {"momentum": 0.9}, {"momentum": 0.9, "nesterov": True}):
        weights = [torch.zeros(1, dtype=torch.float64)]
        optimizer = SGD(weights, spec(**settings))
        for _ in range(5):
            optimizer.step(Gradient(weights, [-torch.ones(1, dtype=torch.float64)]))
        assert float(weights[0]) == pytest.approx(spec(**settings).reach)


@pytest.mark.parametrize("clients_at_once", [1, 3])
@pytest.mark.parametrize("methods", [[], [fedbr.FedProx()]], ids=["fedavg", "fedprox"])
def test_an_optimizer_from_outside_is_one_entry(
    federation: fedbr.Federation,
    clients_at_once: int,
    methods: list[fedbr.Method],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class SignSGD(Optimizer):
        """Steps of one length, with a count for each weight."""

        def __init__(self, params: Any, spec: Spec) -> None:
            super().__init__(params, spec)
            self.steps = [torch.zeros_like(p) for p in self.params]

        def update(self, grads: list[Tensor]) -> None:
            for p, g, count in zip(self.params, grads, self.steps, strict=True):
                count += 1
                p -= self.spec.lr / count * g.sign()

    monkeypatch.setitem(OPTIMIZERS, "sign", SignSGD)
    settings: dict[str, Any] = {"clients_at_once": clients_at_once, "local_steps": 3, "lr": 0.05}
    start = Play(federation, methods, **settings)
    plain = Play(federation, methods, **settings).run(last=1)
    run = Play(federation, methods, optimizer="sign", **settings).run(last=1)
    assert not run.same(plain, last=1)
    longest = 0.05 * (1 + 1 / 2 + 1 / 3)
    for p, q in zip(run.models(), start.models(), strict=True):
        assert 0 < float((p - q).abs().max()) <= longest + 1e-12


def test_settings_are_checked() -> None:
    with pytest.raises(fedbr.InputError, match=r"^train.optimizer = 'sdg' .* did you mean 'sgd'"):
        validate(TrainConfig, {"optimizer": "sdg"}, "train")
    with pytest.raises(fedbr.InputError, match=r"^train.nesterov = true: expected train.momentum"):
        validate(TrainConfig, {"nesterov": True}, "train")
    assert TrainConfig(nesterov=True, momentum=0.5).nesterov


def test_methods_that_reckon_with_steps_of_sgd_refuse_other_optimizers() -> None:
    facts = Spec((3,), 2, 2, 2, 5, 4, 0.1)
    assert facts.reach == 0.5
    with pytest.raises(InputError, match=r"train.optimizer = 'adam': .* expected 'sgd'"):
        _ = replace(facts, optimizer="adam").reach
