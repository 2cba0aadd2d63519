"""FedProx (Li et al., 2020): pull local weights towards the global ones."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from ..core.method import ClientContext, Method, grad
from ..core.wire import State


class FedProx(Method):
    """Add the proximal term mu/2 * |w - w_global|^2 to every client's objective."""

    name: ClassVar[str] = "fedprox"
    paper: ClassVar[str] = "Li et al. Federated Optimization in Heterogeneous Networks, MLSys 2020"

    mu: float = Field(
        0.1,
        ge=0,
        description="weight of the proximal term; FedBR's paper tunes it in .001, .01, .1",
    )

    @property
    def neutral(self) -> bool:
        return self.mu == 0

    def on_grad(self, ctx: ClientContext, params: State) -> None:
        for key, p in params.items():
            grad(p).add_(p.detach() - ctx.global_params[key], alpha=self.mu)
