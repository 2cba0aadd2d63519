"""The clients' models at the end of a round, before they are averaged: how biased are they?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from ..core.method import trained
from ..core.server import Server
from ..core.testing import pieces
from ..core.wire import Payload, Reply, State, Task
from .accuracy import Examiner
from .bias import accuracy, distribution, drift, entropy, gram, share_on


class Clients(Examiner, Protocol):
    """Who can test models, and holds what clients remember."""

    @property
    def states(self) -> Mapping[int, Payload]: ...


def local_bias(
    clients: Clients, server: Server, tasks: Sequence[Task], replies: Sequence[Reply], sets: range, label_mix: Tensor
) -> dict[str, Any]:
    """Test every model of a round on all test sets together, and compare the updates."""
    models = local_models(clients, server, replies)
    present = [[torch.nonzero(has).flatten().tolist() for has in (mix > 0, mix == 0)] for mix in label_mix]
    tables = confusions(clients, models, sets, label_mix.shape[1])
    start = tasks[0].payload.get("model", server.params)  # who trains alone is sent nothing
    products = {name: gram(start, models, name) for name in trained(server.job.model)}
    return {
        "accuracy_local": mean([accuracy(table) for table in tables]),
        "bias": mean_of([leaning(table, *present[r.client]) for table, r in zip(tables, replies, strict=True)])
        | drift(torch.stack(list(products.values())).sum(dim=0))
        | {"layers": {name: drift(product) for name, product in products.items()}},
    }


def local_models(clients: Clients, server: Server, replies: Sequence[Reply]) -> list[State]:
    """Return what clients sent, or what they keep if they send nothing."""
    kept = server.models(clients.states)
    return [r.payload["model"] if isinstance(kept, dict) else kept[r.client] for r in replies]


def confusions(examiner: Examiner, models: Sequence[State], sets: range, num_classes: int) -> list[Tensor]:
    """Let models answer all test sets; return for each how often it took a class for which: [K, K]."""
    different = {id(examiner.tests[s]): s for s in sets}.values()
    asked = pieces(examiner.tests, different, pairs=True)
    found = examiner.test([(model, asked) for model in models])
    return [counts.sum(dim=0).view(num_classes, num_classes) for counts in found]


def leaning(table: Tensor, present: Sequence[int], absent: Sequence[int]) -> dict[str, float | None]:
    """Say how far a classifier leans to some classes, from how often it took a class for which."""
    guessed = distribution(table)
    return {
        "share_present": share_on(guessed, present),
        "share_present_unseen": share_on(distribution(table, absent), present),
        "entropy": entropy(guessed),
    }


def mean(values: Sequence[float | None]) -> float | None:
    """Return the mean of those that are known."""
    known = [v for v in values if v is not None]
    return sum(known) / len(known) if known else None


def mean_of(rows: Sequence[Mapping[str, float | None]]) -> dict[str, float | None]:
    """Return the mean of every column."""
    return {key: mean([row[key] for row in rows]) for key in rows[0]}


def definitions() -> dict[str, str]:
    """Say in words what each figure of the clients' models means."""
    return {
        "accuracy_local": "accuracy of a client's model after local training and before aggregation, on all test sets "
        "together, every class counting the same; mean over the clients of the round",
        "bias.share_present": "share of a local model's predictions, on the same data, that fall on classes of which "
        "the client has training samples; mean over the clients of the round, as all of bias",
        "bias.share_present_unseen": "the same on samples of the classes that the client has none of; null if there "
        "are no such",
        "bias.entropy": "entropy of a local model's predicted classes, divided by its largest value: 0 is one class "
        "only, 1 all alike",
        "bias.length": "Euclidean length of a client's update: its weights after local training minus those it began "
        "with; without the modules that methods add",
        "bias.distance": "distance of the updates from their mean, divided by their mean length: 0 if all are equal",
        "bias.cosine": "cosine between the updates of two clients, mean over all pairs; null with one client",
        "bias.layers": "length, distance and cosine of the updates of every weight by itself",
    }
