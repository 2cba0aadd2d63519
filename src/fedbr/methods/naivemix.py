"""NaiveMix (Yoon et al., 2021): mix every sample with a mean of samples of all clients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from ..core.method import Batch, ClientContext, Method
from ..core.spec import Spec
from ..core.wire import State
from ..util.errors import InputError
from .pseudo import rsm


class NaiveMix(Method):
    """Mix samples and labels with means that clients shared."""

    name: ClassVar[str] = "naivemix"
    paper: ClassVar[str] = (
        "Yoon et al. FedMix: Approximation of Mixup under Mean Augmented FL, ICLR 2021"
    )

    lam: float = Field(
        0.1, ge=0, lt=1, description="share of the mean; FedBR's paper tunes it in .01, .1, .2"
    )
    mean_of: int = Field(10, ge=2, description="samples in a mean")
    size: int | None = Field(None, ge=1, description="means in all; default: a batch")

    @property
    def neutral(self) -> bool:
        return self.lam == 0

    def check(self, spec: Spec, sizes: Sequence[int]) -> None:
        if max(sizes) < self.mean_of:
            raise InputError(
                f"{self.name}.mean_of = {self.mean_of}: no client has so many distinct samples (at "
                f"most {max(sizes)}), and a mean of fewer would reveal them; lower it"
            )

    def contribute(self, x: Tensor, y: Tensor, spec: Spec, rng: np.random.Generator) -> State:
        count = math.ceil((self.size or spec.batch_size) / spec.num_clients)
        groups = rsm.choose_groups(x, count, self.mean_of, rng)
        if not groups:
            return {}
        labels = F.one_hot(y, spec.num_classes).to(x.dtype)
        return {"x": rsm.means_of(x, groups), "y": rsm.means_of(labels, groups)}

    def share(self, contributions: Sequence[State], spec: Spec, rng: np.random.Generator) -> State:
        if not contributions:
            raise InputError(
                f"{self.name}.mean_of = {self.mean_of}: no client has so many distinct samples"
            )
        x = torch.cat([contribution["x"] for contribution in contributions])
        y = torch.cat([contribution["y"] for contribution in contributions])
        size = self.size or spec.batch_size
        chosen = torch.from_numpy(rng.permutation(len(x))[:size])
        return {"x": x[chosen], "y": y[chosen]}

    def on_batch(self, ctx: ClientContext, batch: Batch) -> Batch:
        x, y = self.means(ctx, batch)
        kept = 1 - self.lam
        return replace(batch, x=kept * batch.x + self.lam * x, y=kept * batch.y + self.lam * y)

    def means(self, ctx: ClientContext, batch: Batch) -> tuple[Tensor, Tensor]:
        """Let every client draw a mean for each of its samples."""
        index = ctx.draw(lambda rng: rng.integers(len(ctx.shared["x"]), size=batch.x.shape[1]))
        return ctx.shared["x"][index], ctx.shared["y"][index]
