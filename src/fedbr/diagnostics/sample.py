"""Whom and what to look at: a few clients, the classes they know, and balanced test samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..core.errors import InputError
from ..core.rng import stream
from ..data import Federation
from .toy import merged

FEWEST = 10  # samples of each class, if a rarer class has not so many: then all that it has


@dataclass(frozen=True)
class Known:
    """The classes of a client: those that it has, and the others."""

    client: int
    seen: list[int]
    unseen: list[int]  # classes without a sample; if there is none such, those of which it has less than the average
    scarce: bool  # whether it is the latter


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


def known(federation: Federation, clients: Sequence[int]) -> list[Known]:
    """Say which classes each client knows."""
    mix = federation.label_mix
    sizes = torch.tensor(federation.sizes, dtype=mix.dtype)
    average = (mix * sizes[:, None]).sum(dim=0) / sizes.sum()
    found = []
    for client in clients:
        absent = (mix[client] == 0) & (average > 0)  # a class that nobody has is nobody's loss
        scarce = not bool(absent.any())
        unseen = mix[client] < average - 1e-9 if scarce else absent
        seen = ~unseen & (mix[client] > 0)
        found.append(Known(client, _where(seen), _where(unseen), scarce))
    return found


def _where(mask: Tensor) -> list[int]:
    found: list[int] = torch.nonzero(mask).flatten().tolist()
    return found


def balanced(federation: Federation, most: int, seed: int, dtype: torch.dtype) -> Probe:
    """Draw test samples: the same number of each class, as far as the classes have them."""
    tests = merged(federation)
    y = tests.y.numpy()
    counts = np.bincount(y)
    there = np.flatnonzero(counts)
    each = min(max(1, most // len(there)), max(FEWEST, int(counts[there].min())))
    rng = stream(seed, "diagnose", "samples")
    picked = np.sort(np.concatenate([rng.permutation(np.flatnonzero(y == c))[:each] for c in there]))
    index = torch.from_numpy(picked)
    return Probe(tests.see(index, dtype), tests.y[index], len(tests))
