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

    The control variate c_i estimates the client's own mean gradient, c that of all clients.
    """

    name: ClassVar[str] = "scaffold"
    paper: ClassVar[str] = "Karimireddy et al. SCAFFOLD: Stochastic Controlled Averaging, ICML 2020"

    def init_server(self, model: FedModel, spec: Spec) -> State:
        return _zeros(model)

    def init_client(self, model: FedModel) -> State:
        return _zeros(model)

    def broadcast(self, state: State) -> State:
        return state

    def begin(self, ctx: ClientContext) -> None:
        for key, c in ctx.received.items():
            ctx.scratch[key] = c - ctx.state[key]  # constant within the round

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
        # c+ = c + |S|/N * the mean change of the clients that took part, weighted as their models
        share = len(ctx.replies) / ctx.spec.num_clients
        for weight, reply in zip(ctx.weights, ctx.replies, strict=True):
            for key, change in reply.payload[self.name].items():
                state[key] = state[key] + share * weight * change


def _zeros(model: FedModel) -> State:
    return {key: torch.zeros_like(weight) for key, weight in trained(model).items()}
