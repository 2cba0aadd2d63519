"""Samples as they are stored and as the model sees them; clients are index arrays, never copies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from .spec import DTYPES

Index = NDArray[np.int64]


@dataclass(frozen=True)
class Augment:
    """Random crops after padding with zeros, and mirror images: drawn anew whenever a sample is."""

    pad: int
    flip: bool

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Index:
        """Return for every sample how far to move it down and right, and whether to mirror it:
        [*shape, 3].
        """
        return rng.integers((2 * self.pad + 1, 2 * self.pad + 1, 1 + self.flip), size=(*shape, 3))

    def apply(self, x: Tensor, moves: Tensor) -> Tensor:
        """Move images [..., channels, height, width], all at once."""
        images, how = x.flatten(0, -4), moves.flatten(0, -2)
        height, width = images.shape[-2:]
        rows = torch.arange(height, device=x.device) + how[:, :1]
        columns = torch.arange(width, device=x.device) + how[:, 1:2]
        columns = torch.where(how[:, 2:] > 0, columns.flip(1), columns)
        padded = F.pad(images, (self.pad,) * 4)
        which = torch.arange(len(images), device=x.device)
        picked = padded[which[:, None, None], :, rows[:, :, None], columns[:, None, :]]
        return picked.permute(0, 3, 1, 2).view(x.shape)


@dataclass(frozen=True)
class Samples:
    """Samples in the form in which they are stored (bytes or floats), and how the model sees them."""

    x: Tensor  # [n, ...]
    y: Tensor  # [n], classes
    scale: float | Tensor = (
        1.0  # the model sees x * scale + shift; a tensor broadcasts over a sample
    )
    shift: float | Tensor = 0.0
    augment: Augment | None = None  # in training only

    def __len__(self) -> int:
        return len(self.y)

    def only(self, mask: NDArray[np.bool_]) -> Samples:
        """Return some of the samples."""
        keep = torch.from_numpy(mask)
        return replace(self, x=self.x[keep], y=self.y[keep])

    def to(self, device: torch.device) -> Samples:
        """Return the samples on a device."""
        scale, shift = (
            v.to(device) if isinstance(v, Tensor) else v for v in (self.scale, self.shift)
        )
        return replace(self, x=self.x.to(device), y=self.y.to(device), scale=scale, shift=shift)

    def see(self, index: Tensor | slice, dtype: torch.dtype, moves: Tensor | None = None) -> Tensor:
        """Return samples as the model sees them, augmented if it is said how."""
        x = self.x[index] if isinstance(index, slice) else _rows(self.x, index)
        if self.augment is not None and moves is not None:
            x = self.augment.apply(x, moves)
        scaled, shifted = (
            isinstance(v, Tensor) or v != still
            for v, still in ((self.scale, 1.0), (self.shift, 0.0))
        )
        if (scaled or shifted) and isinstance(index, slice):
            x = x.to(dtype, copy=True)  # what is stored stays as it is
        x = x.to(dtype)
        x = x.mul_(self.scale) if scaled else x
        return x.add_(self.shift) if shifted else x


def _rows(table: Tensor, index: Tensor) -> Tensor:
    """Return table[index], which copies rows as they lie in memory and is several times faster."""
    return table.index_select(0, index.reshape(-1)).view(*index.shape, *table.shape[1:])


@dataclass(frozen=True)
class TrainData:
    """The training samples of the clients that live here."""

    samples: Samples
    parts: Mapping[int, Index]  # client -> its samples
    num_classes: int
    origin: Samples | None = None  # the same in main memory, if ``samples`` are on a device

    def to(self, device: torch.device) -> TrainData:
        """Return the samples on a device; who has which stays in main memory."""
        if self.samples.x.device == device:
            return self
        return replace(self, samples=self.samples.to(device), origin=self.samples)

    def draw(
        self,
        clients: Sequence[int],
        rngs: Sequence[np.random.Generator],
        shape: tuple[int, ...],
        dtype: torch.dtype,
    ) -> tuple[Tensor, Tensor]:
        """Let every client draw from its own samples, with replacement: x [C, *shape, ...], y [C,
        *shape, K].
        """
        return self.see(self.positions(clients, rngs, shape), dtype, self.moves(rngs, shape))

    def positions(
        self, clients: Sequence[int], rngs: Sequence[np.random.Generator], shape: tuple[int, ...]
    ) -> Tensor:
        """Return which samples every client draws: [C, *shape]."""
        parts = [self.parts[c] for c in clients]
        return self._here(
            np.stack([p[r.integers(len(p), size=shape)] for p, r in zip(parts, rngs, strict=True)])
        )

    def moves(self, rngs: Sequence[np.random.Generator], shape: tuple[int, ...]) -> Tensor | None:
        """Return how every client's draws are augmented, if they are: [C, *shape, 3]."""
        if self.samples.augment is None:
            return None
        return self._here(np.stack([self.samples.augment.draw(rng, shape) for rng in rngs]))

    def see(
        self, index: Tensor, dtype: torch.dtype, moves: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return samples as the model sees them, with one-hot labels, for an index of any shape."""
        # Rows of a unit matrix: one_hot would look at the values.
        return self.samples.see(index, dtype, moves), _rows(
            self._unit[dtype], _rows(self.samples.y, index)
        )

    @cached_property
    def _unit(self) -> dict[torch.dtype, Tensor]:
        device = self.samples.y.device
        return {dtype: torch.eye(self.num_classes, dtype=dtype, device=device) for dtype in DTYPES}

    def of(self, client: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return all samples of one client and their classes, in main memory."""
        index, samples = torch.from_numpy(self.parts[client]), self.origin or self.samples
        return samples.see(index, dtype), samples.y[index]

    def _here(self, index: Index) -> Tensor:
        return torch.from_numpy(index).to(self.samples.x.device, non_blocking=True)
