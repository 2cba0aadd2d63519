"""A data set before it is split over clients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..core.samples import Index, Samples


@dataclass(frozen=True)
class Source:
    """Training and test samples in their stored form."""

    train: Samples
    test: Samples
    num_classes: int
    peak: float = 1.0  # the stored value of a white pixel
    owner: Index | None = None  # the natural client of each training sample, where there are such
    test_owner: Index | None = None  # and of each test sample
    class_names: Sequence[str] | None = None  # in the order of their numbers, where they have names
    client_names: Sequence[str] | None = None  # of the natural clients
