"""How many clients train together: a matter of model and batch, never of the number of workers."""

from __future__ import annotations

import warnings
from typing import Literal

import torch
from torch.utils.flop_counter import FlopCounterMode

from .data import Spec
from .model import FedModel
from .stacked import obstacle

SMALL = 4e8  # floating-point operations of one client's step below which clients together are faster


def choose(model: FedModel, spec: Spec, wanted: int | Literal["auto"]) -> int:
    """Return the cohort size; one, with a warning, if the model cannot run for several clients at once."""
    size = _by_cost(model, spec) if wanted == "auto" else min(wanted, spec.clients_per_round)
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


def _by_cost(model: FedModel, spec: Spec) -> int:
    """Small steps are dominated by overhead, which a cohort shares; half of the clients leave work for two."""
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model.eval()(torch.zeros(1, *spec.shape, dtype=spec.dtype))
    step = 3 * counter.get_total_flops() * spec.batch_size  # forward, and twice that backward
    return -(-spec.clients_per_round // 2) if step < SMALL else 1
