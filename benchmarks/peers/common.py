"""What the drivers share: the model as a plain module, and the batches that the bare loop draws."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from fedbr import models
from fedbr.bench import Workload
from fedbr.core.rng import stream, torch_stream

RoundDone = Callable[[], None]
Pair = tuple[Tensor, Tensor]


def nothing() -> None:
    """Do nothing when a round is done."""


class Logits(nn.Module):
    """The model of the bare loop with its initial weights, as frameworks expect it."""

    def __init__(self, work: Workload) -> None:
        super().__init__()
        with torch_stream(0, "model"):
            self.model = models.build(work.model, work.options, work.shape, 10)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.model(x).logits
        return logits


def batches(work: Workload, samples: Pair, own: Tensor, number: int, client: int) -> Iterator[Pair]:
    """Yield the batches that the bare loop gives to a client in a round: one index operation each.

    No DataLoader: its sample-by-sample collation would be charged to the framework.
    """
    x, y = samples
    rng = stream(0, "batches", number, client)
    index = torch.from_numpy(rng.integers(len(own), size=(work.local_steps, work.batch_size)))
    for step in range(work.local_steps):
        rows = own[index[step]]
        yield x[rows], y[rows]


class Visits:
    """Counts how often each client was asked: the round, when all take part in all."""

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()

    def next(self, client: int) -> int:
        self.counts[client] += 1
        return self.counts[client]
