"""Moon (Li et al., 2021): stay near the global features, away from the client's previous ones."""

from __future__ import annotations

from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from ..core.fast.contrast import contrast
from ..core.method import Batch, ClientContext, Method
from ..core.model import FedModel, Output
from ..core.spec import Spec
from ..core.wire import State
from ..util.errors import InputError

SEEN = "seen"  # whether there is a previous model: beside its weights in a client's memory


class Moon(Method):
    """Contrast a sample's features with those of the global and of the client's previous model."""

    name: ClassVar[str] = "moon"
    paper: ClassVar[str] = "Li, He, Song. Model-Contrastive Federated Learning, CVPR 2021"

    weight: float = Field(
        1.0, ge=0, description="of the contrastive term; FedBR's paper tunes it in .01, .1, 1, 10"
    )
    tau: float = Field(0.5, gt=0, description="divides the similarities")
    head: bool = Field(True, description="end the feature extractor in a projection of two layers")
    hidden: int = Field(256, ge=1, description="width of the projection")
    width: int = Field(128, ge=1, description="outputs of the projection, the new features")

    @property
    def neutral(self) -> bool:
        return self.weight == 0

    def rebuild(self, model: FedModel, spec: Spec) -> FedModel:
        if not self.head:
            return model
        old = model.classifier
        if not isinstance(old, nn.Linear) or not old.weight.requires_grad:
            raise InputError(
                "moon.head = True: puts a new linear classifier on its projection, but yours is "
                "not linear or does not train; set moon.head = False"
            )
        first, last = nn.Linear(model.num_features, self.hidden), nn.Linear(self.hidden, self.width)
        new = nn.Linear(self.width, model.num_classes, bias=old.bias is not None)
        encoder = nn.Sequential(model.encoder, nn.Sequential(first, nn.ReLU(), last))
        return FedModel(encoder, self.width, model.num_classes, new)

    def init_client(self, model: FedModel) -> State:
        return {SEEN: torch.tensor(False), **_without_extras(model.weights())}

    def begin(self, ctx: ClientContext) -> None:
        if ctx.state[SEEN].any():
            ctx.scratch["weight"] = self.weight * ctx.state[SEEN].to(ctx.spec.dtype)

    def loss(self, ctx: ClientContext, batch: Batch, out: Output) -> Tensor | None:
        if "weight" not in ctx.scratch:  # all of them take part for the first time
            return None
        previous = {key: value for key, value in ctx.state.items() if key != SEEN}
        near = ctx.model.frozen(ctx.global_params, batch.x).features
        far = ctx.model.frozen(previous, batch.x).features
        term = contrast(out.features, far, near, 1 / self.tau, 1 / self.tau).mean(dim=1)
        return ctx.scratch["weight"] * term

    def finish(self, ctx: ClientContext) -> State:
        ctx.state[SEEN] = torch.ones_like(ctx.state[SEEN])
        ctx.state.update(_without_extras(ctx.model.snapshot()))
        return {}


def _without_extras(weights: State) -> State:
    return {k: v for k, v in weights.items() if not k.startswith("extras.")}
