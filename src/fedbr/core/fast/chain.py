"""Chains of linear layers and ReLUs of several clients.

For autograd a chain is one operation, whose gradient is written out.

Layer by layer, several clients of a small MLP would spend a fifth of a step in autograd's
bookkeeping, in moving what could stay where it is, and in writing down a gradient only to add it
to the weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from ..device import autocasts
from .matmul import add_product, multiply

aten = torch.ops.aten
# Weight [C, out, in], bias [C, out], and whether a ReLU follows.
Layer = tuple[Tensor, Tensor, bool]
# Of each layer what went in, [C, in, B], and the gradient of what came out, [C, out, B]: together
# its gradient.
Factors = list[tuple[Tensor, Tensor]]
Deferred = list[tuple["Chain", Factors]]  # gradients that are known and not written down


class Chain:
    """Linear layers of C clients, each with or without a ReLU behind it."""

    def __init__(self, layers: Sequence[Layer]) -> None:
        self.layers = list(layers)
        self.weights = [t for weight, bias, _ in layers for t in (weight, bias)]
        # Where factors go in place of a gradient for autograd; None: autograd gets the gradient.
        self.deferred: Deferred | None = None

    def __call__(self, x: Tensor) -> Tensor:
        """Run [C, ..., in]."""
        if x.dim() != 3:
            return self(x.flatten(1, -2)).view(*x.shape[:-1], -1)
        # A method that makes x a leaf needs the gradient at x, perhaps that gradient's own, which
        # autograd computes with less work.
        needs_gradient_at_x = x.requires_grad and x.is_leaf
        # In mixed precision autograd knows what to convert, and torch.func cannot see into
        # operations like ours.
        mixed, functorch = autocasts(x.device), torch._C._are_functorch_transforms_active()
        if needs_gradient_at_x or mixed or functorch:
            return _layer_by_layer(x, self.weights, self.layers)
        if not torch.is_grad_enabled():
            return self._forward(x.mT)[-1].mT
        out: Tensor = _Apply.apply(self, x, *self.weights)  # type: ignore[no-untyped-call]
        return out.mT

    @torch.inference_mode()
    def cross_entropy(self, x: Tensor, y: Tensor) -> Trace:
        """Compute the cross-entropy, and keep what its gradient needs.

        Args:
            x: the samples, [C, B, ...].
            y: their labels, [C, B, K].
        """
        passed = self._forward(x.flatten(2).mT)
        log_p = passed[-1].log_softmax(dim=-2)
        labels = y.mT.to(log_p.dtype).expand_as(log_p).contiguous()
        value = (log_p * labels).sum(dim=(-2, -1)) / -log_p.shape[-1]
        return Trace(self, passed, log_p, labels, value)

    @torch.inference_mode()
    def add(self, factors: Factors) -> None:
        """Add the gradient, which itself takes no memory, to the weights."""
        for (weight, bias, _), (a, d) in zip(self.layers, factors, strict=True):
            add_product(weight, d, a.mT)
            bias += d.sum(dim=2)

    @torch.no_grad()
    def gradient(self, factors: Factors) -> list[Tensor]:
        """Return the gradient of ``weights``."""
        values = []
        for a, d in factors:
            values += [multiply(d, a.mT), d.sum(dim=2)]
        return values

    def _forward(self, x: Tensor) -> list[Tensor]:
        """Return what goes into each layer, and what leaves the last: [C, features, B]."""
        passed = [x]
        for weight, bias, relu in self.layers:
            z = multiply(weight, passed[-1], bias.unsqueeze(2))
            passed.append(z.relu_() if relu else z)
        return passed

    def _backward(
        self, passed: Sequence[Tensor], d: Tensor, whole: bool
    ) -> tuple[Factors, Tensor | None]:
        """Go back from the gradient of the output.

        Args:
            passed: what ``_forward`` returned; without a ReLU at the end the last is not needed.
            d: the gradient of the output.
            whole: whether to go all the way to x.

        Returns:
            The factors of each layer, and the gradient at x, if it is wanted.
        """
        factors: Factors = []
        may_overwrite = False  # d belongs to the caller at first
        for i in range(len(self.layers) - 1, -1, -1):
            weight, _, relu = self.layers[i]
            if relu:
                out = d if may_overwrite else torch.empty_like(d)
                d = aten.threshold_backward.grad_input(d, passed[i + 1], 0, grad_input=out)
            factors.append((passed[i], d))
            if i or whole:
                d, may_overwrite = multiply(weight.mT, d), True
        return factors[::-1], d if whole else None


@dataclass(frozen=True)
class Trace:
    """A cross-entropy, [C], and what its gradient is made of."""

    chain: Chain
    passed: list[Tensor]  # what went into each layer, and what left the last
    log_p: Tensor
    labels: Tensor
    value: Tensor

    @torch.inference_mode()
    def backward(self, scale: float) -> Factors:
        """Return what gives ``scale`` times the gradient."""
        log_p = self.log_p
        share = self.labels * _quotient(scale, -log_p.shape[-1], log_p.dtype)
        d = aten._log_softmax_backward_data(share, log_p, -2, log_p.dtype)
        return self.chain._backward(self.passed, d, False)[0]


class _Apply(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, chain: Chain, x: Tensor, *weights: Tensor) -> Tensor:
        _, *inside, out = chain._forward(x.mT)
        ctx.chain = chain
        # Without a ReLU nobody needs the output again, and the next layer may work in its place.
        ends_in_relu = chain.layers[-1][2]
        if ends_in_relu:
            inside.append(out)
        ctx.save_for_backward(x, *weights, *inside)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        chain: Chain = ctx.chain
        x, *rest = ctx.saved_tensors
        weights, passed = rest[: len(chain.weights)], rest[len(chain.weights) :]
        if torch.is_grad_enabled():  # create_graph: this gradient needs a gradient of its own
            again = [t for t in (x, *weights) if t.requires_grad]
            out = _layer_by_layer(x, weights, chain.layers)
            slopes = torch.autograd.grad(out, again, grad.mT, create_graph=True)
            return None, *(slopes if x.requires_grad else (None, *slopes))
        factors, d = chain._backward([x.mT, *passed], grad, ctx.needs_input_grad[1])
        if chain.deferred is None:
            grads: Sequence[Tensor | None] = chain.gradient(factors)
        else:
            chain.deferred.append((chain, factors))
            grads = [None] * len(weights)
        return None, None if d is None else d.mT, *grads


def _layer_by_layer(x: Tensor, weights: Sequence[Tensor], layers: Sequence[Layer]) -> Tensor:
    for weight, bias, (*_, relu) in zip(weights[::2], weights[1::2], layers, strict=True):
        x = linear(x, weight, bias)
        if relu:
            x = x.relu()
    return x


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Run [C, B, in], each client with its own weights."""
    # Weights first: their gradient then lies in memory as they do (ten clients of an MLP: 0.73
    # of the time of a step).
    return torch.baddbmm(bias.unsqueeze(2), weight, x.mT).mT


@cache
def _quotient(a: float, b: float, dtype: torch.dtype) -> float:
    """Return a / b, rounded as tensors round it."""
    return (torch.tensor(a, dtype=dtype, device="cpu") / b).item()
