"""Rotation: clients, or images, at angles of their own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from ..core.rng import stream
from ..core.samples import Samples, TrainData
from .cache import cached
from .federation import Federation

_CHUNK = 2**22  # values per grid_sample call: 16 MB in float32
_WORTH_KEEPING = 2**21  # values from which a rotation is kept on disk


def rotate_clients(federation: Federation, step: float) -> Federation:
    """Rotate client i, its training samples and its copy of the test set, by i * step degrees."""
    train, (test,) = federation.train, federation.tests
    degrees = np.zeros(len(train.samples))
    for client, part in train.parts.items():
        degrees[part] = client * step % 360
    tests = _at_angles(test, [client * step % 360 for client in train.parts])
    return replace(federation, train=_rotated(train, degrees), tests=tests)


def rotate_images(
    federation: Federation, angles: Sequence[float], concentration: float, seed: int
) -> Federation:
    """Rotate every image by an angle from its client's own mix, drawn from Dir(concentration); test
    at all angles.
    """
    train, (test,) = federation.train, federation.tests
    degrees, mix = np.zeros(len(train.samples)), torch.zeros(len(train.parts), len(angles))
    for client, part in train.parts.items():
        rng = stream(seed, "angles", client)
        drawn = rng.choice(
            len(angles), size=len(part), p=rng.dirichlet([concentration] * len(angles))
        )
        degrees[part] = np.asarray(angles)[drawn]
        mix[client] = torch.from_numpy(np.bincount(drawn, minlength=len(angles)) / len(part))
    return replace(
        federation, train=_rotated(train, degrees), tests=_at_angles(test, angles), mix=mix
    )


def _rotated(train: TrainData, degrees: NDArray[np.float64]) -> TrainData:
    return replace(train, samples=replace(train.samples, x=rotate_each(train.samples.x, degrees)))


def _at_angles(test: Samples, angles: Sequence[float]) -> list[Samples]:
    """Return the test set at each angle; where an angle comes again, the same object."""
    turned = {
        a: replace(test, x=rotate_each(test.x, np.full(len(test), a)))
        for a in dict.fromkeys(angles)
    }
    return [turned[a] for a in angles]


def rotate_each(images: Tensor, degrees: NDArray[np.float64]) -> Tensor:
    """Rotate every image by its own angle; of many images, the result is kept on disk for the next
    time.
    """

    def turn() -> dict[str, NDArray[np.generic]]:
        turned = images.clone()
        for angle in np.unique(degrees):
            index = torch.from_numpy(np.flatnonzero(degrees == angle))
            turned[index] = rotate(images[index], float(angle))
        return {"x": turned.numpy()}

    if images.numel() < _WORTH_KEEPING:
        return torch.from_numpy(turn()["x"])
    what = f"rotate {images.dtype} {tuple(images.shape)}"
    return torch.from_numpy(cached([what, images.numpy().tobytes(), degrees.tobytes()], turn)["x"])


def rotate(images: Tensor, degrees: float) -> Tensor:
    """Rotate images [n, channels, h, w] counter-clockwise about the centre, bilinear, zeros
    outside.
    """
    height, width = images.shape[-2:]
    if degrees % 180 == 0 or (degrees % 90 == 0 and height == width):
        return torch.rot90(images, int(degrees // 90) % 4, dims=(-2, -1)).contiguous()
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    # Output pixel (x, y), y downwards, reads input (x cos - y sin, x sin + y cos); affine_grid
    # wants this in units of half the width and half the height, hence the aspect ratios.
    theta = torch.tensor(
        [[[cos, -sin * height / width, 0.0], [sin * width / height, cos, 0.0]]], dtype=torch.float32
    )
    grid = F.affine_grid(theta, [1, 1, height, width], align_corners=False).to(images.device)
    rotated = torch.empty(images.shape, dtype=images.dtype, device=images.device)
    step = max(1, _CHUNK // images.shape[1:].numel())
    for start in range(0, len(images), step):
        chunk = images[start : start + step].float()
        chunk = F.grid_sample(chunk, grid.expand(len(chunk), -1, -1, -1), align_corners=False)
        rotated[start : start + step] = chunk if images.is_floating_point() else chunk.round()
    return rotated
