"""Mixup (Zhang et al., 2018): train on convex combinations of samples."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from pydantic import Field
from torch import Tensor

from ..core.method import Batch, ClientContext, Method, per_client, take


class Mixup(Method):
    """Mix every sample, and its label, with another one of the batch."""

    name: ClassVar[str] = "mixup"
    paper: ClassVar[str] = "Zhang et al. mixup: Beyond Empirical Risk Minimization, ICLR 2018"

    alpha: float = Field(0.2, ge=0, description="shares come from Beta(alpha, alpha); 0: no mixing")

    @property
    def neutral(self) -> bool:
        return self.alpha == 0

    def on_batch(self, ctx: ClientContext, batch: Batch) -> Batch:
        share = ctx.draw(lambda rng: rng.beta(self.alpha, self.alpha))  # one per client and step
        other = ctx.draw(lambda rng: rng.permutation(batch.x.shape[1]))

        def mix(t: Tensor) -> Tensor:
            return per_client(share, t) * t + per_client(1 - share, t) * take(t, other)

        return replace(batch, x=mix(batch.x), y=mix(batch.y))
