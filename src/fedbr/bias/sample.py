"""Whom and what to look at: a few clients, and balanced test samples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..core.rng import stream
from ..data import Federation
from ..util.errors import InputError
from .toy import merged

FEWEST = 10  # samples of each class, if a rarer class has not so many: then all that it has


@dataclass(frozen=True)
class Probe:
    """Test samples as the model sees them, about as many of each class."""

    x: Tensor
    y: Tensor
    available: int

    @property
    def per_class(self) -> list[int]:
        """The smallest and the largest number of samples of a class that is there."""
        counts = torch.bincount(self.y)
        return sorted({int(counts[counts > 0].min()), int(counts.max())})


def choose_clients(federation: Federation, most: int, shown: int | None, seed: int) -> list[int]:
    """Draw some clients, the one that is shown among them."""
    everyone = list(federation.train.parts)
    if shown is not None and shown not in everyone:
        raise InputError(f"client = {shown}: there are clients 0 to {len(everyone) - 1}")
    if len(everyone) <= most:
        return everyone
    drawn = stream(seed, "diagnose", "clients").permutation(everyone).tolist()
    wanted = drawn if shown is None else [shown, *(c for c in drawn if c != shown)]
    return sorted(wanted[:most])


def balanced(federation: Federation, most: int, seed: int, dtype: torch.dtype) -> Probe:
    """Draw test samples: the same number of each class, as far as the classes have them."""
    tests = merged(federation)
    y = tests.y.numpy()
    counts = np.bincount(y)
    there = np.flatnonzero(counts)
    each = min(max(1, most // len(there)), max(FEWEST, int(counts[there].min())))
    rng = stream(seed, "diagnose", "samples")
    picked = np.sort(
        np.concatenate([rng.permutation(np.flatnonzero(y == c))[:each] for c in there])
    )
    index = torch.from_numpy(picked)
    return Probe(tests.see(index, dtype), tests.y[index], len(tests))
