"""The one model shape that every method can rely on, and the models of a whole block."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call

from ..util.errors import InputError
from .fast import stacked
from .fast.chain import Chain, Found, Heard, Layer
from .wire import State


class Output(NamedTuple):
    features: Tensor
    logits: Tensor


class FedModel(nn.Module):
    """A feature extractor and a classifier; ``extras`` holds what methods add, and is federated
    too.
    """

    def __init__(
        self,
        encoder: nn.Module,
        num_features: int,
        num_classes: int,
        classifier: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.classifier = nn.Linear(num_features, num_classes) if classifier is None else classifier
        self.extras = nn.ModuleDict()
        self.num_features = num_features
        self.num_classes = num_classes
        self.bytes_seen_as: tuple[float | Tensor, float | Tensor] = (
            1 / 255,
            0.0,
        )  # scale and shift
        self.class_names: Sequence[str] | None = None  # in the order of what ``predict`` returns
        self.sample_shape: tuple[int, ...] | None = None  # what it was trained on; None: not known

    def forward(self, x: Tensor) -> Output:
        features = self.encoder(x)
        return Output(features, self.classifier(features))

    def weights(self) -> State:
        """Return what a client must have to compute as this model does: parameters and all buffers."""
        return {k: v.detach() for k, v in (*self.named_parameters(), *self.named_buffers())}

    @torch.no_grad()
    def set_weights(self, weights: State) -> None:
        """Take over what ``weights`` returned."""
        for key, value in self.weights().items():
            value.copy_(weights[key])

    def _samples(self, x: Tensor) -> Tensor:
        """Refuse what is not a batch of samples as they were in training."""
        if not (x.dtype == torch.uint8 or x.is_floating_point()):
            raise InputError(
                f"predict: samples of type {x.dtype}; bytes (pixels from 0 to 255) or floats are wanted"
            )
        shape = self.sample_shape
        if shape is not None and tuple(x.shape[1:]) != shape:
            hint = ""
            if tuple(x.shape) == shape:
                hint = "; for one sample, x[None]"
            elif len(shape) == 3 and tuple(x.shape[1:]) == (*shape[1:], shape[0]):
                hint = "; channels first, x.permute(0, 3, 1, 2) or np.moveaxis(x, -1, 1)"
            wanted = ", ".join(map(str, shape))
            raise InputError(
                f"predict: x has shape {tuple(x.shape)}; (samples, {wanted}) is wanted{hint}"
            )
        return x

    def predict(self, x: Tensor | NDArray[Any]) -> Tensor:
        """Return the most likely class of each sample, in eval mode; bytes are scaled as they were
        in training.
        """
        x = self._samples(torch.as_tensor(x))
        dtype = next(self.parameters()).dtype
        if x.dtype == torch.uint8:
            scale, shift = self.bytes_seen_as
            x = x.to(dtype) * scale + shift
        x = x.to(dtype)
        was_training = self.training
        self.eval()
        with torch.inference_mode():
            classes: Tensor = self(x).logits.argmax(dim=-1)
        self.train(was_training)
        return classes


class Block:
    """The models of C clients: every weight has a leading client axis, one call runs all."""

    def __init__(
        self, model: FedModel, weights: State, size: int, sample_dims: int, joint: bool = False
    ) -> None:
        self.module, self.size, self.sample_dims, self.joint = (
            model.train(),
            size,
            sample_dims,
            joint,
        )
        self.weights = {k: v.expand(size, *v.shape).clone() for k, v in weights.items()}
        self.groups: dict[str, State] = {"model": {}}  # each extra module is a group of its own
        for key, p in model.named_parameters():
            group = key.split(".")[1] if key.startswith("extras.") else "model"
            if p.requires_grad:
                self.groups.setdefault(group, {})[key] = self.weights[key].requires_grad_()
        paths = ["encoder", "classifier", *(f"extras.{name}" for name in model.extras)]
        self.plans = {path: self._plan(path, self.weights) for path in paths}
        self.chains = [  # each with its group
            (path[len("extras.") :] if path.startswith("extras.") else "model", layer)
            for path, plan in self.plans.items()
            for layer, _ in plan
            if isinstance(layer, Chain)
        ]

    def __call__(self, x: Tensor) -> Output:
        """Run [C, B, ...]; without the client axis, all clients see the same samples."""
        return self._run(self.plans, self._own(x))

    def outputs(self, inputs: Sequence[Tensor]) -> list[Output]:
        """Run several inputs, in one call where that is faster."""
        if not self.joint or len(inputs) == 1:
            return [self(x) for x in inputs]
        own = [self._own(x) for x in inputs]
        sizes = [x.shape[1] for x in own]
        out = self(stacked.join(own))
        return [Output(*parts) for parts in zip(*(stacked.cut(t, sizes) for t in out), strict=True)]

    def gradient(self, loss: Tensor, group: str, seed: float) -> tuple[list[Tensor | None], Heard]:
        """Return ``seed`` times the gradient of a loss [C] by a group's weights, and what chains
        left out of it.
        """
        heard: list[tuple[Chain, Found]] = []
        for of, chain in self.chains:
            chain.heard = heard if of == group else []
        try:
            # Clients share no weights: the gradient of the sum is each client's own gradient.
            weights, seeds = tuple(self.groups[group].values()), loss.new_full(loss.shape, seed)
            return list(torch.autograd.grad(loss, weights, seeds, allow_unused=True)), heard
        finally:
            for _, chain in self.chains:
                chain.heard = None

    def as_chain(self) -> Chain | None:
        """Return encoder and classifier as one chain, if they are one and all of it trains."""
        links, flat = list[Layer](), self.sample_dims == 1
        for layer, _ in (*self.plans["encoder"], *self.plans["classifier"]):
            if isinstance(layer, Chain) and flat:
                links += layer.layers
            elif isinstance(layer, nn.Flatten) and stacked.makes_flat(layer):
                flat = True
            else:
                return None
        whole = Chain(links)
        trained = list(self.groups["model"].values())
        return whole if [*map(id, whole.weights)] == [*map(id, trained)] else None

    def snapshot(self) -> State:
        """Return all weights, [C, ...]."""
        return {k: v.detach() for k, v in self.weights.items()}

    @torch.no_grad()
    def load(self, weights: State) -> None:
        """Take over what ``snapshot`` returned."""
        for key, value in self.weights.items():
            value.copy_(weights[key])

    def extra(self, name: str, z: Tensor) -> Tensor:
        """Run a method's own module, [C, n, ...]."""
        return stacked.run(self.plans[f"extras.{name}"], z)

    @torch.no_grad()
    def frozen(self, weights: State, x: Tensor) -> Output:
        """Run at other weights, in eval mode, without gradients.

        Weights may be what the server sent (no client axis) or what each client kept (client axis);
        so may x.
        """
        key = next(iter(weights))
        self.module.eval()
        try:
            if weights[key].dim() == self.weights[key].dim():
                # What is missing (statistics, weights that do not train) is as at the start, as
                # without a client axis.
                rest = {k: v for k, v in self.module.weights().items() if k not in weights}
                weights = weights | {
                    k: v.to(weights[key].device).expand(self.size, *v.shape)
                    for k, v in rest.items()
                }
                plans = {path: self._plan(path, weights) for path in ("encoder", "classifier")}
                return self._run(plans, self._own(x))
            if x.dim() == self.sample_dims + 2:  # the same weights for all clients: one large batch
                out = functional_call(self.module, weights, (x.flatten(0, 1),))
                return Output(*(t.unflatten(0, x.shape[:2]) for t in out))
            shared: Output = functional_call(self.module, weights, (x,))
            return shared
        finally:
            self.module.train()

    def _own(self, x: Tensor) -> Tensor:
        return x.expand(self.size, *x.shape) if x.dim() == self.sample_dims + 1 else x

    def _plan(self, path: str, weights: State) -> stacked.Plan:
        return stacked.plan(self.module.get_submodule(path), weights, f"{path}.", self.size)

    @staticmethod
    def _run(plans: dict[str, stacked.Plan], x: Tensor) -> Output:
        features = stacked.run(plans["encoder"], x)
        return Output(features, stacked.run(plans["classifier"], features))
