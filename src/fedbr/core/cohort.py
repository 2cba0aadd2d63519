"""How many clients train together: a matter of model and batch, never of the number of workers."""

from __future__ import annotations

import warnings
from typing import Literal

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from .data import Spec
from .model import FedModel
from .stacked import obstacle

# Floating-point operations of one client's step below which overhead dominates. Measured on one core, against a
# client at a time: CNN on 8 x 8 (7e7) 2.0 times faster together and 1.1 to 1.4 times with one forward for batch
# and probe; CNN on 28 x 28 (2e9) no gain; at full width (3e10) one forward costs 1.1 times more.
SMALL = 4e8


def is_small(model: FedModel, spec: Spec) -> bool:
    """Say whether a step is so small that its overhead is worth sharing."""
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model.eval()(torch.zeros(1, *spec.shape, dtype=next(model.parameters()).dtype))
    step = 3 * int(counter.get_total_flops()) * spec.batch_size  # forward, and twice that backward
    return step < SMALL


def joins(model: FedModel, spec: Spec) -> bool:
    """Say whether batch and probe go through the model together: where it pays and mixes no batch statistics."""
    norms = nn.modules.batchnorm._BatchNorm
    return is_small(model, spec) and not any(isinstance(m, norms) for m in model.modules())


def choose(model: FedModel, spec: Spec, wanted: int | Literal["auto"]) -> int:
    """Return the cohort size; one, with a warning, if the model cannot run for several clients at once."""
    if wanted == "auto":  # half of the clients leave work for a second worker
        wanted = -(-spec.clients_per_round // 2) if is_small(model, spec) else 1
    size = min(wanted, spec.clients_per_round)
    if size == 1:
        return 1
    sample = torch.linspace(-1, 1, 3 * torch.Size(spec.shape).numel(), dtype=spec.dtype).view(3, *spec.shape)
    for module in (model.encoder.train(), model.classifier):
        if reason := obstacle(module, sample):
            warnings.warn(f"clients train one at a time: {reason}", RuntimeWarning, stacklevel=2)
            return 1
        with torch.no_grad():
            sample = module(sample)
    return size
