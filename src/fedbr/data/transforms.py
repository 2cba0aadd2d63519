"""Image transforms that make one domain from another."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

_CHUNK = 2**22  # values per grid_sample call: 16 MB in float32


def rotate(images: Tensor, degrees: float) -> Tensor:
    """Rotate images [n, channels, h, w] counter-clockwise about the centre, bilinear, zeros outside."""
    height, width = images.shape[-2:]
    if degrees % 180 == 0 or (degrees % 90 == 0 and height == width):
        return torch.rot90(images, int(degrees // 90) % 4, dims=(-2, -1)).contiguous()
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    # Output pixel (x, y), y downwards, reads input (x cos - y sin, x sin + y cos); affine_grid wants this in
    # units of half the width and half the height, hence the aspect ratios.
    theta = torch.tensor([[[cos, -sin * height / width, 0.0], [sin * width / height, cos, 0.0]]], dtype=torch.float32)
    grid = F.affine_grid(theta, [1, 1, height, width], align_corners=False).to(images.device)
    rotated = torch.empty(images.shape, dtype=images.dtype, device=images.device)
    step = max(1, _CHUNK // images.shape[1:].numel())
    for start in range(0, len(images), step):
        chunk = images[start : start + step].float()
        chunk = F.grid_sample(chunk, grid.expand(len(chunk), -1, -1, -1), align_corners=False)
        rotated[start : start + step] = chunk if images.is_floating_point() else chunk.round()
    return rotated
