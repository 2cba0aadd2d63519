"""Public samples that belong to nobody, for pseudo-data that reveal nothing (proxy data)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ..core.rng import stream
from ..core.samples import Samples
from ..util.errors import InputError, unknown
from ..util.imports import require
from .source import Source

COUNT = 2000


def photos(shape: tuple[int, ...], rng: np.random.Generator) -> Tensor:
    """Cut patches out of two photographs (a temple and a flower) that come with scikit-learn.

    Raises:
        InputError: samples of this shape are no images.
    """
    if len(shape) != 3 or shape[0] not in (1, 3):
        raise InputError(
            f"data.proxy = 'photos': samples have shape {shape}, not (1 or 3, height, width); use "
            "'noise'"
        )
    require("PIL", extra="images", needed_by="data.proxy = 'photos'")
    from sklearn.datasets import load_sample_images

    images = []
    for photo in load_sample_images().images:
        images.append(torch.tensor(photo).permute(2, 0, 1).float() / 255)
    patches = []
    for _ in range(COUNT):
        image = images[rng.integers(len(images))]
        height, width = image.shape[1:]
        size = int(rng.integers(32, 128))
        top = int(rng.integers(height - size))
        left = int(rng.integers(width - size))
        patch = image[None, :, top : top + size, left : left + size]
        patch = F.interpolate(patch, size=shape[1:], mode="bilinear", antialias=True)[0]
        if shape[0] == 1:
            patch = patch.mean(dim=0, keepdim=True)
        patches.append(patch)
    return torch.stack(patches)


def noise(shape: tuple[int, ...], rng: np.random.Generator) -> Tensor:
    """Draw independent pixels, uniform from black to white."""
    return torch.from_numpy(rng.random((COUNT, *shape), dtype=np.float32))


PROXIES: dict[str, Callable[[tuple[int, ...], np.random.Generator], Tensor]] = {
    "photos": photos,
    "noise": noise,
}


def load(name: str, source: Source) -> Samples | None:
    """Return public samples that are stored and seen as those of a data set.

    Args:
        name: photos or noise; empty: there are none.
        source: the data set.

    Raises:
        InputError: the name is unknown, or samples are no images.
    """
    if not name:
        return None
    if name not in PROXIES:
        raise unknown("data.proxy", name, PROXIES)
    shape = tuple(source.train.x.shape[1:])
    x = PROXIES[name](shape, stream(0, "proxy", name)) * source.peak
    return replace(source.train, x=x, y=torch.zeros(len(x), dtype=torch.long))
