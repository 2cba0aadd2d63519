"""A result folder as a report reads it: once, with every round of every run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..bias import report as diagnosis
from ..bias.report import Saved
from ..recipe.schema import Recipe
from ..run.folder import ResultFolder

Line = Mapping[str, Any]


@dataclass(frozen=True)
class Comparison:
    """What a folder holds, finished or not."""

    name: str  # of the folder; no other on the same page has it
    recipe: Recipe
    results: dict[str, Any]
    lines: Mapping[tuple[str, int], Sequence[Line]]  # of label and seed: its rounds
    classes: Mapping[
        int, Mapping[str, Any]
    ]  # of seeds whose runs say it: each client's samples of each class
    environment: str
    diagnosis: Saved | None = None  # what fedbr diagnose found, if it was asked

    @property
    def labels(self) -> list[str]:
        return [variant.label for variant in self.recipe.compare]

    @property
    def seeds(self) -> list[int]:
        return self.recipe.train.seeds

    def runs(self, label: str) -> list[Sequence[Line]]:
        """Return the rounds of every seed of a variant that has any."""
        return [found for seed in self.seeds if (found := self.lines[label, seed])]


def read(paths: Sequence[Path]) -> list[Comparison]:
    """Read result folders, and give them different names."""
    found: list[Comparison] = []
    for path in paths:
        name = path.resolve().name
        taken = {comparison.name for comparison in found}
        unique = next(
            n
            for n in (name, *(f"{name} ({i})" for i in range(2, len(paths) + 1)))
            if n not in taken
        )
        found.append(_read(ResultFolder.read(path), unique))
    return found


def _read(folder: ResultFolder, name: str) -> Comparison:
    runs = {
        (s.label, seed): folder.run(s, seed)
        for s in folder.recipe.compare
        for seed in folder.recipe.train.seeds
    }
    known = {
        seed: classes for (_, seed), run in runs.items() if (classes := run.info.get("classes"))
    }
    place = folder.path / "environment.json"
    return Comparison(
        name=name,
        recipe=folder.recipe,
        results=folder.results(),
        lines={key: run.lines() for key, run in runs.items()},
        classes=known,
        environment=place.read_text("utf-8") if place.exists() else "",
        diagnosis=diagnosis.read(folder.path),
    )
