"""FedNTD (Lee et al., 2022): keep what the global model knows of the classes that are not true."""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from ..core.method import Batch, ClientContext, Method
from ..core.model import Output


class FedNTD(Method):
    """Distil the global model's opinion of the not-true classes."""

    name: ClassVar[str] = "fedntd"
    paper: ClassVar[str] = (
        "Lee et al. Preservation of the Global Knowledge by Not-True Distillation, NeurIPS 2022"
    )

    beta: float = Field(
        1.0, ge=0, description="weight of the distillation; FedBR's paper tunes it in 1, .1"
    )
    tau: float = Field(1.0, gt=0, description="temperature")

    @property
    def neutral(self) -> bool:
        return self.beta == 0

    def loss(self, ctx: ClientContext, batch: Batch, out: Output) -> Tensor:
        global_logits = ctx.model.frozen(ctx.global_params, batch.x).logits
        true = batch.y.argmax(dim=-1, keepdim=True)
        student = _not_true(out.logits, true) / self.tau
        teacher = _not_true(global_logits, true) / self.tau
        kl = F.kl_div(
            student.log_softmax(dim=-1),
            teacher.log_softmax(dim=-1),
            reduction="none",
            log_target=True,
        )
        return self.beta * self.tau**2 * kl.sum(dim=-1).mean(dim=-1)


def _not_true(logits: Tensor, true: Tensor) -> Tensor:
    others = torch.arange(logits.shape[-1] - 1).expand(*true.shape[:-1], -1)
    return logits.gather(-1, others + (others >= true))  # skips the true class
