"""FedMix (Yoon et al., 2021): NaiveMix to first order; no mean has to pass through the model."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor

from ..core.method import Batch, ClientContext, soft_cross_entropy
from ..core.model import Output
from .naivemix import NaiveMix


class FedMix(NaiveMix):
    """Approximate mixing with means by a first-order Taylor term."""

    name: ClassVar[str] = "fedmix"

    @property
    def neutral(self) -> bool:
        return self.lam == 0

    def on_batch(self, ctx: ClientContext, batch: Batch) -> Batch:
        x, y = self.means(ctx, batch)
        ctx.scratch |= {
            "own_x": ((1 - self.lam) * batch.x).detach().requires_grad_(),
            "own_y": batch.y,
            "mean_x": x,
        }
        # With mixed labels the cross-entropy is (1 - lam) l(y) + lam l(y_mean): the first two terms
        # of the expansion.
        mixed_y = (1 - self.lam) * batch.y + self.lam * y
        return replace(batch, x=ctx.scratch["own_x"], y=mixed_y)

    def loss(self, ctx: ClientContext, batch: Batch, out: Output) -> Tensor:
        # Methods listed later may have mixed the batch: then only its labels fit. They differ by
        # O(lam^2) in the term.
        y = ctx.scratch["own_y"] if batch.x is ctx.scratch["own_x"] else batch.y
        own = soft_cross_entropy(out.logits, y)
        (slope,) = torch.autograd.grad(own.sum(), ctx.scratch["own_x"], create_graph=True)
        # The slope is of a mean over the batch: the sum of its products is the mean over samples.
        return self.lam * (slope * ctx.scratch["mean_x"]).flatten(1).sum(dim=1)
