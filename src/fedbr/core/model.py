"""The form of a model that every method can rely on: a feature extractor and a classifier."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..util.errors import InputError
from .wire import State


class Output(NamedTuple):
    """What a model makes of a batch."""

    features: Tensor  # [B, num_features]
    logits: Tensor  # [B, num_classes]


class FedModel(nn.Module):
    """A feature extractor and a classifier.

    >>> model = FedModel(nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU()), 16, 10)
    >>> model(torch.zeros(2, 1, 8, 8)).logits.shape
    torch.Size([2, 10])

    Args:
        encoder: samples to features, [B, num_features].
        num_features: how many features there are.
        num_classes: how many classes there are.
        classifier: features to logits; by default a linear layer.

    Attributes:
        extras: modules that methods add; they are federated too.
        class_names: in the order of what ``predict`` returns.
        sample_shape: of the samples of the training; None: not known.
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
        # A byte is seen as byte * scale + shift.
        self.bytes_seen_as: tuple[float | Tensor, float | Tensor] = (1 / 255, 0.0)
        self.class_names: Sequence[str] | None = None
        self.sample_shape: tuple[int, ...] | None = None

    def forward(self, x: Tensor) -> Output:
        """Return features and logits of a batch."""
        features = self.encoder(x)
        return Output(features, self.classifier(features))

    def weights(self) -> State:
        """Return all that a client needs to compute as this model does: parameters and buffers."""
        tensors = (*self.named_parameters(), *self.named_buffers())
        return {key: value.detach() for key, value in tensors}

    @torch.no_grad()
    def set_weights(self, weights: State) -> None:
        """Take over what ``weights`` returned."""
        for key, value in self.weights().items():
            value.copy_(weights[key])

    def _check_samples(self, x: Tensor) -> None:
        """Refuse what is not a batch of samples as they were in training."""
        if not (x.dtype == torch.uint8 or x.is_floating_point()):
            raise InputError(
                f"predict: samples of type {x.dtype}; expected bytes (pixels from 0 to 255) or "
                "floats"
            )
        shape = self.sample_shape
        if shape is None or tuple(x.shape[1:]) == shape:
            return
        hint = ""
        if tuple(x.shape) == shape:
            hint = "; for one sample, x[None]"
        elif len(shape) == 3 and tuple(x.shape[1:]) == (*shape[1:], shape[0]):
            hint = "; channels first, x.permute(0, 3, 1, 2) or np.moveaxis(x, -1, 1)"
        sizes = ", ".join(str(size) for size in shape)
        raise InputError(
            f"predict: x has shape {tuple(x.shape)}; expected (samples, {sizes}){hint}"
        )

    def predict(self, x: Tensor | NDArray[Any]) -> Tensor:
        """Return the most likely class of each sample, in eval mode.

        Args:
            x: a batch, [B, ...]; bytes are scaled as they were in training.

        Raises:
            InputError: the samples have another type or shape than those of the training.
        """
        x = torch.as_tensor(x)
        self._check_samples(x)
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
