"""Smaller images, for runs that a CPU can do: means of blocks of pixels, stored as before."""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.nn.functional as F

from ..core.samples import Augment, Samples
from ..util.errors import InputError
from .federation import Source

AT_ONCE = 4096  # images as floats in memory


def shrunk(source: Source, factor: int) -> Source:
    """Return a data set whose images are smaller by a factor each way; what does not fill a block
    is cut off.
    """
    if factor == 1:
        return source
    shape = tuple(source.train.x.shape[1:])
    if len(shape) != 3 or min(shape[1:]) < factor:
        raise InputError(
            f"data.shrink = {factor}: for images of at least so many pixels each way, not {shape}"
        )
    return replace(source, train=_smaller(source.train, factor), test=_smaller(source.test, factor))


def _smaller(samples: Samples, factor: int) -> Samples:
    x, move = samples.x, samples.augment
    means = (
        [F.avg_pool2d(part.float(), factor) for part in torch.split(x, AT_ONCE)]
        if len(x)
        else [x.float()]
    )
    small = torch.cat([(m if x.is_floating_point() else m.round()).to(x.dtype) for m in means])
    return replace(
        samples, x=small, augment=move and Augment(max(1, move.pad // factor), move.flip)
    )
