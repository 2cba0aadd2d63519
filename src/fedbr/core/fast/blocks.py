"""How many clients train together: a matter of model and batch, never of the number of workers."""

from __future__ import annotations

import copy
import math
import warnings
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from ..model import FedModel
from ..rng import torch_stream
from ..spec import Spec
from .selfcheck import obstacle

aten = torch.ops.aten
PRODUCTS = {aten.mm, aten.addmm, aten.bmm, aten.baddbmm}

# Floating-point operations of one client's step below which overhead dominates. Measured on one
# core, against a client at a time: CNN on 8 x 8 (7e7) 2.0 times faster together and 1.1 to 1.4
# times with one forward for batch and probe; CNN on 28 x 28 (2e9) no gain; at full width (3e10) one
# forward costs 1.1 times more.
SMALL = 4e8
# Of a hundred clients, 25 together take 0.8 (MLP on 8 x 8, 5e5) and 0.9 (28 x 28, batch 16, 2e6) of
# the time of 13; with a batch of 64 (2e7) they take as long.
TINY = 5e6
# Clients that train together at least. Below LIGHT ten of them: they take 0.7 (MLP on 8 x 8) to
# 0.95 (28 x 28, 2e7) of the time of five and five, and a round is short. Above it five, so that two
# workers can share ten. Modules that methods add count here: a projector can cost more than a small
# model.
LIGHT, MORE, FEW = 3e7, 10, 5
LIMIT = 100  # more would share little more, and every client takes memory
# Weights of a block that stay, with their gradients, in the part of the cache that one core gets.
# Beyond it small batches wait for memory: on 10 samples five MLPs of 3 million weights take 1.9 of
# the time of one at a time; of 0.5 million, on 4, 0.8 to 1.15; of 0.4 million 0.7 to 0.9.
ROOM = 2_000_000


def step_cost(model: FedModel, spec: Spec) -> int:
    """Count the floating-point operations of one client's step: forward, and twice that backward."""
    with torch.no_grad(), _Operations() as counter:
        model.eval()(
            torch.zeros(2, *spec.shape, dtype=next(model.parameters()).dtype)
        )  # one has no batch statistics
    total: int = counter.total
    return 3 * total * spec.batch_size // 2


class _Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts what products of matrices and convolutions cost; torch's own counter takes two seconds
    to import.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.total: int = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # or torch imports its compiler, another two seconds

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        tensors = [a for a in args if isinstance(a, Tensor)]
        if func.overloadpacket in PRODUCTS:  # [..., n, k] times [..., k, m]
            self.total += 2 * out.numel() * tensors[-1].shape[-2]
        elif func.overloadpacket is aten.convolution:
            self.total += 2 * out.numel() * math.prod(tensors[1].shape[1:])
        return out


def joins(model: FedModel, spec: Spec) -> bool:
    """Say whether batch and probe go through the model together: where it pays and mixes no batch
    statistics.
    """
    # Linear layers share only what a call costs, and to copy the samples takes longer (FedBR: 1.07
    # times on 784 numbers and batches of 64, 2e7; 0.87 on 64 numbers and batches of 32, 9e5).
    enough = SMALL if any(isinstance(m, nn.modules.conv._ConvNd) for m in model.modules()) else TINY
    return step_cost(model, spec) < enough and not has_batch_norm(model)


def has_batch_norm(model: FedModel) -> bool:
    """Say whether what a sample becomes depends on the others in its batch."""
    return any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in model.modules())


def choose(model: FedModel, spec: Spec, wanted: int | Literal["auto"]) -> int:
    """Return the block size; one, with a warning, if the model cannot run for several clients at
    once.
    """
    size = 1 if wanted == "auto" else wanted
    if wanted == "auto" and (cost := step_cost(model, spec)) < SMALL:
        # Enough to share the overhead; of many clients a part, to leave work for more workers.
        part = 4 if cost < TINY else 8
        room = ROOM // sum(p.numel() for p in model.parameters())
        added = 6 * spec.batch_size * sum(p.numel() for p in model.extras.parameters())
        least = MORE if cost + added < LIGHT else FEW
        size = (
            min(max(least, -(-spec.clients_per_round // part)), LIMIT, room) if room >= FEW else 1
        )
    size = min(size, spec.clients_per_round)
    if size > 1 and (reason := _obstacle(model, spec)):
        warnings.warn(f"clients train one at a time: {reason}", RuntimeWarning, stacklevel=2)
        return 1
    return size


def _obstacle(model: FedModel, spec: Spec) -> str | None:
    """Try encoder, classifier and the methods' modules, in training mode, on a copy that may be
    spoilt.
    """
    trial = copy.deepcopy(model).train()
    norms = [m for m in trial.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    if any(m.running_mean is None for m in norms):
        # Global models, which are the same for all, see the batches of all as one.
        return "BatchNorm that remembers no statistics"
    if any(m.momentum is None for m in norms):
        return "BatchNorm whose statistics are means over all batches"
    # Not on a line: of three such samples a norm makes the middle one zero, where a ReLU turns on
    # rounding.
    numbers = torch.arange(3 * math.prod(spec.shape), dtype=spec.dtype)
    reason = None
    for x in (numbers.sin(), numbers.cos()):  # a ReLU that turns all the same does so only once
        reason = _try(trial, x.view(3, *spec.shape), spec.seed)
        if reason is None:
            return None
    return reason


def _try(trial: FedModel, x: Tensor, seed: int) -> str | None:
    """Try all parts of a model on some samples."""
    with torch_stream(seed, "cohort"):
        if reason := obstacle(trial.encoder, x):
            return reason
        with torch.no_grad():
            features = trial.encoder(x)
        for part in (trial.classifier, *trial.extras.values()):
            if reason := obstacle(part, features):
                return reason
    return None
