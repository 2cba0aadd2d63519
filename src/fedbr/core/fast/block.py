"""The models of a block of clients, as the local step and methods use them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call

from ..device import autocast
from ..losses import soft_cross_entropy
from ..model import FedModel, Output
from ..optim import Gradient
from ..wire import State
from . import stacked
from .chain import Chain, Deferred, Layer, Trace


@dataclass(frozen=True)
class Outputs:
    """What the models make of a batch, and of what methods probe."""

    x: Tensor  # the batch
    seen: Output | None  # None: nobody looks at it, and it need not be written down
    probed: Sequence[Output] = ()


class Block:
    """The models of C clients: every weight has a leading client axis, one call runs all.

    Args:
        model: the architecture.
        weights: where all clients start, without a client axis.
        size: C.
        sample_dims: how many dimensions a sample has.
        joint: whether batch and probes run in one call.
        amp: whether to compute in mixed precision.
    """

    def __init__(
        self,
        model: FedModel,
        weights: State,
        size: int,
        sample_dims: int,
        joint: bool = False,
        amp: bool = False,
    ) -> None:
        self.module, self.start = model.train(), weights
        self.size, self.sample_dims = size, sample_dims
        self.joint, self.amp = joint, amp
        self.weights = {
            key: value.expand(size, *value.shape).clone() for key, value in weights.items()
        }
        self.groups: dict[str, State] = {"model": {}}  # each extra module is a group of its own
        for key, p in model.named_parameters():
            if p.requires_grad:
                self.groups.setdefault(_group(key), {})[key] = self.weights[key].requires_grad_()
        self.plans: dict[str, stacked.Plan] = {}
        self.chains: list[tuple[str, Chain]] = []  # each with its group
        for path in ("encoder", "classifier", *(f"extras.{name}" for name in model.extras)):
            self.plans[path] = self._plan(path, self.weights)
            for layer, _ in self.plans[path]:
                if isinstance(layer, Chain):
                    self.chains.append((_group(path), layer))
        self._whole = None if amp else self.as_chain()
        self._trace: Trace | None = None  # of the last cross-entropy that the whole chain made

    def __call__(self, x: Tensor) -> Output:
        """Run [C, B, ...]; without the client axis, all clients see the same samples."""
        return self._run(self.plans, self._own(x))

    # The local step.

    def precision(self) -> AbstractContextManager[object]:
        """Compute a step's outputs and losses in the precision that was asked for."""
        return autocast(next(iter(self.weights.values())).device, self.amp)

    def forward(self, x: Tensor, *probes: Tensor, looked_at: bool = True) -> Outputs:
        """Run a batch, [C, B, ...], and what methods probe.

        Args:
            x: the batch.
            probes: further samples, with or without the client axis.
            looked_at: whether anything but the cross-entropy needs the outputs; if not, nothing may
                be computed yet.
        """
        if self._whole is not None and not looked_at:
            return Outputs(x, None)
        seen, *probed = self.outputs([x, *probes])
        return Outputs(x, seen, probed)

    def cross_entropy(self, outputs: Outputs, y: Tensor) -> Tensor:
        """Return the cross-entropy of a batch with labels y, [C, B, K]: [C]."""
        if outputs.seen is not None:
            return soft_cross_entropy(outputs.seen.logits, y)
        assert self._whole is not None
        self._trace = self._whole.cross_entropy(outputs.x, y)
        return self._trace.value

    def gradient(self, loss: Tensor, group: str = "model") -> Gradient:
        """Return the gradient of a loss [C] by a group's weights; it is taken when it is used."""
        weights, trace = list(self.groups[group].values()), self._trace
        if trace is not None and trace.value is loss:
            self._trace = None

            def without_autograd(scale: float) -> tuple[list[Tensor | None], Deferred]:
                return [None] * len(weights), [(trace.chain, trace.backward(scale))]

            return BlockGradient(weights, without_autograd)
        return BlockGradient(weights, lambda scale: self._derive(loss, group, scale), self.amp)

    def update(self) -> State:
        """Return how far the clients are from where they started: [C, ...], floats only."""
        weights = self.snapshot()
        return {k: v - self.start[k] for k, v in weights.items() if v.is_floating_point()}

    def moved_by(self, update: State) -> State:
        """Return all weights as they would be after another ``update``."""
        moved = {key: self.start[key] + change for key, change in update.items()}
        return self.snapshot() | moved

    # What methods may use, as in core.model.ClientModels.

    def extra(self, name: str, z: Tensor) -> Tensor:
        """Run a method's own module, [C, n, ...]."""
        return stacked.run(self.plans[f"extras.{name}"], z)

    @torch.no_grad()
    def frozen(self, weights: State, x: Tensor) -> Output:
        """Run at other weights, in eval mode, without gradients.

        Weights may be what the server sent (no client axis) or what each client kept (client
        axis); so may x.
        """
        key = next(iter(weights))
        has_axis = weights[key].dim() == self.weights[key].dim()
        self.module.eval()
        try:
            return self._run_personal(weights, x) if has_axis else self._run_common(weights, x)
        finally:
            self.module.train()

    def snapshot(self) -> State:
        """Return all weights, [C, ...]."""
        return {k: v.detach() for k, v in self.weights.items()}

    @torch.no_grad()
    def load(self, weights: State) -> None:
        """Take over what ``snapshot`` returned."""
        for key, value in self.weights.items():
            value.copy_(weights[key])

    # How it is done.

    def _run_common(self, weights: State, x: Tensor) -> Output:
        """Run all clients at the same weights, as one large batch."""
        if x.dim() == self.sample_dims + 2:
            out = functional_call(self.module, weights, (x.flatten(0, 1),))
            return Output(*(t.unflatten(0, x.shape[:2]) for t in out))
        shared: Output = functional_call(self.module, weights, (x,))
        return shared

    def _run_personal(self, weights: State, x: Tensor) -> Output:
        """Run each client at its own weights."""
        device = next(iter(weights.values())).device
        # What is missing (statistics, weights that do not train) is as at the start.
        for key, value in self.module.weights().items():
            if key not in weights:
                weights = weights | {key: value.to(device).expand(self.size, *value.shape)}
        plans = {path: self._plan(path, weights) for path in ("encoder", "classifier")}
        return self._run(plans, self._own(x))

    def outputs(self, inputs: Sequence[Tensor]) -> list[Output]:
        """Run several inputs, in one call where that is faster."""
        if not self.joint or len(inputs) == 1:
            return [self(x) for x in inputs]
        own = [self._own(x) for x in inputs]
        sizes = [x.shape[1] for x in own]
        features, logits = self(stacked.join(own))
        parts = zip(stacked.cut(features, sizes), stacked.cut(logits, sizes), strict=True)
        return [Output(*part) for part in parts]

    def as_chain(self) -> Chain | None:
        """Return encoder and classifier as one chain, if they are one and all of it trains."""
        links: list[Layer] = []
        flat = self.sample_dims == 1
        for layer, _ in (*self.plans["encoder"], *self.plans["classifier"]):
            if isinstance(layer, Chain) and flat:
                links += layer.layers
            elif isinstance(layer, nn.Flatten) and stacked.makes_flat(layer):
                flat = True
            else:
                return None
        whole = Chain(links)
        trained = [id(weight) for weight in self.groups["model"].values()]
        return whole if [id(weight) for weight in whole.weights] == trained else None

    def _derive(
        self, loss: Tensor, group: str, scale: float
    ) -> tuple[list[Tensor | None], Deferred]:
        """Return ``scale`` times the gradient of a loss, and what chains leave out of it."""
        deferred: Deferred = []
        for chain_group, chain in self.chains:
            chain.deferred = deferred if chain_group == group else []
        try:
            # Clients share no weights: the gradient of the sum is each client's own gradient.
            weights = tuple(self.groups[group].values())
            scales = loss.new_full(loss.shape, scale)
            grads = torch.autograd.grad(loss, weights, scales, allow_unused=True)
            return list(grads), deferred
        finally:
            for _, chain in self.chains:
                chain.deferred = None

    def _own(self, x: Tensor) -> Tensor:
        return x.expand(self.size, *x.shape) if x.dim() == self.sample_dims + 1 else x

    def _plan(self, path: str, weights: State) -> stacked.Plan:
        return stacked.plan(self.module.get_submodule(path), weights, f"{path}.", self.size)

    @staticmethod
    def _run(plans: dict[str, stacked.Plan], x: Tensor) -> Output:
        features = stacked.run(plans["encoder"], x)
        return Output(features, stacked.run(plans["classifier"], features))


