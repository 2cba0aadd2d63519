"""Chains of layers give what layers give one by one, and the gradient that is written out is
autograd's.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

import fedbr
from fedbr.core.fast import Block
from fedbr.core.fast.chain import Chain
from fedbr.core.fast.selfcheck import find_obstacle
from fedbr.core.method import Batch, ClientContext, soft_cross_entropy
from fedbr.core.model import FedModel, Output


def clients_at_once(model: FedModel, size: int = 3, dims: int = 1) -> Block:
    weights = {k: v.clone() for k, v in model.weights().items()}
    local = Block(model, weights, size, dims)
    with torch.no_grad():  # clients that have moved apart
        for i, p in enumerate(local.groups["model"].values()):
            p += 0.1 * torch.linspace(-1 - i, 1 + i, p.numel(), dtype=p.dtype).sin().view_as(p)
    return local


def mlp(*sizes: int, shape: tuple[int, ...] = ()) -> FedModel:
    layers: list[nn.Module] = [nn.Flatten()] if shape else []
    for a, b in pairwise(sizes[:-1]):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return FedModel(nn.Sequential(*layers), sizes[-2], sizes[-1])


def by_hand(local: Block, x: Tensor) -> Tensor:
    """Run client after client, each layer as torch has it."""
    made = []
    for client in range(local.size):
        z, layers = x[client].flatten(1), list(local.groups["model"].values())
        for weight, bias in zip(layers[::2], layers[1::2], strict=True):
            z = nn.functional.linear(z, weight[client], bias[client])
            z = z if weight is layers[-2] else z.relu()
        made.append(z)
    return torch.stack(made)


def samples(
    count: int, sizes: tuple[int, ...], shape: tuple[int, ...], dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    x = torch.randn(3, count, *(shape or (12,)), dtype=dtype)
    y = torch.rand(3, count, sizes[-1], dtype=dtype).softmax(-1)  # soft labels, as Mixup makes them
    y[0] = torch.eye(sizes[-1], dtype=dtype)[torch.arange(count) % sizes[-1]]
    return x, y


SIZES = [(12, 5, 4), (12, 9, 8, 7, 3), (12, 64, 10), (12, 64, 1, 3), (12, 200, 200, 62)]


@pytest.mark.parametrize("count", [1, 7, 64])
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("shape", [(), (3, 2, 2)])
def test_output_and_gradient_are_those_of_client_after_client(
    count: int, sizes: tuple[int, ...], shape: tuple[int, ...]
) -> None:
    torch.manual_seed(0)
    local = clients_at_once(mlp(*sizes, shape=shape).double(), dims=len(shape) or 1)
    weights = list(local.groups["model"].values())
    x, y = samples(count, sizes, shape, torch.float64)
    before = x.clone()
    expected = by_hand(local, x)
    logits = local(x).logits
    torch.testing.assert_close(logits, expected)
    for loss in (
        lambda z: soft_cross_entropy(z, y),
        lambda z: z.square().sum(dim=(1, 2)),
        lambda z: z.sum(dim=(1, 2)),
    ):
        wanted = torch.autograd.grad(
            loss(expected), weights, torch.full((3,), -0.3), retain_graph=True
        )
        result = torch.autograd.grad(
            loss(logits), weights, torch.full((3,), -0.3), retain_graph=True
        )
        torch.testing.assert_close(result, wanted)
        grads, _ = local._derive(loss(local(x).logits), "model", -0.3)
        assert grads == [None] * len(weights)  # the chains have it all
        written = local.gradient(loss(local(x).logits)).tensors()
        torch.testing.assert_close([-0.3 * g for g in written], list(wanted))
        moved = [(w + g).detach() for w, g in zip(weights, wanted, strict=True)]
        stay = [w.detach().clone() for w in weights]
        local.gradient(loss(local(x).logits)).add(-0.3)
        torch.testing.assert_close([w.detach() for w in weights], moved)
        with torch.no_grad():
            torch._foreach_copy_(weights, stay)
        logits, expected = local(x).logits, by_hand(local, x)
    assert torch.equal(x, before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("count", [1, 7, 50, 64, 300])
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("shape", [(), (3, 2, 2)])
@pytest.mark.parametrize("scale", [1.0, -0.03])
def test_the_cross_entropy_without_autograd_has_autograds_bits(
    dtype: torch.dtype, count: int, sizes: tuple[int, ...], shape: tuple[int, ...], scale: float
) -> None:
    torch.manual_seed(0)
    local = clients_at_once(mlp(*sizes, shape=shape).to(dtype), dims=len(shape) or 1)
    weights = list(local.groups["model"].values())
    x, y = samples(count, sizes, shape, dtype)
    before = x.clone(), y.clone()
    start = [w.detach().clone() for w in weights]
    losses, moved = [], []
    for looked_at in (True, False):
        with torch.no_grad():
            torch._foreach_copy_(weights, start)
        outputs = local.forward(x, looked_at=looked_at)
        assert (outputs.seen is None) is not looked_at
        loss = local.cross_entropy(outputs, y)
        losses.append(loss.detach().clone())
        local.gradient(loss).add(scale)
        moved.append([w.detach().clone() for w in weights])
    assert torch.equal(*losses)
    assert all(map(torch.equal, *moved))
    written = []
    for looked_at in (True, False):
        loss = local.cross_entropy(local.forward(x, looked_at=looked_at), y)
        written.append(local.gradient(loss).tensors())
    assert all(map(torch.equal, *written))
    assert torch.equal(x, before[0])
    assert torch.equal(y, before[1])


def projector(dtype: torch.dtype = torch.float64) -> Block:
    model = mlp(12, 5, 4)
    model.extras["more"] = nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 3))
    return clients_at_once(model.to(dtype))


def test_a_loss_may_use_weights_directly_and_run_the_model_twice() -> None:
    torch.manual_seed(0)
    local = clients_at_once(mlp(12, 5, 4).double())
    weights = list(local.groups["model"].values())
    x, other = torch.randn(2, 3, 8, 12, dtype=torch.float64)

    def loss(run: Any) -> Tensor:
        direct = sum(w.square().flatten(1).sum(dim=1) for w in weights[:2])
        return (run(x).square() + run(other).exp()).sum(dim=(1, 2)) + direct

    wanted = torch.autograd.grad(loss(lambda z: by_hand(local, z)), weights, torch.full((3,), 2.0))
    grads, _ = local._derive(loss(lambda z: local(z).logits), "model", 2.0)
    assert [g is None for g in grads] == [False, False, True, True]
    written = local.gradient(loss(lambda z: local(z).logits)).tensors()
    torch.testing.assert_close([2.0 * g for g in written], list(wanted))
    moved = [(w + g).detach() for w, g in zip(weights, wanted, strict=True)]
    local.gradient(loss(lambda z: local(z).logits)).add(2.0)
    torch.testing.assert_close([w.detach() for w in weights], moved)


def test_what_no_loss_uses_stays() -> None:
    local = clients_at_once(mlp(12, 5, 4))
    weights = list(local.groups["model"].values())
    loss = local(torch.randn(3, 2, 12)).features.sum(dim=(1, 2))
    whole = local.gradient(loss).tensors()
    assert [bool(g.any()) for g in whole] == [True, True, False, False]
    before = [w.detach().clone() for w in weights]
    local.gradient(local(torch.randn(3, 2, 12)).features.sum(dim=(1, 2))).add(-0.1)
    stays = [torch.equal(w, old) for w, old in zip(weights, before, strict=True)]
    assert stays == [False, False, True, True]


def test_the_gradient_of_a_group_costs_no_other_group_anything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch.manual_seed(0)
    written, gradient = list[int](), Chain.gradient
    monkeypatch.setattr(
        Chain, "gradient", lambda chain, factors: written.append(1) or gradient(chain, factors)
    )
    local = projector()
    x = torch.randn(3, 8, 12, dtype=torch.float64)
    shown = local.extra("more", local(x).features)
    for group, length in (("model", 1), ("more", 2)):  # the classifier is not on the way
        grads, deferred = local._derive(shown.square().sum(dim=(1, 2)), group, 1.0)
        assert [len(chain.layers) for chain, _ in deferred] == [length]
        assert set(grads) == {None}
        shown = local.extra("more", local(x).features)
    assert all(chain.deferred is None for _, chain in local.chains)
    assert not written
    # Whoever asks autograd directly gets an answer, too.
    assert all(
        g.any() for g in torch.autograd.grad(shown.sum(), list(local.groups["more"].values()))
    )
    assert written


def test_after_a_failure_nothing_is_deferred() -> None:
    local = clients_at_once(mlp(12, 5, 4))
    with pytest.raises(RuntimeError, match="grad"):
        local.gradient(torch.zeros(3)).tensors()
    assert all(chain.deferred is None for _, chain in local.chains)


def test_the_gradient_has_a_gradient() -> None:
    torch.manual_seed(0)
    local = projector()
    run = local.chains[-1][1]
    x = torch.randn(3, 4, 5, dtype=torch.float64, requires_grad=True)

    def of(x: Tensor, *weights: Tensor) -> Tensor:  # x is no leaf inside
        return Chain([(weights[0], weights[1], True), (weights[2], weights[3], False)])(x * 1)

    weights = [w.detach().requires_grad_() for w in run.weights]
    assert torch.autograd.gradcheck(of, (x, *weights))
    assert torch.autograd.gradgradcheck(of, (x, *weights))
    with torch.no_grad():
        torch.testing.assert_close(of(x, *weights), run(x))
    slope = torch.autograd.grad(
        of(x.detach(), *weights).square().sum(), weights, create_graph=True
    )  # x is constant
    assert all(s.requires_grad for s in slope)


def test_weights_that_changed_in_between_are_noticed() -> None:
    local = projector()
    loss = local.extra("more", torch.randn(3, 4, 5, dtype=torch.float64)).sum(dim=(1, 2))
    earlier = local.gradient(loss, "more")
    loss = local.extra("more", torch.randn(3, 4, 5, dtype=torch.float64)).sum(dim=(1, 2))
    earlier.add(-0.3)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        local.gradient(loss, "more").tensors()


@pytest.mark.parametrize(
    "layer",
    [nn.LeakyReLU(0.2, inplace=True), nn.SiLU(inplace=True), nn.ReLU(inplace=True)],
    ids=str,
)
def test_a_layer_behind_may_work_in_place(layer: nn.Module) -> None:
    model = FedModel(
        nn.Sequential(nn.Linear(12, 6), nn.ReLU(), nn.Linear(6, 5), layer), 5, 4
    ).double()
    assert find_obstacle(model.encoder, torch.randn(4, 12, dtype=torch.float64)) is None


def test_tokens_pass_as_samples_do() -> None:
    local = projector()
    z = torch.randn(3, 4, 7, 5, dtype=torch.float64)
    torch.testing.assert_close(local.extra("more", z)[:, :, 2], local.extra("more", z[:, :, 2]))


def test_mixed_precision_is_left_to_autograd() -> None:
    local = projector(torch.float32)
    with torch.autocast("cpu", torch.float16):
        out = local.extra("more", torch.randn(3, 4, 5))
    assert out.dtype == torch.float16
    assert "_Apply" not in str(out.grad_fn.next_functions)  # type: ignore[union-attr]
    grads, deferred = local._derive(out.float().sum(dim=(1, 2)), "more", 1.0)
    assert deferred == []
    assert all(g is not None and g.dtype == torch.float32 for g in grads)


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
    "a module of its own": FedModel(
        nn.Sequential(fedbr.core.fast.stacked.Residual(nn.Linear(12, 12))), 12, 4
    ),
    "a flattening of something else": FedModel(
        nn.Sequential(nn.Flatten(2), nn.Linear(12, 5)), 5, 4
    ),
}


@pytest.mark.parametrize("name", NOT_CHAINS)
def test_what_is_no_chain_is_left_to_autograd(name: str) -> None:
    assert clients_at_once(NOT_CHAINS[name]).as_chain() is None


def test_images_that_are_not_flattened_and_single_clients_are_left_to_autograd() -> None:
    assert clients_at_once(mlp(12, 5, 4), dims=3).as_chain() is None
    assert clients_at_once(mlp(12, 5, 4), size=1).as_chain() is None


class Nothing(fedbr.Method):
    name: ClassVar[str] = "nothing"

    def loss(self, ctx: ClientContext, batch: Batch, out: Output) -> Tensor | None:
        return None


@pytest.mark.parametrize(
    "more", [[], [fedbr.Mixup()], [fedbr.SCAFFOLD()], [fedbr.FedCM(), fedbr.Mixup()]], ids=str
)
@pytest.mark.parametrize(
    "options",
    [{}, {"momentum": 0.9, "weight_decay": 0.01}, {"clients_per_round": 3}, {"batch_size": 300}],
    ids=str,
)
def test_runs_are_the_same_to_the_bit(
    federation: fedbr.Federation,
    more: list[fedbr.Method],
    options: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    followed: list[Chain] = []
    cross_entropy = Chain.cross_entropy
    monkeypatch.setattr(
        Chain,
        "cross_entropy",
        lambda chain, *given: followed.append(chain) or cross_entropy(chain, *given),
    )
    short = {
        "rounds": 3,
        "local_steps": 4,
        "batch_size": 8,
        "lr": 0.05,
        "hidden": (7, 6),
        "clients_at_once": 2,
    } | options
    written = fedbr.train(federation, "mlp", more, **short)
    assert followed
    followed.clear()
    derived = fedbr.train(
        federation, "mlp", [*more, Nothing()], **short
    )  # a method that may add to the loss
    assert not followed
    assert written.loss == derived.loss
    weights = [list(run.model.state_dict().values()) for run in (written, derived)]
    assert all(map(torch.equal, *weights))
