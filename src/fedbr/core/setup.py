"""What stays the same during a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .method import Method
from .model import FedModel
from .spec import Spec


@dataclass(frozen=True)
class Setup:
    """Everything about a run that does not change, the same on every side."""

    methods: Sequence[Method]
    model: FedModel  # the architecture and the initial weights
    spec: Spec

    @property
    def alone(self) -> bool:
        """Whether clients train without a server."""
        return any(method.alone for method in self.methods)
