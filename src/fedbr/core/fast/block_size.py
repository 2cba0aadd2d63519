"""How many clients train together: the size of a block.

It follows from the model and the batch, never from the number of workers, since the last bits of
results depend on it.
"""

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
from .selfcheck import find_obstacle

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
# Clients that train together at least. Below LIGHT ten of them (MORE): they take 0.7 (MLP on 8 x 8)
# to 0.95 (28 x 28, 2e7) of the time of five and five, and a round is short. Above it five (FEW), so
# that two workers can share ten. Modules that methods add count here: a projector can cost more
# than a small model.
LIGHT, MORE, FEW = 3e7, 10, 5
LIMIT = 100  # more would share little more, and every client takes memory
# Weights of a block that stay, with their gradients, in the part of the cache that one core gets.
# Beyond it small batches wait for memory: on 10 samples five MLPs of 3 million weights take 1.9 of
# the time of one at a time; of 0.5 million, on 4, 0.8 to 1.15; of 0.4 million 0.7 to 0.9.
ROOM = 2_000_000


def choose_block_size(model: FedModel, spec: Spec, wanted: int | Literal["auto"]) -> int:
    """Return how many clients train together.

    Warns, and returns 1, if the model cannot run for several clients at once.

    Args:
        model: with the modules that methods add.
        spec: the facts of the run.
        wanted: ``train.clients_at_once``.
    """
    size = _auto_size(model, spec) if wanted == "auto" else wanted
    size = min(size, spec.clients_per_round)
    if size == 1:
        return 1
    reason = _find_obstacle(model, spec)
    if reason is None:
        return size
    warnings.warn(f"clients train one at a time: {reason}", RuntimeWarning, stacklevel=2)
    return 1


def _auto_size(model: FedModel, spec: Spec) -> int:
    cost = step_cost(model, spec)
    room = ROOM // _count(model)
    if cost >= SMALL or room < FEW:
        return 1
    extras_cost = 6 * spec.batch_size * _count(model.extras)
    least = MORE if cost + extras_cost < LIGHT else FEW
    # Enough to share the overhead; of many clients a part, to leave work for more workers.
    part = 4 if cost < TINY else 8
    share = math.ceil(spec.clients_per_round / part)
    return min(max(least, share), LIMIT, room)


def _count(module: nn.Module) -> int:
    """Count the weights of a module."""
    return sum(weight.numel() for weight in module.parameters())


def step_cost(model: FedModel, spec: Spec) -> int:
    """Count the floating-point operations of one client's step.

    They are those of the forward pass, and twice as many for the backward pass.
    """
    dtype = next(model.parameters()).dtype
    samples = torch.zeros(2, *spec.shape, dtype=dtype)  # of one alone there are no batch statistics
    with torch.no_grad(), _Operations() as counter:
        model.eval()(samples)
    total: int = counter.total
    return 3 * total * spec.batch_size // 2


def joins(model: FedModel, spec: Spec) -> bool:
    """Say whether batch and probe go through the model together.

    They do where it pays and mixes no batch statistics.
    """
    # Linear layers share only what a call costs, and to copy the samples takes longer (FedBR: 1.07
    # times on 784 numbers and batches of 64, 2e7; 0.87 on 64 numbers and batches of 32, 9e5).
    has_convolutions = any(isinstance(m, nn.modules.conv._ConvNd) for m in model.modules())
    most = SMALL if has_convolutions else TINY
    return step_cost(model, spec) < most and not has_batch_norm(model)


def has_batch_norm(model: FedModel) -> bool:
    """Say whether what a sample becomes depends on the others in its batch."""
    return any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in model.modules())


def _find_obstacle(model: FedModel, spec: Spec) -> str | None:
    """Say why clients cannot train together; None if they can.

    Encoder, classifier and the methods' modules are tried in training mode, on a copy.
    """
    trial = copy.deepcopy(model).train()
    norms = [m for m in trial.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    if any(m.running_mean is None for m in norms):
        # Global models, which are the same for all, see the batches of all as one.
        return "BatchNorm that remembers no statistics"
    if any(m.momentum is None for m in norms):
        return "BatchNorm whose statistics are means over all batches"
    # Not on a line: of three such samples a norm makes the middle one zero, where rounding decides
    # whether a ReLU passes it. If that happens all the same, it will not happen twice.
    numbers = torch.arange(3 * math.prod(spec.shape), dtype=spec.dtype)
    reason = None
    for x in (numbers.sin(), numbers.cos()):
        reason = _try(trial, x.view(3, *spec.shape), spec.seed)
        if reason is None:
            return None
    return reason


def _try(trial: FedModel, x: Tensor, seed: int) -> str | None:
    """Try all parts of a model on some samples."""
    with torch_stream(seed, "cohort"):
        reason = find_obstacle(trial.encoder, x)
        if reason is not None:
            return reason
        with torch.no_grad():
            features = trial.encoder(x)
        for part in (trial.classifier, *trial.extras.values()):
            reason = find_obstacle(part, features)
            if reason is not None:
                return reason
    return None


class _Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Count what products of matrices and convolutions cost.

    PyTorch has a counter too, which takes two seconds to import.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.total = 0

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
