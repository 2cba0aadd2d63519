"""A diagnosis as Python gets it: its facts, what its pictures show, and where both are written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from ..core.model import Output
from ..report import diagnosis as report
from ..report.local_models import Rounds
from ..run.diagnosis import FOLDER, DiagnosisRecord, save
from ..util.tables import Json


@dataclass(frozen=True)
class View:
    """What pictures show: one client, some samples, and what models make of them."""

    client: int
    x: Tensor
    y: Tensor
    seen: Sequence[int]  # classes of the client (X1)
    unseen: Sequence[int]  # those that it has not, or hardly (X2)
    classes: Sequence[str]  # their names
    before: Output  # the global model's
    after: Mapping[str, Output]  # of the client's model, by the label of the variant
    averaged: Output | None  # of all clients' models, of the first label; None: they train alone
    seed: int

    def is_of(self, classes: Sequence[int]) -> Tensor:
        """Return a mask of the samples that are of some classes."""
        return torch.isin(self.y, torch.tensor(list(classes), dtype=torch.long))

    @property
    def has_seen(self) -> bool:
        """Whether there are samples of X1."""
        return bool(self.is_of(self.seen).any())

    @property
    def has_unseen(self) -> bool:
        """Whether there are samples of X2."""
        return bool(self.is_of(self.unseen).any())


@dataclass(frozen=True)
class Diagnosis:
    """What local training does to a global model, and a view of one client for pictures."""

    record: DiagnosisRecord
    view: View

    @property
    def numbers(self) -> Json:
        """All numbers, as they stand in ``diagnosis.json``."""
        return self.record.to_json()

    def save(self, folder: str | Path, rounds: Rounds | None = None) -> Path:
        """Write diagnosis.json and the figures as PNG and SVG.

        Args:
            folder: in it a folder ``diagnosis`` is made, or replaced.
            rounds: what was logged of the clients' models while they trained.

        Returns:
            The folder ``diagnosis``.

        Raises:
            InputError: nothing can be written there.
        """
        target = self.write(folder)
        self.draw(folder, rounds)
        return target

    def write(self, folder: str | Path) -> Path:
        """Write diagnosis.json in place of an earlier diagnosis; return the folder it is in."""
        return save(self.record, Path(folder))

    def draw(self, folder: str | Path, rounds: Rounds | None = None) -> None:
        """Write the figures; the arguments are those of ``save``."""
        from .figures import draw

        draw(self.record, self.view, Path(folder) / FOLDER, rounds or {})

    def about(self) -> str:
        """Say in one line what was diagnosed, and what was left out."""
        return report.about(self.record)

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Return the comparison: the header, and the cells of every row."""
        return report.table(self.record)

    def sentences(self) -> list[str]:
        """Say in words what the table says."""
        return report.sentences(self.record)
