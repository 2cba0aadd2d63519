"""ResNet18 (He et al., 2016) with GroupNorm: the paper's second model of CIFAR10."""

from __future__ import annotations

from typing import ClassVar

from .residual import ResNet


class ResNet18GN(ResNet):
    """ResNet18 for 32x32: stem of stride 1 without max pool, four stages of two blocks, GroupNorm.

    11,173,962 parameters for RGB images of 10 classes, 512 features; ``residual.py`` says what a
    block is.
    """

    name: ClassVar[str] = "resnet18-gn"
    paper: ClassVar[str] = (
        "He, Zhang, Ren, Sun. Deep Residual Learning for Image Recognition, CVPR 2016"
    )
    stages: ClassVar[tuple[int, ...]] = (64, 128, 256, 512)
    blocks: ClassVar[int] = 2
