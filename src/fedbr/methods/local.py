"""Local: every client trains alone, the baseline without communication."""

from __future__ import annotations

from typing import ClassVar

from ..core.method import ClientContext, Method
from ..core.model import FedModel
from ..core.wire import State


class Local(Method):
    """Train every client alone: nothing is sent, and each client's own model is tested."""

    name: ClassVar[str] = "local"
    paper: ClassVar[str] = "the baseline of the FedBR paper's main table"
    alone: ClassVar[bool] = True

    def init_client(self, model: FedModel) -> State:
        return model.weights()

    def begin(self, ctx: ClientContext) -> None:
        ctx.model.load(ctx.state)

    def finish(self, ctx: ClientContext) -> State:
        ctx.state.update(ctx.model.snapshot())
        return {}

    def personal(self, state: State) -> State:
        return state
