"""Speed against a bare PyTorch loop: same model, same data, interleaved in one run, one thread."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from . import api, models
from .backends.base import one_thread
from .core.method import Method
from .core.rng import stream, torch_stream
from .data import Federation
from .methods import FedBR


@dataclass(frozen=True)
class Workload:
    """A round of training: how many clients, how many steps, which model, which samples."""

    model: str
    options: dict[str, Any]
    shape: tuple[int, ...]
    clients: int
    local_steps: int
    batch_size: int
    lr: float = 0.01


PAPER_CNN = Workload("cnn", {"width": 1.0}, (1, 28, 28), clients=2, local_steps=50, batch_size=64)


@dataclass(frozen=True)
class Ratio:
    """CPU time of a method divided by that of the bare loop, over the repetitions."""

    name: str
    values: Sequence[float]
    seconds: float  # median CPU seconds of a round

    @property
    def median(self) -> float:
        return statistics.median(self.values)


def measure(
    work: Workload, repeats: int, stacks: Sequence[tuple[str, list[Method]]], tick: Callable[[], None] = lambda: None
) -> tuple[float, list[Ratio]]:
    """Time the bare loop and each stack in turn; return the loop's median seconds and the ratios."""
    clients = samples(work)
    bare: list[float] = []
    times: dict[str, list[float]] = {name: [] for name, _ in stacks}
    with one_thread():
        brief = replace(work, local_steps=2)  # warms up
        bare_round(brief, clients)
        for _, methods in stacks:
            fedbr_round(brief, clients, methods)
        for _ in range(repeats):
            bare.append(_cpu(partial(bare_round, work, clients)))
            tick()
            for name, methods in stacks:
                times[name].append(_cpu(partial(fedbr_round, work, clients, methods)))
                tick()
    ratios = [
        Ratio(name, [t / b for t, b in zip(values, bare, strict=True)], statistics.median(values))
        for name, values in times.items()
    ]
    return statistics.median(bare), ratios


def samples(work: Workload) -> Federation:
    """Make random samples: speed does not depend on what is in them."""
    rng = stream(0, "bench")
    pairs = [
        (
            torch.from_numpy(rng.random((600, *work.shape), dtype="float32")),
            torch.from_numpy(rng.integers(10, size=600)),
        )
        for _ in range(work.clients)
    ]
    return Federation.from_clients(pairs, test=(pairs[0][0][:10], torch.arange(10)))


def bare_round(work: Workload, clients: Federation) -> None:
    """What one writes by hand: load weights, SGD steps, average."""
    with torch_stream(0, "model"):
        model = models.build(work.model, work.options, work.shape, 10)
    parameters: list[Tensor] = list(model.parameters())
    start = [p.detach().clone() for p in parameters]
    total = [torch.zeros_like(p) for p in start]
    x, y = clients.train.samples.x, clients.train.samples.y
    for client, part in clients.train.parts.items():
        own = torch.from_numpy(part)
        index = torch.from_numpy(
            stream(0, "batches", 1, client).integers(len(part), size=(work.local_steps, work.batch_size))
        )
        with torch.no_grad():
            torch._foreach_copy_(parameters, start)
        for step in range(work.local_steps):
            rows = own[index[step]]
            loss = F.cross_entropy(model(x[rows]).logits, y[rows])
            gradients = torch.autograd.grad(loss, parameters)
            with torch.no_grad():
                torch._foreach_add_(parameters, gradients, alpha=-work.lr)
        torch._foreach_add_(total, [p.detach() for p in parameters], alpha=1 / work.clients)


def fedbr_round(work: Workload, clients: Federation, methods: Sequence[Method]) -> None:
    """The same through the package, from the first object to the trained model."""
    api.train(
        clients, work.model, methods, rounds=1, local_steps=work.local_steps, batch_size=work.batch_size, lr=work.lr,
        evaluate_every=0, **work.options,
    )  # fmt: skip


def standard() -> list[tuple[str, list[Method]]]:
    """The stacks that the foundation promises a price for."""
    return [("FedAvg", []), ("FedBR", [FedBR()])]


def _cpu(work: Callable[[], None]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start
