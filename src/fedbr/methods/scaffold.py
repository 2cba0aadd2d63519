"""SCAFFOLD (Karimireddy et al., 2020), option II: correct client drift with control variates."""

from __future__ import annotations

from typing import ClassVar

import torch

from ..core.method import ClientContext, Method, ServerContext, grad, trained
from ..core.model import FedModel
from ..core.spec import Spec
from ..core.wire import State


class SCAFFOLD(Method):
    """Add c - c_i to every gradient.

    c_i estimates the client's own mean gradient, c that of all clients.
    """

    name: ClassVar[str] = "scaffold"
    paper: ClassVar[str] = "Karimireddy et al. SCAFFOLD: Stochastic Controlled Averaging, ICML 2020"

    def init_server(self, model: FedModel, spec: Spec) -> State:
        return {k: torch.zeros_like(p) for k, p in trained(model).items()}

    def init_client(self, model: FedModel) -> State:
        return {k: torch.zeros_like(p) for k, p in trained(model).items()}

    def broadcast(self, state: State) -> State:
        return state

    def begin(self, ctx: ClientContext) -> None:
        # Constant within the round.
        ctx.scratch |= {key: c - ctx.state[key] for key, c in ctx.received.items()}

    def on_grad(self, ctx: ClientContext, params: State) -> None:
        for key, correction in ctx.scratch.items():
            grad(params[key]).add_(correction)

    def finish(self, ctx: ClientContext) -> State:
        # Option II: c_i+ = c_i - c + (w_global - w_i) / (K * eta)
        change = {}
        for key, c in ctx.received.items():
            moved = ctx.global_params[key] - ctx.model.weights[key].detach()
            change[key] = moved / ctx.spec.reach - c
            ctx.state[key] = ctx.state[key] + change[key]
        return change

    def update_server(self, state: State, ctx: ServerContext) -> None:
        # c+ = c + |S|/N * the mean of the changes of those who took part, weighted as their models are
        share = len(ctx.replies) / ctx.spec.num_clients
        for weight, reply in zip(ctx.weights, ctx.replies, strict=True):
            for key, change in reply.payload[self.name].items():
                state[key] = state[key] + share * weight * change
