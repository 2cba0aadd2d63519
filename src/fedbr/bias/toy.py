"""The paper's toy example: two clients, each with half of the classes, and milder versions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from ..core.rng import stream
from ..core.samples import Samples
from ..data import Federation
from ..util.errors import InputError


def two_halves(federation: Federation, share: float = 0.0, seed: int = 0) -> Federation:
    """Deal all training samples to two clients, each with half of the classes.

    Args:
        federation: whose samples.
        share: of each class, what goes to the other client; 0.5 is a balanced split. It is the
            paper's alpha.
        seed: random seed.

    Raises:
        InputError: ``share`` is no number from 0 to 0.5, or one half has no samples.

    >>> x, y = torch.rand(8, 2).numpy(), np.arange(8) % 4
    >>> federation = two_halves(Federation.from_clients([(x, y)], test=(x, y)))
    >>> [sorted(set(y[part].tolist())) for part in federation.train.parts.values()]
    [[0, 1], [2, 3]]
    """
    if not isinstance(share, int | float) or not 0 <= share <= 0.5:
        raise InputError(
            f"share = {share!r}: expected a number from 0 (no classes in common) to 0.5 (all alike)"
        )
    if federation.num_classes < 2:
        raise InputError(
            f"federation: has {federation.num_classes} class; two halves need at least 2"
        )
    y = federation.train.samples.y.numpy()
    half = federation.num_classes // 2
    rng = stream(seed, "two halves")
    owner = np.zeros(len(y), dtype=np.int64)
    for c in range(federation.num_classes):
        order = rng.permutation(np.flatnonzero(y == c))
        count = round(share * len(order))  # samples that go to the other client
        owner[order] = int(c >= half)
        owner[order[:count]] = int(c < half)
    parts = {client: np.flatnonzero(owner == client) for client in (0, 1)}
    if not all(map(len, parts.values())):
        raise InputError("federation: has training samples in one half of the classes only")
    train = replace(federation.train, parts=parts)
    tests = [merge_tests(federation)]
    return Federation(train, tests, federation.proxy, class_names=federation.class_names)


def merge_tests(federation: Federation) -> Samples:
    """Return all test samples as one set; one that several clients share counts once."""
    distinct = {id(test): test for test in federation.tests}
    tests = list(distinct.values())
    x = torch.cat([test.x for test in tests])
    y = torch.cat([test.y for test in tests])
    return replace(tests[0], x=x, y=y)
