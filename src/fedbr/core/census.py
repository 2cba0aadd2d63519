"""What is known of clients without their samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from ..util.tables import Json
from .evaluation import TestPlan
from .records import ClassCounts, Split
from .samples import Samples


@dataclass(frozen=True)
class Census:
    """The clients of a federation in numbers: all that a server may have to know."""

    shape: tuple[int, ...]  # of one sample
    num_classes: int
    split: Split
    classes: ClassCounts
    distinct: Sequence[int]  # samples of each client that differ: copies hide nothing
    label_mix: Tensor  # share of each class among each client's samples; zeros: not known
    byte_scale: float | list[Any] = 1 / 255  # a model sees a byte as byte * scale + shift
    byte_shift: float | list[Any] = 0.0

    @property
    def num_clients(self) -> int:
        """How many clients there are."""
        return len(self.label_mix)

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many samples each client has."""
        return self.split.sizes

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """The names of the classes, if they are known."""
        return self.classes.names

    @property
    def seen_as(self) -> Json:
        """What a trained model must know to be used, as it is written beside its weights."""
        names = self.class_names
        return {
            "scale": self.byte_scale,
            "shift": self.byte_shift,
            "num_classes": self.num_classes,
            "class_names": None if names is None else list(names),
        }


class Clients(Protocol):
    """The clients of a run, wherever their samples are."""

    @property
    def census(self) -> Census:
        """What is known of them without their samples."""
        ...

    @property
    def content(self) -> str:
        """16 hex digits that identify the samples themselves."""
        ...

    @property
    def proxy(self) -> Samples | None:
        """Public samples that belong to nobody."""
        ...

    def test_plan(self, evaluate_samples: int | None, seed: int) -> TestPlan:
        """Say what models are tested on.

        Args:
            evaluate_samples: about how many samples of each set are tested in the rounds before the
                last; None: all.
            seed: the random seed of the run.
        """
        ...
