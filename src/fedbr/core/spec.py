"""The facts of a run that both sides know."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..util.errors import InputError

CPU = torch.device("cpu")
DTYPES = (torch.float32, torch.float64)  # in which runs compute


@dataclass(frozen=True)
class Spec:
    """The facts of a run that both sides know; a method may read all of it."""

    shape: tuple[int, ...]  # of one sample
    num_classes: int
    num_clients: int
    clients_per_round: int
    local_steps: int
    batch_size: int
    lr: float
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0
    optimizer: str = "sgd"  # of core.optim.OPTIMIZERS
    aggregate: str = "uniform"  # or "samples"
    seed: int = 0
    dtype: torch.dtype = torch.float32
    device: torch.device = CPU
    amp: bool = False  # mixed precision
    joint: bool = False  # one forward for the batch and the methods' probes together
    proxy: Tensor | None = None  # public samples that belong to nobody, as the model sees them

    @property
    def reach(self) -> float:
        """How far a constant gradient carries a client in a round by SGD without weight decay.

        It is lr times the steps, and more with momentum.

        Raises:
            InputError: the steps are those of another optimizer, which have no such length.
        """
        if self.optimizer != "sgd":
            raise InputError(
                f"train.optimizer = {self.optimizer!r}: a method of this variant reckons with the "
                "length of SGD's steps; expected 'sgd'"
            )
        m, steps = self.momentum, self.local_steps
        if not m:
            return self.lr * steps
        ahead = int(self.nesterov)  # Nesterov's steps are those of one step later
        return self.lr * sum((1 - m ** (j + ahead)) / (1 - m) for j in range(1, steps + 1))
