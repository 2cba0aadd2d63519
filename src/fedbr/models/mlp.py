"""A multi-layer perceptron for samples of any shape."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field
from torch import nn

from ..core.model import FedModel
from .base import ModelSpec


def as_sizes(value: Any) -> Any:
    """Let one layer be a number."""
    return (value,) if isinstance(value, int) else value


class MLP(ModelSpec):
    """Hidden layers with ReLU on the flattened sample; the last hidden layer is the feature."""

    name: ClassVar[str] = "mlp"

    hidden: Annotated[
        tuple[Annotated[int, Field(ge=1, le=10**6)], ...], BeforeValidator(as_sizes)
    ] = Field((64,), min_length=1, description="sizes of the hidden layers")
    width: float = Field(1.0, gt=0, le=64, description="multiplies the hidden layers")

    def build(self, shape: tuple[int, ...], num_classes: int) -> FedModel:
        sizes = [math.prod(shape)]
        for hidden in self.hidden:
            sizes.append(max(1, round(hidden * self.width)))
        layers: list[nn.Module] = [nn.Flatten()]
        for inputs, outputs in pairwise(sizes):
            layers += [nn.Linear(inputs, outputs), nn.ReLU()]
        return FedModel(nn.Sequential(*layers), sizes[-1], num_classes)
