"""VGG11 (Simonyan, Zisserman, 2015) without its large classifier: the paper's model of CIFAR10."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field
from torch import nn

from ..core.model import FedModel
from ..util.errors import InputError
from .base import ModelSpec, he_normal, scale_channels

# Channels of the convolutions before each pool.
STAGES = ((64,), (128,), (256, 256), (512, 512), (512, 512))
SMALLEST = 16  # leaves one pixel for the last pool


class VGG11(ModelSpec):
    """Eight 3x3 convolutions with ReLU, five max pools, and a global average pool.

    No batch norm, and one linear layer as classifier: 9,225,610 parameters for RGB images of 10
    classes. Images of less than 32 pixels a side, such as MNIST's, leave a single row to the last
    pool; it then rounds up and keeps it. Without norms, PyTorch's own first weights would shrink
    the signal in every layer: these are He et al.'s.
    """

    name: ClassVar[str] = "vgg11"
    paper: ClassVar[str] = "Simonyan, Zisserman. Very Deep Convolutional Networks, ICLR 2015"

    width: float = Field(
        1.0, gt=0, le=16, description="multiplies the 64 to 512 channels; rounded to 8s"
    )

    def build(self, shape: tuple[int, ...], num_classes: int) -> FedModel:
        channels, *sides = self.image(shape)
        if min(sides) < SMALLEST:
            raise InputError(
                f"model.name = {self.name!r}: its pools need images of at least {SMALLEST} x "
                f"{SMALLEST} pixels, not {sides[0]} x {sides[1]}; enlarge the images, or use "
                "model.name = 'cnn'"
            )
        layers: list[nn.Module] = []
        for stage in STAGES:
            for outputs in [scale_channels(c, self.width) for c in stage]:
                layers += [nn.Conv2d(channels, outputs, 3, padding=1), nn.ReLU()]
                channels = outputs
            layers.append(nn.MaxPool2d(2))
        layers[-1] = nn.MaxPool2d(2, ceil_mode=min(sides) < 2 * SMALLEST)
        encoder = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        return he_normal(FedModel(encoder, channels, num_classes))
