"""Virtual data (for VHL): labelled samples of a random generator, which has seen nobody's data."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

STYLE = 64  # numbers that describe a sample
CHANNELS = 16  # of the generator's layers
SPREAD = 0.3  # of the styles within a class; the classes' own lie 1 apart in every number


def virtual_samples(
    count: int, num_classes: int, shape: tuple[int, ...], rng: np.random.Generator
) -> tuple[Tensor, Tensor]:
    """Return samples with mean 0 and variance 1, and their classes, which take turns.

    A class is a region of styles, so that classes can be told apart. A style becomes an image as in
    StyleGAN: a constant small picture grows by layers whose channels the style scales; other shapes
    come from two linear layers.

    Args:
        count: how many samples.
        num_classes: how many classes.
        shape: of a sample.
        rng: draws styles and the generator's weights.
    """
    random = partial(_normal, rng)
    y = torch.arange(count) % num_classes
    style = random(num_classes, STYLE)[y] + SPREAD * random(count, STYLE)
    style = F.leaky_relu(style @ random(STYLE, STYLE) / STYLE**0.5, 0.2)  # the mapping network
    if len(shape) == 3:
        x = _draw_images(style, shape, rng)
    else:
        x = style @ random(STYLE, int(np.prod(shape)))
    x = x.reshape(count, *shape)
    return (x - x.mean()) / x.std(correction=0).clamp(min=1e-6), y


def _normal(rng: np.random.Generator, *size: int) -> Tensor:
    return torch.from_numpy(rng.standard_normal(size, dtype=np.float32))


def _draw_images(style: Tensor, shape: tuple[int, ...], rng: np.random.Generator) -> Tensor:
    """Make an image of every style, some at a time to bound the memory."""
    random = partial(_normal, rng)
    channels, height, width = shape
    start, edge = random(1, CHANNELS, 4, 4), 4
    layers: list[tuple[Tensor, Tensor]] = []
    while edge < max(height, width) or not layers:
        affine = random(STYLE, CHANNELS) / STYLE**0.5
        kernel = random(CHANNELS, CHANNELS, 3, 3) / (9 * CHANNELS) ** 0.5
        layers.append((affine, kernel))
        edge *= 2
    colour = random(channels, CHANNELS, 1, 1) / CHANNELS**0.5
    images = []
    for styles in torch.split(style, max(1, 2**24 // (CHANNELS * edge**2))):
        x = start.expand(len(styles), -1, -1, -1)
        for affine, kernel in layers:
            x = F.interpolate(x, scale_factor=2, mode="bilinear")
            x = F.conv2d(x * (1 + styles @ affine)[:, :, None, None], kernel, padding=1)
            norm = x.square().mean(dim=(1, 2, 3), keepdim=True).sqrt().clamp(min=1e-6)
            x = F.leaky_relu(x / norm, 0.2)
        images.append(F.conv2d(F.interpolate(x, (height, width), mode="bilinear"), colour))
    return torch.cat(images)
