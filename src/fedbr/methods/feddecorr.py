"""FedDecorr (Shi et al., 2023): keep the dimensions of the features uncorrelated."""

from __future__ import annotations

from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from ..core.method import Batch, ClientContext, Method
from ..core.model import Output


class FedDecorr(Method):
    """Penalise correlations between feature dimensions, against dimensional collapse."""

    name: ClassVar[str] = "feddecorr"
    paper: ClassVar[str] = (
        "Shi et al. Towards Understanding and Mitigating Dimensional Collapse, ICLR 2023"
    )

    beta: float = Field(0.1, ge=0, description="weight of the penalty")

    @property
    def neutral(self) -> bool:
        return self.beta == 0

    def loss(self, ctx: ClientContext, batch: Batch, out: Output) -> Tensor | None:
        z = out.features
        count, dims = z.shape[1:]
        if count == 1 or dims == 1:
            return None
        z = (z - z.mean(dim=1, keepdim=True)) / (z.var(dim=1, keepdim=True) + 1e-8).sqrt()
        correlation = (z.mT @ z).masked_fill(torch.eye(dims, dtype=torch.bool), 0)
        # Its own normalisation: mean over the off-diagonal, divided by the batch.
        return self.beta * correlation.square().sum(dim=(1, 2)) / (dims * (dims - 1) * count)
