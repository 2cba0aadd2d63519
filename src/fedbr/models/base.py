"""What a model of the table is: its options, and how to build it for samples of some shape."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, ConfigDict

from ..core.errors import InputError
from ..core.model import FedModel


class ModelSpec(BaseModel):
    """The options of a model; subclasses say what it is."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: ClassVar[str]
    paper: ClassVar[str] = ""

    def build(self, shape: tuple[int, ...], num_classes: int) -> FedModel:
        """Make the model with fresh weights."""
        raise NotImplementedError

    def image(self, shape: tuple[int, ...]) -> tuple[int, int, int]:
        """Return channels, height and width, or refuse samples that are no images."""
        if len(shape) != 3:
            raise InputError(
                f"model.name = {self.name!r}: wants images of shape (channels, height, width), not {shape}; "
                "reshape the samples, or use model.name = 'mlp'"
            )
        return shape[0], shape[1], shape[2]
