"""The paper's toy example: two clients, each with half of the classes, and milder versions of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from ..core.rng import stream
from ..core.samples import Samples
from ..data import Federation
from ..util.errors import InputError


def two_halves(federation: Federation, share: float = 0.0, seed: int = 0) -> Federation:
    """Deal all training samples to two clients: one has the first half of the classes, one the
    second.

    ``share`` of each class goes to the other client: 0.5 is a balanced split, the paper's alpha.
    """
    if not isinstance(share, int | float) or not 0 <= share <= 0.5:
        raise InputError(
            f"share = {share!r}: a number from 0 (classes in common: none) to 0.5 (all alike)"
        )
    if federation.num_classes < 2:
        raise InputError(
            f"federation: has {federation.num_classes} class; two halves need at least 2"
        )
    y, half = federation.train.samples.y.numpy(), federation.num_classes // 2
    rng = stream(seed, "two halves")
    owner = np.zeros(len(y), dtype=np.int64)
    for c in range(federation.num_classes):
        mine = rng.permutation(np.flatnonzero(y == c))
        given = round(share * len(mine))
        owner[mine] = int(c >= half)
        owner[mine[:given]] = int(c < half)
    parts = {client: np.flatnonzero(owner == client) for client in (0, 1)}
    if not all(map(len, parts.values())):
        raise InputError("federation: has training samples in one half of the classes only")
    train = replace(federation.train, parts=parts)
    return Federation(
        train, [merged(federation)], federation.proxy, class_names=federation.class_names
    )


def merged(federation: Federation) -> Samples:
    """Return all test samples as one set."""
    tests = list({id(test): test for test in federation.tests}.values())
    x, y = (torch.cat([getattr(test, name) for test in tests]) for name in ("x", "y"))
    return replace(tests[0], x=x, y=y)
