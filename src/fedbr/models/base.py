"""What a model of the table is: its options, and how to build it for samples of some shape."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, ConfigDict
from torch import nn

from ..core.model import FedModel
from ..util.errors import InputError


class ModelSpec(BaseModel):
    """The options of a model; subclasses say what it is."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: ClassVar[str]
    paper: ClassVar[str] = ""

    def build(self, shape: tuple[int, ...], num_classes: int) -> FedModel:
        """Make the model with fresh weights.

        Args:
            shape: of one sample.
            num_classes: how many outputs it has.

        Raises:
            InputError: the model cannot be built for such samples.
        """
        raise NotImplementedError

    def image(self, shape: tuple[int, ...]) -> tuple[int, int, int]:
        """Return channels, height and width of a sample.

        Raises:
            InputError: samples are no images.
        """
        if len(shape) != 3:
            raise InputError(
                f"model.name = {self.name!r}: expected images of shape (channels, height, width), "
                f"not {shape}; reshape the samples, or use model.name = 'mlp'"
            )
        return shape[0], shape[1], shape[2]


def scale_channels(channels: int, width: float) -> int:
    """Return channels times width, rounded to a multiple of 8 and at least 8.

    >>> scale_channels(64, 0.25), scale_channels(64, 0.01)
    (16, 8)
    """
    return 8 * max(1, round(channels * width / 8))


def he_normal(model: FedModel) -> FedModel:
    """Draw the convolutions as He et al. (2015) do: ReLUs then keep the scale of their input."""
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
    return model
