"""A federation whose samples are elsewhere: all that the server knows of its sites."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..core.samples import Index, Samples, TrainData
from ..data import DataOptions, Federation, proxy
from ..data.federation import SHOWN, Source
from ..util.errors import InputError

PIXELS = "uint8"
LARGEST = 10**7  # numbers in a sample, and classes
TYPES = {
    PIXELS: torch.uint8,
    "float16": torch.float16,
    "float32": torch.float32,
    "float64": torch.float64,
}


@dataclass(frozen=True, repr=False)
class Sites(Federation):
    """Clients of which only figures are known: samples, distinct ones, effective classes, test
    samples.
    """

    facts: Sequence[Mapping[str, Any]] = field(
        default=()
    )  # by client; empty at a site, which knows nothing of others

    def __post_init__(self) -> None:
        """Check nothing: there are no samples to look at."""

    @property
    def shares(self) -> list[dict[int, float]]:
        return [{client: 1.0} for client in self.train.parts]

    @property
    def sizes(self) -> list[int]:
        return [int(fact["samples"]) for fact in self.facts]

    @cached_property
    def distinct(self) -> list[int]:
        return [int(fact["distinct"]) for fact in self.facts] or [10**9] * len(self.train.parts)

    @cached_property
    def content(self) -> str:
        return _digest([str(fact["content"]) for fact in self.facts])

    @property
    def label_mix(self) -> Tensor:
        return torch.zeros(len(self.train.parts), self.num_classes)

    def some_tests(self, size: int | None, seed: int) -> list[Samples]:
        """Return nothing: sites test on all that they have."""
        return []

    def describe(self) -> dict[str, Any]:
        effective = [round(float(fact["effective_classes"]), 4) for fact in self.facts]
        return {"hash": self.content, "sizes": self.sizes, "effective_classes": effective}

    def classes(self) -> dict[str, Any]:
        names = None if self.class_names is None else list(self.class_names)
        counts = [""] * min(SHOWN, len(self.facts))  # who holds which stays with the sites
        return {"number": self.num_classes, "names": names, "clients": None, "counts": counts}


def _digest(parts: Sequence[str]) -> str:
    return sha256(" ".join(parts).encode()).hexdigest()[:16]


def stub(
    common: Mapping[str, Any],
    options: DataOptions,
    clients: int,
    facts: Sequence[Mapping[str, Any]] = (),
) -> Sites:
    """Make the federation of a run from what all sites have in common: shape, type and classes."""
    kind, names = TYPES[common["dtype"]], common["classes"]
    scale = 1 / 255 if common["dtype"] == PIXELS else 1.0
    none = Samples(
        torch.zeros(0, *common["shape"], dtype=kind), torch.zeros(0, dtype=torch.long), scale
    )
    nobody: Index = np.zeros(0, dtype=np.int64)
    tests = [
        Samples(torch.zeros(n, 0), torch.zeros(n, dtype=torch.long))
        for n in ([int(fact["test_samples"]) for fact in facts] or [0] * clients)
    ]
    public = proxy.load(
        options.proxy, Source(none, none, len(names), 255.0 if common["dtype"] == PIXELS else 1.0)
    )
    train = TrainData(none, dict.fromkeys(range(clients), nobody), len(names))
    numbers = names == [str(i) for i in range(len(names))]
    return Sites(train, tests, public, class_names=None if numbers else names, facts=facts)


def well_formed(facts: Mapping[str, Any], clients: Sequence[int]) -> bool:
    """Say whether what a site tells of itself can be used."""
    figures = ("samples", "distinct", "test_samples")
    return (
        facts["dtype"] in TYPES
        and all(isinstance(size, int) and size > 0 for size in facts["shape"])
        and math.prod(facts["shape"]) <= LARGEST
        and 0 < len(facts["classes"]) <= LARGEST
        and all(isinstance(name, str) and len(name) <= 200 for name in facts["classes"])
        and all(
            isinstance(told["content"], str)
            and 0 <= float(told["effective_classes"]) < len(facts["classes"]) + 1
            and all(isinstance(told[key], int) and 0 <= told[key] < 10**12 for key in figures)
            and told["samples"] > 0
            for told in (facts["by_client"][str(client)] for client in clients)
        )
    )


def in_common(told: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    """Find what all sites have in common, by client; refuse those that do not fit together."""
    (first, one), *others = sorted(told.items())
    for client, other in others:
        for key in ("shape", "dtype"):
            if other[key] != one[key]:
                raise InputError(
                    f"client {client}: samples of {key} {other[key]}, those of client {first} have {one[key]}; "
                    "all sites must have the same"
                )
    names = {str(name) for facts in told.values() for name in facts["classes"]}
    order = sorted(names, key=lambda name: (0, int(name), "") if name.isdecimal() else (1, 0, name))
    return {"shape": list(one["shape"]), "dtype": one["dtype"], "classes": order}
