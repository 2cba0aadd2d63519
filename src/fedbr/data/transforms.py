"""What is done to images before training: made smaller, or turned at angles of their own."""

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
from ..core.samples import Augment, Samples, TrainData
from ..util.errors import InputError
from .cache import load_or_make
from .federation import Federation
from .options import DataOptions
from .source import Source

STEP = 15.0  # degrees from one client to the next
ANGLES = [STEP * i for i in range(10)]

_AT_ONCE = 4096  # images as floats in memory
_CHUNK = 2**22  # values per grid_sample call: 16 MB in float32
_WORTH_KEEPING = 2**21  # values from which a rotation is kept on disk


def shrink(source: Source, factor: int) -> Source:
    """Average blocks of pixels into one; what does not fill a block is cut off.

    Args:
        source: a data set of images.
        factor: pixels of a block each way; 1: leave the images as they are.

    Raises:
        InputError: samples are no images, or smaller than a block.
    """
    if factor == 1:
        return source
    shape = tuple(source.train.x.shape[1:])
    if len(shape) != 3 or min(shape[1:]) < factor:
        raise InputError(
            f"data.shrink = {factor}: for images of at least so many pixels each way, not {shape}"
        )
    return replace(
        source,
        train=_shrink_samples(source.train, factor),
        test=_shrink_samples(source.test, factor),
    )


def _shrink_samples(samples: Samples, factor: int) -> Samples:
    means = []
    for part in torch.split(samples.x, _AT_ONCE):
        mean = part.float()
        if len(part):
            mean = F.avg_pool2d(mean, factor)
        if not part.is_floating_point():
            mean = mean.round()
        means.append(mean.to(part.dtype))
    augment = samples.augment
    if augment is not None:
        augment = Augment(max(1, augment.pad // factor), augment.flip)
    return replace(samples, x=torch.cat(means), augment=augment)


def turn_clients(federation: Federation, options: DataOptions, seed: int) -> Federation:
    """Rotate client i, its training samples and its copy of the test set, by i * 15 degrees."""
    train, (test,) = federation.train, federation.tests
    degrees = np.zeros(len(train.samples))
    for client, part in train.parts.items():
        degrees[part] = client * STEP % 360
    tests = _at_angles(test, [client * STEP % 360 for client in train.parts])
    return replace(federation, train=_turn(train, degrees), tests=tests)


def turn_images(federation: Federation, options: DataOptions, seed: int) -> Federation:
    """Rotate every image by an angle from its client's own mix, and test at all angles.

    The mix is drawn from Dir(options.rotation).
    """
    train, (test,) = federation.train, federation.tests
    count = len(ANGLES)
    degrees = np.zeros(len(train.samples))
    mix = torch.zeros(len(train.parts), count)
    for client, part in train.parts.items():
        rng = stream(seed, "angles", client)
        shares = rng.dirichlet([options.rotation] * count)
        drawn = rng.choice(count, size=len(part), p=shares)
        degrees[part] = np.asarray(ANGLES)[drawn]
        mix[client] = torch.from_numpy(np.bincount(drawn, minlength=count) / len(part))
    tests = _at_angles(test, ANGLES)
    return replace(federation, train=_turn(train, degrees), tests=tests, mix=mix)


def _turn(train: TrainData, degrees: NDArray[np.float64]) -> TrainData:
    return replace(train, samples=replace(train.samples, x=rotate_each(train.samples.x, degrees)))


def _at_angles(test: Samples, angles: Sequence[float]) -> list[Samples]:
    """Return the test set at each angle; where an angle comes again, the same object."""
    turned = {}
    for angle in dict.fromkeys(angles):
        turned[angle] = replace(test, x=rotate_each(test.x, np.full(len(test), angle)))
    return [turned[angle] for angle in angles]


def rotate_each(images: Tensor, degrees: NDArray[np.float64]) -> Tensor:
    """Rotate every image by its own angle.

    Of many images, the result is kept on disk for the next time.
    """

    def turn() -> dict[str, NDArray[np.generic]]:
        turned = images.clone()
        for angle in np.unique(degrees):
            index = torch.from_numpy(np.flatnonzero(degrees == angle))
            turned[index] = rotate(images[index], float(angle))
        return {"x": turned.numpy()}

    if images.numel() < _WORTH_KEEPING:
        return torch.from_numpy(turn()["x"])
    kind = f"rotate {images.dtype} {tuple(images.shape)}"
    key_parts: list[bytes | str] = [kind, images.numpy().tobytes(), degrees.tobytes()]
    return torch.from_numpy(load_or_make(key_parts, turn)["x"])


def rotate(images: Tensor, degrees: float) -> Tensor:
    """Rotate images counter-clockwise about the centre, bilinear, with zeros outside.

    Args:
        images: [n, channels, height, width], bytes or floats.
        degrees: the angle.

    >>> rotate(torch.tensor([[[[1, 2], [3, 4]]]]), 90).tolist()
    [[[[2, 4], [1, 3]]]]
    """
    height, width = images.shape[-2:]
    if degrees % 180 == 0 or (degrees % 90 == 0 and height == width):
        return torch.rot90(images, int(degrees // 90) % 4, dims=(-2, -1)).contiguous()
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    # Output pixel (x, y), y downwards, reads input (x cos - y sin, x sin + y cos); affine_grid
    # takes this in units of half the width and half the height, hence the aspect ratios.
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
