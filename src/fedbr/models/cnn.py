"""The four-layer CNN of the paper's RotatedMNIST (DomainBed's MNIST_CNN)."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field
from torch import nn

from ..core.model import FedModel
from .base import ModelSpec, scale_channels


class CNN(ModelSpec):
    """Four 3x3 convolutions, each with ReLU then GroupNorm, and a global average pool."""

    name: ClassVar[str] = "cnn"
    paper: ClassVar[str] = (
        "Gulrajani, Lopez-Paz. In Search of Lost Domain Generalization, ICLR 2021"
    )

    width: float = Field(
        1.0, gt=0, le=16, description="multiplies the 64 and 128 channels; rounded to 8s"
    )

    def build(self, shape: tuple[int, ...], num_classes: int) -> FedModel:
        channels, _, _ = self.image(shape)
        narrow, wide = scale_channels(64, self.width), scale_channels(128, self.width)
        convolutions = (  # channels in and out, and the stride
            (channels, narrow, 1),
            (narrow, wide, 2),
            (wide, wide, 1),
            (wide, wide, 1),
        )
        layers: list[nn.Module] = []
        for inputs, outputs, stride in convolutions:
            layers += [
                nn.Conv2d(inputs, outputs, 3, stride, padding=1),
                nn.ReLU(),
                nn.GroupNorm(8, outputs),
            ]
        layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        return FedModel(nn.Sequential(*layers), wide, num_classes)
