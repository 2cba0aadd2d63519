"""The gradient that is written out is autograd's, to the bit, and is used only where it is the whole gradient."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

import fedbr
from fedbr.core import client
from fedbr.core.chain import Chain, _adds_the_product, chain
from fedbr.core.method import Batch, ClientContext, soft_cross_entropy
from fedbr.core.model import CohortModel, FedModel, Output


def cohort(model: FedModel, size: int = 3, dims: int = 1) -> CohortModel:
    weights = {k: v.clone() for k, v in model.weights().items()}
    local = CohortModel(model, weights, size, dims)
    with torch.no_grad():  # clients that have moved apart
        for i, p in enumerate(local.groups["model"].values()):
            p += 0.1 * torch.linspace(-1 - i, 1 + i, p.numel(), dtype=p.dtype).sin().view_as(p)
    return local


def mlp(*sizes: int, shape: tuple[int, ...] = ()) -> FedModel:
    layers: list[nn.Module] = [nn.Flatten()] if shape else []
    for a, b in pairwise(sizes[:-1]):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return FedModel(nn.Sequential(*layers), sizes[-2], sizes[-1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("samples", [1, 7, 50, 64])
@pytest.mark.parametrize("sizes", [(12, 5, 4), (12, 9, 8, 7, 3), (12, 64, 10), (12, 64, 1, 3), (12, 200, 200, 62)])
@pytest.mark.parametrize("shape", [(), (3, 2, 2)])
def test_to_the_bit(dtype: torch.dtype, samples: int, sizes: tuple[int, ...], shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    local = cohort(mlp(*sizes, shape=shape).to(dtype), dims=len(shape) or 1)
    x = torch.randn(3, samples, *(shape or (12,)), dtype=dtype)
    y = torch.rand(3, samples, sizes[-1], dtype=dtype).softmax(-1)  # soft labels, as Mixup makes them
    y[0] = torch.eye(sizes[-1], dtype=dtype)[torch.arange(samples) % sizes[-1]]
    before = x.clone(), y.clone()
    loss = soft_cross_entropy(local(x).logits, y)
    expected = torch.autograd.grad(loss.sum(), list(local.groups["model"].values()))
    known = chain(local)
    assert isinstance(known, Chain)
    cross_entropy, gradient = known.gradient(x, y)
    assert torch.equal(cross_entropy, loss)
    assert [g.shape for g in gradient] == [g.shape for g in expected]
    assert all(map(torch.equal, gradient, expected))
    assert torch.equal(x, before[0])
    assert torch.equal(y, before[1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("samples", [1, 7, 64, 300, 1000])  # products over so many are not added at once
@pytest.mark.parametrize("sizes", [(12, 5, 4), (12, 64, 1, 3), (12, 200, 200, 62)])
def test_a_step_adds_autograds_gradient_to_the_bit(dtype: torch.dtype, samples: int, sizes: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    local = cohort(mlp(*sizes).to(dtype))
    weights = list(local.groups["model"].values())
    x = torch.randn(3, samples, 12, dtype=dtype)
    y = torch.rand(3, samples, sizes[-1], dtype=dtype).softmax(-1)
    before = x.clone(), y.clone()
    loss = soft_cross_entropy(local(x).logits, y)
    moves = torch.autograd.grad(loss, weights, loss.new_full((3,), -0.03))
    expected = [(w + move).detach() for w, move in zip(weights, moves, strict=True)]
    known = chain(local)
    assert known is not None
    assert torch.equal(known.step(x, y, -0.03), loss)
    assert all(map(torch.equal, weights, expected))
    assert torch.equal(x, before[0])
    assert torch.equal(y, before[1])


@pytest.mark.parametrize("samples", [8, 64, 100, 256, 1000])
def test_a_product_is_added_in_place_only_where_that_is_product_and_sum(samples: int) -> None:
    d, a, weight = (torch.randn(s, generator=torch.Generator().manual_seed(1)) for s in (
        (3, 20, samples), (3, samples, 30), (3, 20, 30)))  # fmt: skip
    same = torch.equal(weight + torch.bmm(d, a), weight.baddbmm(d, a))
    assert _adds_the_product(d, a) is same
    assert _adds_the_product(d, a.mT.contiguous().mT) is torch.equal(
        weight + torch.bmm(d, a.mT.contiguous().mT), weight.baddbmm(d, a.mT.contiguous().mT)
    )


def frozen_bias() -> FedModel:
    model = mlp(12, 5, 4)
    model.classifier.bias.requires_grad_(False)  # type: ignore[union-attr]
    return model


NOT_CHAINS: dict[str, FedModel] = {
    "another layer": FedModel(nn.Sequential(nn.Linear(12, 5), nn.Tanh()), 5, 4),
    "a norm": FedModel(nn.Sequential(nn.Linear(12, 5), nn.LayerNorm(5)), 5, 4),
    "no bias": FedModel(nn.Sequential(nn.Linear(12, 5, bias=False), nn.ReLU()), 5, 4),
    "a ReLU first": FedModel(nn.Sequential(nn.ReLU(), nn.Linear(12, 5)), 5, 4),
    "weights that stay": frozen_bias(),
    "a module of its own": FedModel(nn.Sequential(fedbr.core.stacked.Residual(nn.Linear(12, 12))), 12, 4),
    "a flattening of something else": FedModel(nn.Sequential(nn.Flatten(2), nn.Linear(12, 5)), 5, 4),
}


@pytest.mark.parametrize("name", NOT_CHAINS)
def test_what_is_no_chain_is_left_to_autograd(name: str) -> None:
    assert chain(cohort(NOT_CHAINS[name])) is None


def test_images_that_are_not_flattened_and_single_clients_are_left_to_autograd() -> None:
    assert chain(cohort(mlp(12, 5, 4), dims=3)) is None
    assert chain(cohort(mlp(12, 5, 4), size=1)) is None


class Nothing(fedbr.Method):
    name: ClassVar[str] = "nothing"

    def loss(self, ctx: ClientContext, batch: Batch, out: Output) -> Tensor | None:
        return None


@pytest.mark.parametrize("more", [[], [fedbr.Mixup()], [fedbr.SCAFFOLD()], [fedbr.FedCM(), fedbr.Mixup()]], ids=str)
@pytest.mark.parametrize(
    "options", [{}, {"momentum": 0.9, "weight_decay": 0.01}, {"clients_per_round": 3}, {"batch_size": 300}], ids=str
)
def test_runs_are_the_same_to_the_bit(
    federation: fedbr.Federation, more: list[fedbr.Method], options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[object] = []
    monkeypatch.setattr(client, "chain", lambda local: made.append(chain(local)) or made[-1])
    short = {"rounds": 3, "local_steps": 4, "batch_size": 8, "lr": 0.05, "hidden": (7, 6), "cohort": 2} | options
    written = fedbr.train(federation, "mlp", more, **short)
    assert made
    assert any(made)
    made.clear()
    derived = fedbr.train(federation, "mlp", [*more, Nothing()], **short)  # a method that may add to the loss
    assert not made
    assert written.loss == derived.loss
    weights = [list(run.model.state_dict().values()) for run in (written, derived)]
    assert all(map(torch.equal, *weights))
