"""ResNet (He et al., 2016) with GroupNorm (Wu, He, 2018): what the ResNets have in common."""

from __future__ import annotations

import math
from typing import ClassVar

from pydantic import Field
from torch import nn

from ..core.fast.stacked import Residual
from ..core.model import FedModel
from ..util.errors import InputError
from .base import ModelSpec, he_normal, scale_channels


class ResNet(ModelSpec):
    """A 3x3 convolution, then stages of residual blocks, each but the first on half the image.

    Every block has two 3x3 convolutions. Where it halves the image, its shortcut is a 1x1
    convolution with a norm (option B of the paper), elsewhere the identity. Two groups in a
    GroupNorm are what federated learning uses since Hsieh et al. (ICML 2020) and Reddi et al. (ICLR
    2021).
    """

    stages: ClassVar[tuple[int, ...]]  # channels
    blocks: ClassVar[int]  # in every stage

    width: float = Field(
        1.0, gt=0, le=16, description="multiplies the channels of all stages; rounded to 8s"
    )
    groups: int = Field(
        2, ge=1, le=10**4, description="of every GroupNorm; must divide the channels"
    )

    def build(self, shape: tuple[int, ...], num_classes: int) -> FedModel:
        channels, _, _ = self.image(shape)
        stages = [scale_channels(c, self.width) for c in self.stages]
        if (common := math.gcd(*stages)) % self.groups:
            divisors = [number for number in range(1, common + 1) if common % number == 0]
            allowed = ", ".join(map(str, divisors))
            raise InputError(
                f"model.groups = {self.groups}: must divide the channels of all stages "
                f"({', '.join(map(str, stages))}); allowed: {allowed}"
            )
        inputs = stages[0]
        layers: list[nn.Module] = [*self._conv(channels, inputs, 3), nn.ReLU()]
        for i, outputs in enumerate(stages):
            for j in range(self.blocks):
                layers += self._block(inputs, outputs, stride=2 if i > 0 and j == 0 else 1)
                inputs = outputs
        encoder = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        return he_normal(FedModel(encoder, inputs, num_classes))

    def _block(self, inputs: int, outputs: int, stride: int) -> list[nn.Module]:
        body = nn.Sequential(
            *self._conv(inputs, outputs, 3, stride), nn.ReLU(), *self._conv(outputs, outputs, 3)
        )
        shortcut = nn.Sequential(*self._conv(inputs, outputs, 1, stride)) if stride > 1 else None
        return [Residual(body, shortcut), nn.ReLU()]

    def _conv(self, inputs: int, outputs: int, size: int, stride: int = 1) -> list[nn.Module]:
        conv = nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)
        return [conv, nn.GroupNorm(self.groups, outputs)]
