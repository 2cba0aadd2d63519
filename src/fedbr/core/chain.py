"""The gradient of a chain of linear layers, written out: autograd's operations without autograd, to the bit.

Several clients of a small MLP spend a tenth of a step or more in autograd's bookkeeping. If no method adds to the
cross-entropy, its gradient is known.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from .model import CohortModel

aten = torch.ops.aten


class Chain:
    """Linear layers, some with a ReLU after them; weights are those of C clients."""

    def __init__(self, layers: Sequence[tuple[Tensor, Tensor, bool]]) -> None:
        # weight [C, out, in], bias [C, out] and whether a ReLU follows; views that see the weights change
        self.layers = [(weight.detach(), bias.detach().unsqueeze(2), relu) for weight, bias, relu in layers]

    @torch.no_grad()
    def __call__(self, x: Tensor, y: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Return the cross-entropy [C] and its gradient for each weight and bias; x [C, B, ...], y [C, B, K]."""
        passed = [x.flatten(2).mT]  # what goes into each layer, and what leaves the last: [C, features, B]
        for weight, bias, relu in self.layers:
            z = torch.baddbmm(bias, weight, passed[-1])
            # Turned as autograd's: so it lies in memory, and sums round, also where a dimension has size one.
            passed.append(z.mT.relu().mT if relu else z)
        log_p = passed[-1].log_softmax(dim=-2)
        cross_entropy = (log_p * y.mT).sum(dim=(-2, -1)) / -log_p.shape[-1]
        share = y.mT.expand_as(log_p) * (-1 / log_p.shape[-1])
        d = aten._log_softmax_backward_data(share, log_p, -2, log_p.dtype)  # of what left the layer
        grads: list[Tensor] = []
        for i, (weight, _, relu) in reversed([*enumerate(self.layers)]):
            if relu:
                d = aten.threshold_backward(d.mT, passed[i + 1].mT, 0).mT
            grads += [d.sum(dim=2), torch.bmm(d, passed[i].mT)]
            if i:
                d = torch.bmm(weight.mT, d)
        return cross_entropy, grads[::-1]


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
