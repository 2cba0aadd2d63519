"""The bias of the clients' models at the end of a round, before they are averaged.

``metrics.bias_every`` says in which rounds of a run they are tested. A diagnosis (``bias``) looks
at one round more closely; what training uses of it is here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from ..core.census import Census
from ..core.evaluation import Exam, Pairs
from ..core.method import trained
from ..core.records import Drift, LocalBias
from ..core.round import PlayedRound
from ..core.server import Server
from ..core.wire import Payload, Reply, State
from .base import Examiner
from .bias import accuracy, distribution, drift, entropy, gram, share_on

CLASSES = (
    "classes with and without training samples of the client; where it has some of all, unseen "
    "(scarce) are those of which its share is less than half of the federation's average, if "
    "there are such"
)
SCARCE = 0.5  # of the average share of a class: a client with less has hardly seen it


class Classes(NamedTuple):
    """The classes that a client has seen, and those that it has not."""

    seen: list[int]
    unseen: list[int]  # without samples; if there is no such class, those with few
    scarce: bool  # whether the unseen classes have a few samples


class ClientExaminer(Examiner, Protocol):
    """Tests models, and holds what clients remember, such as a backend."""

    @property
    def states(self) -> Mapping[int, Payload]:
        """What each client remembers."""
        ...


class Drifts(NamedTuple):
    """How updates differ: over all weights together, and weight by weight."""

    whole: Drift
    layers: Mapping[str, Drift]


class Leaning(NamedTuple):
    """How far a classifier leans to the classes that a client has seen."""

    share_present: float | None
    share_present_unseen: float | None
    entropy: float | None


def local_bias(
    clients: ClientExaminer, server: Server, played: PlayedRound, census: Census, quick: bool
) -> LocalBias:
    """Test every client's model of a round and their average, and compare the updates.

    Args:
        clients: the backend that played the round.
        played: the round.
        quick: whether the quick parts of the test sets are enough.
    """
    setup, replies = server.setup, played.replies
    models = local_models(clients, server, replies)
    together = [] if setup.alone else [server.params]
    tables = confusions(clients, [*models, *together], setup.spec.num_classes, quick)
    local = tables[: len(models)]
    trained_on = [reply.client for reply in replies]
    classes = split_classes(census.label_mix, census.sizes, trained_on)
    lean = []
    for table, split in zip(local, classes, strict=True):
        lean.append(measure_leaning(table, split.seen, split.unseen))
    start = None if setup.alone else played.broadcast.payload["model"]
    updates = compare_updates(start, models, trained(setup.model))
    return LocalBias(
        accuracy_local=mean([accuracy(table) for table in local]),
        accuracy_aggregated=None if setup.alone else accuracy(tables[-1]),
        share_present=mean([one.share_present for one in lean]),
        share_present_unseen=mean([one.share_present_unseen for one in lean]),
        entropy=mean([one.entropy for one in lean]),
        drift=updates.whole,
        layers=updates.layers,
    )


def compare_updates(start: State | None, models: Sequence[State], names: Iterable[str]) -> Drifts:
    """Compare the updates of several models.

    Args:
        start: the weights that all models began with; None: they began with different ones, and
            nothing can be compared.
        models: the weights after training.
        names: the weights that are compared.
    """
    if start is None:
        return Drifts(Drift(), {})
    products = {name: gram(start, models, name) for name in names}
    whole = drift(torch.stack(list(products.values())).sum(dim=0))
    return Drifts(whole, {name: drift(product) for name, product in products.items()})


def split_classes(mix: Tensor, sizes: Sequence[int], clients: Sequence[int]) -> list[Classes]:
    """Split the classes of some clients into seen and unseen ones.

    Args:
        mix: the share of each class among each client's samples, [all clients, classes].
        sizes: how many samples each client has.
        clients: those whose classes are split.

    >>> mix = torch.tensor([[1.0, 0.0], [0.5, 0.5]])
    >>> split_classes(mix, [10, 10], [0])
    [Classes(seen=[0], unseen=[1], scarce=False)]
    """
    weights = torch.tensor(sizes, dtype=mix.dtype)[:, None]
    average = (mix * weights).sum(dim=0) / sum(sizes)
    classes = []
    for shares in mix[list(clients)]:
        absent = (shares == 0) & (average > 0)  # a class that nobody has does not count
        few = shares < SCARCE * average
        scarce = bool(few.any()) and not bool(absent.any())
        unseen = few if scarce else absent
        seen = ~unseen & (shares > 0)
        classes.append(Classes(_list_indices(seen), _list_indices(unseen), scarce))
    return classes


def _list_indices(mask: Tensor) -> list[int]:
    return [int(i) for i in torch.nonzero(mask).flatten()]


def local_models(clients: ClientExaminer, server: Server, replies: Sequence[Reply]) -> list[State]:
    """Return the models that clients sent, or those that they keep for themselves."""
    models = server.models(clients.states)
    if isinstance(models, dict):  # there is one model for all
        return [reply.payload["model"] for reply in replies]
    return [models[reply.client] for reply in replies]


def confusions(
    examiner: Examiner, models: Sequence[State], num_classes: int, quick: bool
) -> list[Tensor]:
    """Test models on all test sets, and return a confusion matrix for each.

    Rows are true classes, columns are predicted ones.
    """
    plan = examiner.plan
    pieces = plan.pieces(range(len(plan.sets)), quick)
    answers = examiner.test([Exam(model, pieces, (Pairs.name,)) for model in models])
    tables = []
    for counts in answers:
        total = torch.stack([counts[piece] for piece in pieces]).sum(dim=0)
        tables.append(total.long().view(num_classes, num_classes))
    return tables


def measure_leaning(table: Tensor, present: Sequence[int], absent: Sequence[int]) -> Leaning:
    """Measure how far a classifier leans to some classes.

    Args:
        table: its confusion matrix.
        present: the classes that it may lean to.
        absent: the others.
    """
    predicted = distribution(table)
    return Leaning(
        share_present=share_on(predicted, present),
        share_present_unseen=share_on(distribution(table, absent), present),
        entropy=entropy(predicted),
    )


def mean(values: Sequence[float | None]) -> float | None:
    """Return the mean without missing values; None if all are missing.

    >>> mean([1.0, None, 2.0])
    1.5
    """
    present = [value for value in values if value is not None]
    return sum(present) / len(present) if present else None


def definitions() -> dict[str, str]:
    """Say in words what each value of the clients' models means, by its name."""
    return {
        "accuracy_local": "accuracy of a client's model after local training and before "
        "aggregation, on all test sets together, every class counting the same; mean over the "
        "clients of the round; of a run: in the last round that was looked at",
        "bias.accuracy_aggregated": "the same of the global model that the server makes of them "
        "(with the methods' own weights and server steps); null where clients train alone",
        "seen, unseen": CLASSES,
        "bias.share_present": "share of a local model's predictions, on the same data, that fall "
        "on classes that the client has seen; mean over the clients of the round, as all of bias",
        "bias.share_present_unseen": "the same on samples of unseen classes; null if there are no "
        "such",
        "bias.entropy": "entropy of a local model's predicted classes, divided by its largest "
        "value: 0 is one class only, 1 all alike",
        "bias.length": "Euclidean length of a client's update: its weights after local training "
        "minus those it began with; without the modules that methods add; as distance and cosine, "
        "null where clients train alone, as they begin with different weights",
        "bias.distance": "distance of the updates from their mean, divided by their mean length: 0 "
        "if all are equal",
        "bias.cosine": "cosine between the updates of two clients, mean over all pairs; null with "
        "one client",
        "bias.layers": "length, distance and cosine of the updates of every weight by itself",
    }
