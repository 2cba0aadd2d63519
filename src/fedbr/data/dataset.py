"""What an entry of DATASETS says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .federation import Federation
from .options import DataOptions
from .published import Published
from .source import Source

Arrange = Callable[[Federation, DataOptions, int], Federation]


def _keep(federation: Federation, options: DataOptions, seed: int) -> Federation:
    return federation


@dataclass(frozen=True)
class Dataset:
    """How to load a data set, and what to do with its clients once it is split."""

    summary: str
    load: Callable[[DataOptions], Source]
    arrange: Arrange = _keep  # with the seed of the run
    partition: str = "lda-prior"  # where the recipe does not say
    published: Published | None = None  # its files, for those that need files of somebody else's
    uses: frozenset[str] = frozenset()  # options of its own
    paper: str = ""

    @property
    def files(self) -> str:
        """What ``fedbr data get`` calls its files; empty for those that need none."""
        return "" if self.published is None else self.published.name
