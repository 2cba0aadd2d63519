"""Samples as they are stored and as the model sees them; clients are index arrays, never copies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

Index = NDArray[np.int64]


@dataclass(frozen=True)
class Spec:
    """The facts of a run that both sides know; a method may read all of it."""

    shape: tuple[int, ...]  # of one sample
    num_classes: int
    num_clients: int
    clients_per_round: int
    local_steps: int
    batch_size: int
    lr: float
    momentum: float = 0.0
    weight_decay: float = 0.0
    aggregate: str = "uniform"  # or "samples"
    seed: int = 0
    dtype: torch.dtype = torch.float32
    joint: bool = False  # one forward for the batch and the methods' probes together
    proxy: Tensor | None = None  # public samples that belong to nobody, as the model sees them

    @property
    def reach(self) -> float:
        """How far a constant gradient carries a client in a round: lr times the steps, more with momentum."""
        m, steps = self.momentum, self.local_steps
        return self.lr * (sum((1 - m**j) / (1 - m) for j in range(1, steps + 1)) if m else steps)


@dataclass(frozen=True)
class Samples:
    """Samples in the form in which they are stored (bytes or floats), and how the model sees them."""

    x: Tensor  # [n, ...]
    y: Tensor  # [n], classes
    scale: float | Tensor = 1.0  # the model sees x * scale + shift; a tensor broadcasts over a sample
    shift: float | Tensor = 0.0

    def __len__(self) -> int:
        return len(self.y)

    def see(self, index: Tensor | slice, dtype: torch.dtype) -> Tensor:
        """Return samples as the model sees them."""
        x = self.x[index].to(dtype)
        if isinstance(self.scale, Tensor) or self.scale != 1.0:
            x = x * self.scale  # not in place: it may still be what is stored
        if isinstance(self.shift, Tensor) or self.shift != 0.0:
            x = x + self.shift
        return x


@dataclass(frozen=True)
class TrainData:
    """The training samples of the clients that live here."""

    samples: Samples
    parts: Mapping[int, Index]  # client -> its samples
    num_classes: int

    def draw(
        self,
        clients: Sequence[int],
        rngs: Sequence[np.random.Generator],
        shape: tuple[int, ...],
        dtype: torch.dtype,
    ) -> tuple[Tensor, Tensor]:
        """Let every client draw from its own samples, with replacement: x [C, *shape, ...], y [C, *shape, K]."""
        return self.see(self.positions(clients, rngs, shape), dtype)

    def positions(self, clients: Sequence[int], rngs: Sequence[np.random.Generator], shape: tuple[int, ...]) -> Tensor:
        """Return which samples every client draws: [C, *shape]."""
        parts = [self.parts[c] for c in clients]
        return torch.from_numpy(np.stack([p[r.integers(len(p), size=shape)] for p, r in zip(parts, rngs, strict=True)]))

    def see(self, index: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return samples as the model sees them, with one-hot labels, for an index of any shape."""
        return self.samples.see(index, dtype), F.one_hot(self.samples.y[index], self.num_classes).to(dtype)

    def of(self, client: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return all samples of one client and their classes."""
        index = torch.from_numpy(self.parts[client])
        return self.samples.see(index, dtype), self.samples.y[index]
