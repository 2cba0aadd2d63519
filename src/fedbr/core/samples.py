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
    """Random crops after padding with zeros, and mirror images.

    They are drawn anew whenever a sample is.
    """

    pad: int
    flip: bool

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Index:
        """Draw for every sample how far to move it down and right, and whether to mirror it.

        Args:
            rng: of one client.
            shape: of the samples.

        Returns:
            Whole numbers, [*shape, 3].
        """
        places = 2 * self.pad + 1
        return rng.integers((places, places, 1 + self.flip), size=(*shape, 3))

    def apply(self, x: Tensor, moves: Tensor) -> Tensor:
        """Move images, [..., channels, height, width], all at once.

        Args:
            x: the images.
            moves: what ``draw`` returned for each, [..., 3].
        """
        images, moves = x.flatten(0, -4), moves.flatten(0, -2)
        height, width = images.shape[-2:]
        down, right, mirrored = moves[:, 0:1], moves[:, 1:2], moves[:, 2:3] > 0
        rows = torch.arange(height, device=x.device) + down
        columns = torch.arange(width, device=x.device) + right
        columns = torch.where(mirrored, columns.flip(1), columns)
        padded = F.pad(images, (self.pad,) * 4)
        image = torch.arange(len(images), device=x.device)
        cropped = padded[image[:, None, None], :, rows[:, :, None], columns[:, None, :]]
        return cropped.permute(0, 3, 1, 2).view(x.shape)


@dataclass(frozen=True)
class Samples:
    """Samples as they are stored, bytes or floats, and how the model sees them.

    >>> samples = Samples(torch.tensor([[0, 255]], dtype=torch.uint8), torch.tensor([3]), 1 / 255)
    >>> samples.see(slice(None), torch.float32)
    tensor([[0., 1.]])
    """

    x: Tensor  # [n, ...]
    y: Tensor  # [n], classes
    # The model sees x * scale + shift; a tensor broadcasts over a sample.
    scale: float | Tensor = 1.0
    shift: float | Tensor = 0.0
    augment: Augment | None = None  # in training only

    def __len__(self) -> int:
        return len(self.y)

    def only(self, mask: NDArray[np.bool_]) -> Samples:
        """Return those of the samples for which a mask is true."""
        keep = torch.from_numpy(mask)
        return replace(self, x=self.x[keep], y=self.y[keep])

    def to(self, device: torch.device) -> Samples:
        """Return the samples on a device."""
        scale = self.scale.to(device) if isinstance(self.scale, Tensor) else self.scale
        shift = self.shift.to(device) if isinstance(self.shift, Tensor) else self.shift
        return replace(self, x=self.x.to(device), y=self.y.to(device), scale=scale, shift=shift)

    def see(self, index: Tensor | slice, dtype: torch.dtype, moves: Tensor | None = None) -> Tensor:
        """Return samples as the model sees them.

        Args:
            index: which ones.
            dtype: in which the model computes.
            moves: how to augment each of them; None: not at all.
        """
        x = self.x[index] if isinstance(index, slice) else _rows(self.x, index)
        if self.augment is not None and moves is not None:
            x = self.augment.apply(x, moves)
        scales = isinstance(self.scale, Tensor) or self.scale != 1.0
        shifts = isinstance(self.shift, Tensor) or self.shift != 0.0
        if (scales or shifts) and isinstance(index, slice):
            x = x.to(dtype, copy=True)  # a slice is a view: what is stored must stay as it is
        x = x.to(dtype)
        if scales:
            x = x.mul_(self.scale)
        if shifts:
            x = x.add_(self.shift)
        return x


def _rows(table: Tensor, index: Tensor) -> Tensor:
    """Return table[index]; index_select copies whole rows and is several times faster."""
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
        """Let every client draw from its own samples, with replacement.

        Args:
            clients: who draws.
            rngs: one for each of them.
            shape: how many each of them draws.
            dtype: in which the model computes.

        Returns:
            The samples, [C, *shape, ...], and their one-hot labels, [C, *shape, K].
        """
        index = self.positions(clients, rngs, shape)
        return self.see(index, dtype, self.moves(rngs, shape))

    def positions(
        self, clients: Sequence[int], rngs: Sequence[np.random.Generator], shape: tuple[int, ...]
    ) -> Tensor:
        """Return which samples every client draws: [C, *shape]."""
        positions = []
        for client, rng in zip(clients, rngs, strict=True):
            part = self.parts[client]
            positions.append(part[rng.integers(len(part), size=shape)])
        return self._to_device(np.stack(positions))

    def moves(self, rngs: Sequence[np.random.Generator], shape: tuple[int, ...]) -> Tensor | None:
        """Return how every client's draws are augmented, if they are: [C, *shape, 3]."""
        if self.samples.augment is None:
            return None
        moves = [self.samples.augment.draw(rng, shape) for rng in rngs]
        return self._to_device(np.stack(moves))

    def see(
        self, index: Tensor, dtype: torch.dtype, moves: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return samples as the model sees them, with one-hot labels, for an index of any shape."""
        classes = _rows(self.samples.y, index)
        # Rows of a unit matrix: one_hot would look at the values, for which a device has to wait.
        labels = _rows(self._unit_matrices[dtype], classes)
        return self.samples.see(index, dtype, moves), labels

    @cached_property
    def _unit_matrices(self) -> dict[torch.dtype, Tensor]:
        device = self.samples.y.device
        return {dtype: torch.eye(self.num_classes, dtype=dtype, device=device) for dtype in DTYPES}

    def of(self, client: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return all samples of one client and their classes, in main memory."""
        index = torch.from_numpy(self.parts[client])
        samples = self.origin or self.samples
        return samples.see(index, dtype), samples.y[index]

    def _to_device(self, index: Index) -> Tensor:
        return torch.from_numpy(index).to(self.samples.x.device, non_blocking=True)