class BlockGradient(Gradient):
    """A gradient that is taken when it is used.

    Whoever only adds it to the weights gets it multiplied on the way, and what chains know as two
    factors is added where the weights lie: most of a gradient is never written down.
    """

    def __init__(
        self,
        params: Sequence[Tensor],
        derive: Callable[[float], tuple[list[Tensor | None], Deferred]],
        amp: bool = False,
    ) -> None:
        super().__init__(params, [])
        self._derive, self._amp = derive, amp

    def tensors(self) -> list[Tensor]:
        """Return the gradient of each weight, written down when it is first needed."""
        if not self._values:
            self._values = _write_down(self.params, *self._derive(1.0))
        return self._values

    @torch.no_grad()
    def add(self, scale: float) -> None:
        """Add ``scale`` times the gradient to the weights."""
        if self._values or self._amp:  # in half precision so small a loss would vanish
            super().add(scale)
            return
        grads, deferred = self._derive(scale)
        for chain, factors in deferred:
            chain.add(factors)
        params, values = [], []
        for param, value in zip(self.params, grads, strict=True):
            if value is not None:
                params.append(param)
                values.append(value)
        if values:
            torch._foreach_add_(params, values)


def _group(key: str) -> str:
    """Return the group of a weight or a module: "model", or the method that adds it."""
    return key.split(".")[1] if key.startswith("extras.") else "model"


def _write_down(
    params: Sequence[Tensor], grads: Sequence[Tensor | None], deferred: Deferred
) -> list[Tensor]:
    """Return the gradient of each weight: what autograd returned and what it left to the chains."""
    sums = {id(p): g for p, g in zip(params, grads, strict=True) if g is not None}
    for chain, factors in deferred:
        for p, g in zip(chain.weights, chain.gradient(factors), strict=True):
            sums[id(p)] = sums[id(p)] + g if id(p) in sums else g
    return [sums[id(p)] if id(p) in sums else torch.zeros_like(p) for p in params]
