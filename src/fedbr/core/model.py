"""The one model shape that every method can rely on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..util.errors import InputError
from .wire import State


class Output(NamedTuple):
    features: Tensor
    logits: Tensor


class FedModel(nn.Module):
    """A feature extractor and a classifier.

    ``extras`` holds what methods add, and is federated too.
    """

    def __init__(
        self,
        encoder: nn.Module,
        num_features: int,
        num_classes: int,
        classifier: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.classifier = nn.Linear(num_features, num_classes) if classifier is None else classifier
        self.extras = nn.ModuleDict()
        self.num_features = num_features
        self.num_classes = num_classes
        # Scale and shift.
        self.bytes_seen_as: tuple[float | Tensor, float | Tensor] = (1 / 255, 0.0)
        self.class_names: Sequence[str] | None = None  # in the order of what ``predict`` returns
        self.sample_shape: tuple[int, ...] | None = None  # what it was trained on; None: not known

    def forward(self, x: Tensor) -> Output:
        features = self.encoder(x)
        return Output(features, self.classifier(features))

    def weights(self) -> State:
        """Return what a client must have to compute as this model does: parameters and all buffers."""
        return {k: v.detach() for k, v in (*self.named_parameters(), *self.named_buffers())}

    @torch.no_grad()
    def set_weights(self, weights: State) -> None:
        """Take over what ``weights`` returned."""
        for key, value in self.weights().items():
            value.copy_(weights[key])

    def _samples(self, x: Tensor) -> Tensor:
        """Refuse what is not a batch of samples as they were in training."""
        if not (x.dtype == torch.uint8 or x.is_floating_point()):
            raise InputError(
                f"predict: samples of type {x.dtype}; bytes (pixels from 0 to 255) or floats are wanted"
            )
        shape = self.sample_shape
        if shape is not None and tuple(x.shape[1:]) != shape:
            hint = ""
            if tuple(x.shape) == shape:
                hint = "; for one sample, x[None]"
            elif len(shape) == 3 and tuple(x.shape[1:]) == (*shape[1:], shape[0]):
                hint = "; channels first, x.permute(0, 3, 1, 2) or np.moveaxis(x, -1, 1)"
            wanted = ", ".join(map(str, shape))
            raise InputError(
                f"predict: x has shape {tuple(x.shape)}; (samples, {wanted}) is wanted{hint}"
            )
        return x

    def predict(self, x: Tensor | NDArray[Any]) -> Tensor:
        """Return the most likely class of each sample, in eval mode.

        Bytes are scaled as they were in training.
        """
        x = self._samples(torch.as_tensor(x))
        dtype = next(self.parameters()).dtype
        if x.dtype == torch.uint8:
            scale, shift = self.bytes_seen_as
            x = x.to(dtype) * scale + shift
        x = x.to(dtype)
        was_training = self.training
        self.eval()
        with torch.inference_mode():
            classes: Tensor = self(x).logits.argmax(dim=-1)
        self.train(was_training)
        return classes


class ClientModels(Protocol):
    """What methods may use of the models of C clients; every weight has a leading client axis."""

    size: int  # C
    groups: dict[str, State]  # those that train: of "model", and of each module that a method adds

    @property
    def weights(self) -> State:
        """All of them, [C, ...]."""
        ...

    def __call__(self, x: Tensor) -> Output:
        """Run [C, B, ...]; without the client axis, all clients see the same samples."""
        ...

    def extra(self, name: str, z: Tensor) -> Tensor:
        """Run a method's own module, [C, n, ...]."""
        ...

    def frozen(self, weights: State, x: Tensor) -> Output:
        """Run at other weights, in eval mode, without gradients.

        Weights may be what the server sent (no client axis) or what each client kept (client
        axis); so may x.
        """
        ...

    def snapshot(self) -> State:
        """Return all weights, [C, ...]."""
        ...

    def load(self, weights: State) -> None:
        """Take over what ``snapshot`` returned."""
        ...
