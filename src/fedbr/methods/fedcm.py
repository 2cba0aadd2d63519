"""FedCM (Xu et al., 2021): mix the last global update into every local gradient."""

from __future__ import annotations

from typing import ClassVar

import torch
from pydantic import Field

from ..core.method import ClientContext, Method, ServerContext, grad, trained
from ..core.model import FedModel
from ..core.spec import Spec
from ..core.wire import State


class FedCM(Method):
    """Descend along alpha * gradient + (1 - alpha) * Delta.

    Delta is the mean direction of the last round.
    """

    name: ClassVar[str] = "fedcm"
    paper: ClassVar[str] = "Xu et al. FedCM: Federated Learning with Client-level Momentum, 2021"

    alpha: float = Field(0.1, gt=0, le=1, description="share of the local gradient; 1: FedAvg")

    @property
    def neutral(self) -> bool:
        return self.alpha == 1

    def init_server(self, model: FedModel, spec: Spec) -> State:
        return {k: torch.zeros_like(p) for k, p in trained(model).items()}  # Delta_0 = 0

    def broadcast(self, state: State) -> State:
        return state

    def on_grad(self, ctx: ClientContext, params: State) -> None:
        for key, delta in ctx.received.items():
            grad(params[key]).mul_(self.alpha).add_(delta, alpha=1 - self.alpha)

    def update_server(self, state: State, ctx: ServerContext) -> None:
        for key in state:  # Delta = (w_old - w_new) / (eta * K)
            state[key] = (ctx.old_params[key] - ctx.new_params[key]) / ctx.spec.reach
