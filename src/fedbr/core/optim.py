"""How clients step: the optimisers that a recipe can name, and the gradient that they get.

An optimiser serves all clients of a block at once. Weights and gradients are [C, ...], so whatever
works element by element costs nothing extra. To add one: a class below and an entry in OPTIMIZERS.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from .spec import Spec


class Gradient:
    """The gradient of some weights, one tensor for each.

    Args:
        params: the weights, [C, ...] each.
        values: their gradients, of the same shapes.
    """

    def __init__(self, params: Sequence[Tensor], values: list[Tensor]) -> None:
        self.params = list(params)
        self._values = values

    def tensors(self) -> list[Tensor]:
        """Return the gradient of each weight, [C, ...]."""
        return self._values

    @torch.no_grad()
    def add(self, scale: float) -> None:
        """Add ``scale`` times the gradient to the weights."""
        torch._foreach_add_(self.params, self.tensors(), alpha=scale)


class Optimizer(ABC):
    """Moves the weights of a block along their gradients; it is fresh in every round.

    Args:
        params: what it moves, [C, ...] each.
        spec: where its settings are.
    """

    def __init__(self, params: Sequence[Tensor], spec: Spec) -> None:
        self.params = list(params)
        self.spec = spec

    @torch.no_grad()
    def step(self, gradient: Gradient) -> None:
        """Do one step."""
        self.update(gradient.tensors())

    @abstractmethod
    def update(self, grads: list[Tensor]) -> None:
        """Move ``self.params`` in place.

        Args:
            grads: the gradient of each, [C, ...]; to be read, not written.
        """


class SGD(Optimizer):
    """The step of torch.optim.SGD to the bit, with momentum, Nesterov's too, and weight decay."""

    def __init__(self, params: Sequence[Tensor], spec: Spec) -> None:
        super().__init__(params, spec)
        self.velocity: list[Tensor] = []

    def step(self, gradient: Gradient) -> None:
        if self.spec.momentum or self.spec.weight_decay:
            super().step(gradient)
        else:
            gradient.add(-self.spec.lr)

    def update(self, grads: list[Tensor]) -> None:
        spec = self.spec
        if spec.weight_decay:
            grads = list(torch._foreach_add(grads, self.params, alpha=spec.weight_decay))
        if spec.momentum:
            if self.velocity:
                torch._foreach_mul_(self.velocity, spec.momentum)
                torch._foreach_add_(self.velocity, grads)
            else:
                self.velocity = [g.clone() for g in grads]
            if spec.nesterov:
                grads = list(torch._foreach_add(grads, self.velocity, alpha=spec.momentum))
            else:
                grads = self.velocity
        torch._foreach_add_(self.params, grads, alpha=-spec.lr)


OPTIMIZERS: dict[str, type[Optimizer]] = {"sgd": SGD}
