"""GroupDRO (Sagawa et al., 2020): give clients with a large loss a larger weight."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from ..core.method import Batch, ClientContext, Method, ServerContext, soft_cross_entropy
from ..core.model import FedModel, Output
from ..core.spec import Spec
from ..core.wire import Reply, State


class GroupDRO(Method):
    """Weigh client i by q_i, which grows by exp(eta * loss of the client in the round)."""

    name: ClassVar[str] = "groupdro"
    paper: ClassVar[str] = (
        "Sagawa et al. Distributionally Robust Neural Networks for Group Shifts, ICLR 2020"
    )

    eta: float = Field(0.01, ge=0, description="how fast the weights follow the losses; 0: FedAvg")

    @property
    def neutral(self) -> bool:
        return self.eta == 0

    def init_server(self, model: FedModel, spec: Spec) -> State:
        return {"log_q": torch.zeros(spec.num_clients, dtype=torch.float64)}  # q = 1

    def loss(self, ctx: ClientContext, batch: Batch, out: Output) -> Tensor | None:
        share = soft_cross_entropy(out.logits.detach(), batch.y) / ctx.spec.local_steps
        ctx.scratch["loss"] = ctx.scratch["loss"] + share if batch.step else share
        return None

    def finish(self, ctx: ClientContext) -> State:
        return {"loss": ctx.scratch["loss"]}

    def weigh(self, state: State, replies: Sequence[Reply]) -> Tensor:
        return torch.stack([self._log_q(state, reply) for reply in replies]).softmax(dim=0)

    def update_server(self, state: State, ctx: ServerContext) -> None:
        for reply in ctx.replies:
            state["log_q"][reply.client] = self._log_q(state, reply)

    def _log_q(self, state: State, reply: Reply) -> Tensor:
        """Return the logarithm of q * exp(eta * loss)."""
        return state["log_q"][reply.client] + self.eta * reply.payload[self.name]["loss"].double()
