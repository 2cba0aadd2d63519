"""DANN (Ganin et al., 2016): features from which the client cannot be told."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from ..core.method import Batch, ClientContext, Method, soft_cross_entropy
from ..core.model import FedModel, Output
from ..core.spec import Spec


class DANN(Method):
    """Train a discriminator to tell clients by their features, and the features to mislead it."""

    name: ClassVar[str] = "dann"
    paper: ClassVar[str] = "Ganin et al. Domain-Adversarial Training of Neural Networks, JMLR 2016"

    weight: float = Field(
        0.1, ge=0, description="of the discriminator's loss; FedBR's paper tunes it in .01, .1, 1"
    )
    width: int = Field(256, ge=1, description="width of the discriminator")
    mode: Literal["reversal", "alternate"] = Field(
        "reversal",
        description="features follow the discriminator of before its step, or of after it",
    )

    @property
    def neutral(self) -> bool:
        return self.weight == 0

    def extra_module(self, model: FedModel, spec: Spec) -> nn.Module:
        first, second = nn.Linear(model.num_features, self.width), nn.Linear(self.width, self.width)
        return nn.Sequential(
            first, nn.ReLU(), second, nn.ReLU(), nn.Linear(self.width, spec.num_clients)
        )

    def loss(self, ctx: ClientContext, batch: Batch, out: Output) -> Tensor:
        fixed = out.features.detach().requires_grad_()
        guess = self._guess(ctx, fixed)
        if self.mode == "alternate":
            ctx.descend(guess, self.name)
            return -self.weight * self._guess(ctx, out.features)
        # Gradient reversal: the features' gradient has to be taken before the discriminator moves.
        (slope,) = torch.autograd.grad(guess.sum(), fixed, retain_graph=True)
        ctx.descend(guess, self.name)
        return -self.weight * (slope * out.features).sum(dim=(1, 2))

    def _guess(self, ctx: ClientContext, features: Tensor) -> Tensor:
        """Return the cross-entropy of the discriminator, whose classes are the clients: [C]."""
        client = F.one_hot(ctx.clients, ctx.spec.num_clients).unsqueeze(1)
        return soft_cross_entropy(ctx.model.extra(self.name, features), client)
