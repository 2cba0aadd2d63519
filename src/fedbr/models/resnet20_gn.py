"""ResNet20 (He et al., 2016) with GroupNorm: for CIFAR, forty times smaller than ResNet18."""

from __future__ import annotations

from typing import ClassVar

from .residual import ResNet


class ResNet20GN(ResNet):
    """The ResNet20 of CIFAR: three stages of three blocks, 16 to 64 channels, GroupNorm.

    272,474 parameters for RGB images of 10 classes, 64 features. He et al. pad the shortcuts with
    zeros where the image is halved (option A, 2,752 parameters less); as in ResNet18, they are 1x1
    convolutions here (option B).
    """

    name: ClassVar[str] = "resnet20-gn"
    paper: ClassVar[str] = (
        "He, Zhang, Ren, Sun. Deep Residual Learning for Image Recognition, CVPR 2016"
    )
    stages: ClassVar[tuple[int, ...]] = (16, 32, 64)
    blocks: ClassVar[int] = 3
