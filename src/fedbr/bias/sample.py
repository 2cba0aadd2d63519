"""Choose what is diagnosed: a few clients, and balanced test samples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..core.rng import stream
from ..data import Federation
from ..util.errors import InputError
from .toy import merge_tests

# Samples of each class at least; a class that has not so many gives all that it has.
FEWEST = 10


@dataclass(frozen=True)
class Probe:
    """Test samples as the model sees them, about as many of each class."""

    x: Tensor
    y: Tensor
    available: int  # test samples in all

    @property
    def per_class(self) -> tuple[int, ...]:
        """The smallest and the largest number of samples of a class that is there."""
        counts = torch.bincount(self.y)
        return tuple(sorted({int(counts[counts > 0].min()), int(counts.max())}))


def choose_clients(federation: Federation, most: int, pictured: int | None, seed: int) -> list[int]:
    """Draw some clients.

    Args:
        federation: all clients.
        most: how many at most.
        pictured: one that is always among them.
        seed: random seed.

    Raises:
        InputError: there is no such client.
    """
    everyone = list(federation.train.parts)
    if pictured is not None and pictured not in everyone:
        raise InputError(f"client = {pictured}: there are clients 0 to {len(everyone) - 1}")
    if len(everyone) <= most:
        return everyone
    order = stream(seed, "diagnose", "clients").permutation(everyone).tolist()
    if pictured is not None:
        order.remove(pictured)
        order.insert(0, pictured)
    return sorted(order[:most])


def draw_balanced(federation: Federation, most: int, seed: int, dtype: torch.dtype) -> Probe:
    """Draw test samples: the same number of each class, as far as the classes have them.

    Args:
        federation: whose test samples.
        most: about how many in all.
        seed: random seed.
        dtype: of the samples.
    """
    tests = merge_tests(federation)
    y = tests.y.numpy()
    counts = np.bincount(y)
    classes = np.flatnonzero(counts)
    each = min(max(1, most // len(classes)), max(FEWEST, int(counts[classes].min())))
    rng = stream(seed, "diagnose", "samples")
    chosen = [rng.permutation(np.flatnonzero(y == c))[:each] for c in classes]
    index = torch.from_numpy(np.sort(np.concatenate(chosen)))
    return Probe(tests.see(index, dtype), tests.y[index], len(tests))
