"""The clients of sites, whose samples the server never has: all that it knows of them."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

import torch

from ..core.census import Census
from ..core.evaluation import TestPlan, TestSet
from ..core.records import ClassCounts, Split
from ..core.samples import Samples
from ..data import DataOptions, proxy
from ..data.federation import SHOWN, Source
from .facts import PIXELS, ClientFacts, Common

# What a site knows of the clients of other sites: nothing but that they exist.
UNKNOWN = ClientFacts(10**9, 10**9, 0.0, 0, "")


class RemoteClients:
    """Clients without samples, for ``run.loop.play``: a census, and a plan of tests elsewhere.

    Args:
        common: what the samples of all sites are like.
        clients: the facts of each client, in order.
        options: the recipe's, which say whether there are public samples.
    """

    def __init__(
        self, common: Common, clients: Sequence[ClientFacts], options: DataOptions
    ) -> None:
        self.common = common
        self.census = _make_census(common, clients)
        self.content = self.census.split.hash
        self.proxy = _load_public(common, options)
        self._test_sizes = [facts.test_samples for facts in clients]

    def test_plan(self, evaluate_samples: int | None, seed: int) -> TestPlan:
        """Say what models are tested on: sites test on all that they have, every time."""
        return own_test_plan([TestSet(size) for size in self._test_sizes])


def own_test_plan(sets: Sequence[TestSet]) -> TestPlan:
    """Return the plan in which every client has a test set of its own."""
    clients = range(len(sets))
    return TestPlan(sets, clients, [{client: 1.0} for client in clients])


def _make_census(common: Common, clients: Sequence[ClientFacts]) -> Census:
    count, classes = len(clients), len(common.classes)
    contents = " ".join(facts.content for facts in clients)
    are_numbers = list(common.classes) == [str(i) for i in range(classes)]
    split = Split(
        hash=sha256(contents.encode()).hexdigest()[:16],
        sizes=tuple(facts.samples for facts in clients),
        effective_classes=tuple(round(float(facts.effective_classes), 4) for facts in clients),
    )
    counts = ClassCounts(
        number=classes,
        names=None if are_numbers else common.classes,
        clients=None,
        counts=("",) * min(SHOWN, count),  # who holds which stays with the sites
    )
    return Census(
        shape=common.shape,
        num_classes=classes,
        split=split,
        classes=counts,
        distinct=[facts.distinct for facts in clients],
        label_mix=torch.zeros(count, classes),
    )


def _load_public(common: Common, options: DataOptions) -> Samples | None:
    """Return the public samples that a recipe asks for, stored as those of the sites are."""
    pixels = common.dtype == PIXELS
    none = Samples(
        torch.zeros(0, *common.shape, dtype=getattr(torch, common.dtype)),
        torch.zeros(0, dtype=torch.long),
        1 / 255 if pixels else 1.0,
    )
    source = Source(none, none, len(common.classes), 255.0 if pixels else 1.0)
    return proxy.load(options.proxy, source)
