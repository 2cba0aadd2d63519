"""VHL (Tang et al., 2022): calibrate features with labelled virtual data that all clients share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from ..core.method import Batch, ClientContext, Method, soft_cross_entropy
from ..core.model import Output
from ..core.spec import Spec
from ..core.wire import State
from .pseudo.virtual import virtual_samples


class VHL(Method):
    """Train on virtual samples too, and draw the features of each class to its virtual ones."""

    name: ClassVar[str] = "vhl"
    paper: ClassVar[str] = "Tang et al. Virtual Homogeneity Learning, ICML 2022"

    alpha: float = Field(1.0, ge=0, description="weight of the virtual samples' cross-entropy")
    align: float = Field(
        1.0, ge=0, description="weight of the alignment of real with virtual features"
    )
    contrast: float = Field(0.1, ge=0, description="weight of the contrast among virtual features")
    tau: float = Field(0.07, gt=0, description="divides the similarities")
    size: int = Field(2000, ge=1, description="virtual samples in all")
    per_step: int | None = Field(
        None, ge=1, description="virtual samples in a step; default: a batch"
    )

    @property
    def neutral(self) -> bool:
        return self.alpha == self.align == self.contrast == 0

    def share(self, contributions: Sequence[State], spec: Spec, rng: np.random.Generator) -> State:
        x, y = virtual_samples(self.size, spec.num_classes, spec.shape, rng)
        return {"x": x.to(spec.dtype), "y": y}

    def probe(self, ctx: ClientContext, batch: Batch) -> Tensor:
        count = self.per_step or batch.x.shape[1]
        index = ctx.draw(lambda rng: rng.integers(self.size, size=count))
        ctx.scratch["y"] = ctx.shared["y"][index]
        return ctx.shared["x"][index]

    def loss(self, ctx: ClientContext, batch: Batch, out: Output) -> Tensor:
        assert ctx.probed is not None
        virtual, y = ctx.probed.features, ctx.scratch["y"]
        features = torch.cat([out.features, virtual.detach()], dim=1)
        labels = F.one_hot(y, ctx.spec.num_classes)
        cross_entropy = soft_cross_entropy(ctx.probed.logits, labels)
        classes = torch.cat([batch.y.argmax(dim=-1), y], dim=1)
        alignment = _contrast_classes(features, classes, self.tau)
        contrast = _contrast_classes(virtual, y, self.tau)
        return self.alpha * cross_entropy + self.align * alignment + self.contrast * contrast


def _contrast_classes(features: Tensor, classes: Tensor, tau: float) -> Tensor:
    """Return the supervised contrast (Khosla et al., 2020): [C, n, d], [C, n] -> [C].

    A sample without another one of its class counts 0.
    """
    z = F.normalize(features, dim=-1)
    itself = torch.eye(z.shape[1], dtype=torch.bool)
    logits = (z @ z.mT / tau).masked_fill(itself, torch.finfo(z.dtype).min)
    positive = (classes.unsqueeze(-1) == classes.unsqueeze(-2)) & ~itself
    log_p = logits.log_softmax(dim=-1).masked_fill(~positive, 0)
    return -(log_p.sum(dim=-1) / positive.sum(dim=-1).clamp(min=1)).mean(dim=-1)
