"""The gradient of a chain of linear layers, written out: autograd's operations without autograd, to the bit.

Several clients of a small MLP spend a fifth of a step in autograd's bookkeeping and in writing down a gradient only to
add it to the weights. If no method adds to the cross-entropy, its gradient is known; if none edits it, nobody sees it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor, nn

from .model import CohortModel

aten = torch.ops.aten


class Chain:
    """Linear layers, some with a ReLU after them; weights are those of C clients."""

    def __init__(self, layers: Sequence[tuple[Tensor, Tensor, bool]]) -> None:
        # weight [C, out, in], bias [C, out] and whether a ReLU follows; views that see the weights change
        self.layers = [(weight.detach(), bias.detach().unsqueeze(2), relu) for weight, bias, relu in layers]
        self.exact: dict[torch.Size, list[bool]] = {}  # shape of the samples -> whether each layer's step may be fused

    @torch.no_grad()
    def gradient(self, x: Tensor, y: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Return the cross-entropy [C] and its gradient for each weight and bias; x [C, B, ...], y [C, B, K]."""
        cross_entropy, layers = self._differentiate(x, y, 1.0)
        return cross_entropy, [g for a, d in layers for g in (torch.bmm(d, a), d.sum(dim=2))]

    @torch.inference_mode()
    def step(self, x: Tensor, y: Tensor, seed: float) -> Tensor:
        """Return the cross-entropy; add ``seed`` times its gradient, which takes no memory, to weights and biases."""
        cross_entropy, layers = self._differentiate(x, y, seed)
        if x.shape not in self.exact:
            self.exact[x.shape] = [_adds_the_product(d, a) for a, d in layers]
        for (weight, bias, _), (a, d), exact in zip(self.layers, layers, self.exact[x.shape], strict=True):
            if exact:
                weight.baddbmm_(d, a)
            else:
                weight += torch.bmm(d, a)
            bias += d.sum(dim=2, keepdim=True)
        return cross_entropy

    def _differentiate(self, x: Tensor, y: Tensor, seed: float) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
        """Return the cross-entropy and for each layer what went in, [C, B, in], and the gradient of what came out."""
        passed = [x.flatten(2).mT]  # what goes into each layer, and what leaves the last: [C, features, B]
        for weight, bias, relu in self.layers:
            z = torch.baddbmm(bias, weight, passed[-1])
            # Turned as autograd's: so it lies in memory, and sums round, also where a dimension has size one.
            passed.append(z.mT.relu().mT if relu else z)
        log_p = passed[-1].log_softmax(dim=-2)
        labels = y.mT.expand_as(log_p).contiguous()
        cross_entropy = (log_p * labels).sum(dim=(-2, -1)) / -log_p.shape[-1]
        share = labels * _quotient(seed, -log_p.shape[-1], log_p.dtype)
        d = aten._log_softmax_backward_data(share, log_p, -2, log_p.dtype)  # of what left the layer
        found: list[tuple[Tensor, Tensor]] = []
        for i, (weight, _, relu) in reversed([*enumerate(self.layers)]):
            if relu:
                d = aten.threshold_backward(d.mT, passed[i + 1].mT, 0).mT
            found.append((passed[i].mT, d))
            if i:
                d = torch.bmm(weight.mT, d)
        return cross_entropy, found[::-1]


@cache
def _quotient(a: float, b: float, dtype: torch.dtype) -> float:
    """Return a / b, rounded as tensors round it."""
    return (torch.tensor(a, dtype=dtype) / b).item()


def _adds_the_product(d: Tensor, a: Tensor) -> bool:
    """Say whether baddbmm_ gives the bits of a product and a sum: a matter of the library, and of the shapes."""
    return _adds(d.shape, d.stride(), a.shape, a.stride(), d.dtype, d.device)


@cache
def _adds(
    d_shape: torch.Size,
    d_stride: tuple[int, ...],
    a_shape: torch.Size,
    a_stride: tuple[int, ...],
    dtype: torch.dtype,
    device: torch.device,
) -> bool:
    d, a = (
        torch.empty_strided(shape, stride, dtype=dtype, device=device).copy_(_numbers(shape, dtype))
        for shape, stride in ((d_shape, d_stride), (a_shape, a_stride))
    )
    weight = _numbers(torch.Size((*d_shape[:2], a_shape[2])), dtype).to(device)
    expected = weight + torch.bmm(d, a)
    return torch.equal(weight.baddbmm_(d, a), expected)


def _numbers(shape: torch.Size, dtype: torch.dtype) -> Tensor:
    return (torch.arange(shape.numel(), dtype=torch.float64) ** 2).sin().to(dtype).view(shape)


def chain(model: CohortModel) -> Chain | None:
    """Return the models of several clients as a chain, if they are one and all of it trains."""
    if model.size == 1:  # the plain module, as anybody would write it
        return None
    flat, layers = model.sample_dims == 1, list[tuple[Tensor, Tensor, bool]]()
    for layer, weights in (*model.plans["encoder"], *model.plans["classifier"]):
        kind = type(layer)
        if type(layer) is nn.Flatten and (layer.start_dim, layer.end_dim) == (1, -1):
            flat = True
        elif kind is nn.Linear and flat and "bias" in weights:
            layers.append((weights["weight"], weights["bias"], False))
        elif kind is nn.ReLU and layers:
            layers[-1] = (*layers[-1][:2], True)
        elif kind is not nn.Identity:
            return None
    found = [t for weight, bias, _ in layers for t in (weight, bias)]
    trained = model.groups["model"].values()
    whole = len(found) == len(trained) and all(a is b for a, b in zip(found, trained, strict=True))
    return Chain(layers) if whole else None
