"""The clients' models at the end of a round, before they are averaged: how biased are they?

``metrics.bias_every`` says in which rounds of a run they are tested; a diagnosis (``bias``) looks
at one round more closely. This stands here, and not there, as training uses it.
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
LITTLE = 0.5  # of the average share of a class: who has less has hardly seen it


class Classes(NamedTuple):
    """The classes of a client: those that it knows, and the others."""

    seen: list[int]
    unseen: list[int]  # without a sample; if there is none such, those of which it has little
    scarce: bool  # whether it is the latter


class ClientExaminer(Examiner, Protocol):
    """Whoever can test models, and holds what clients remember."""

    @property
    def states(self) -> Mapping[int, Payload]: ...


class Drifts(NamedTuple):
    """How updates differ: all weights together, and weight by weight."""

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
    """Test every model of a round, and what the server made of them; compare the updates.

    quick: whether the quick parts of the test sets are enough.
    """
    setup, replies = server.setup, played.replies
    models = local_models(clients, server, replies)
    together = [] if setup.alone else [server.params]
    tables = confusions(clients, [*models, *together], setup.spec.num_classes, quick)
    local = tables[: len(models)]
    known = seen_and_unseen(census.label_mix, census.sizes, [r.client for r in replies])
    lean = [leaning(table, own.seen, own.unseen) for table, own in zip(local, known, strict=True)]
    start = None if setup.alone else played.broadcast.payload["model"]
    updates = drifts(start, models, trained(setup.model))
    return LocalBias(
        accuracy_local=mean([accuracy(table) for table in local]),
        accuracy_aggregated=None if setup.alone else accuracy(tables[-1]),
        share_present=mean([one.share_present for one in lean]),
        share_present_unseen=mean([one.share_present_unseen for one in lean]),
        entropy=mean([one.entropy for one in lean]),
        drift=updates.whole,
        layers=updates.layers,
    )


def drifts(start: State | None, models: Sequence[State], names: Iterable[str]) -> Drifts:
    """Compare the updates from common weights; without those, nothing is known.

    start: the weights that all began with. names: the weights that are compared.
    """
    if start is None:
        return Drifts(Drift(), {})
    products = {name: gram(start, models, name) for name in names}
    whole = drift(torch.stack(list(products.values())).sum(dim=0))
    return Drifts(whole, {name: drift(product) for name, product in products.items()})


def seen_and_unseen(mix: Tensor, sizes: Sequence[int], clients: Sequence[int]) -> list[Classes]:
    """Say which classes some clients know.

    mix: the share of each class among each client's samples, [everybody, classes]. sizes: how many
    samples each of them has. clients: of whom to say it.
    """
    weights = torch.tensor(sizes, dtype=mix.dtype)[:, None]
    average = (mix * weights).sum(dim=0) / sum(sizes)
    known = []
    for own in mix[list(clients)]:
        absent = (own == 0) & (average > 0)  # a class that nobody has is nobody's loss
        little = own < LITTLE * average
        scarce = bool(little.any()) and not bool(absent.any())
        unseen = little if scarce else absent
        known.append(Classes(_where(~unseen & (own > 0)), _where(unseen), scarce))
    return known


def _where(mask: Tensor) -> list[int]:
    return [int(i) for i in torch.nonzero(mask).flatten()]


def local_models(clients: ClientExaminer, server: Server, replies: Sequence[Reply]) -> list[State]:
    """Return what clients sent, or what they keep if they send nothing."""
    kept = server.models(clients.states)
    return [r.payload["model"] if isinstance(kept, dict) else kept[r.client] for r in replies]


def confusions(
    examiner: Examiner, models: Sequence[State], num_classes: int, quick: bool
) -> list[Tensor]:
    """Let models answer all test sets; return for each how often it took a class for which."""
    plan = examiner.plan
    asked = plan.pieces(range(len(plan.sets)), quick)
    answers = examiner.test([Exam(model, asked, (Pairs.name,)) for model in models])
    tables = []
    for counts in answers:
        total = torch.stack([counts[piece] for piece in asked]).sum(dim=0)
        tables.append(total.long().view(num_classes, num_classes))
    return tables


def leaning(table: Tensor, present: Sequence[int], absent: Sequence[int]) -> Leaning:
    """Say how far a classifier leans to some classes, from how often it took a class for which."""
    guessed = distribution(table)
    return Leaning(
        share_present=share_on(guessed, present),
        share_present_unseen=share_on(distribution(table, absent), present),
        entropy=entropy(guessed),
    )


def mean(values: Sequence[float | None]) -> float | None:
    """Return the mean of those that are known."""
    known = [v for v in values if v is not None]
    return sum(known) / len(known) if known else None


def definitions() -> dict[str, str]:
    """Say in words what each figure of the clients' models means."""
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
