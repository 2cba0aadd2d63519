"""A result folder as a report shows it: read once, compared once."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..recipe.schema import Recipe
from ..run import diagnosis
from ..run.diagnosis import SavedDiagnosis
from ..run.folder import ResultFolder
from ..run.results import Results
from .compare import Comparison, VariantResults, compare


@dataclass(frozen=True)
class ReportFolder:
    """What a result folder holds, finished or not."""

    name: str  # no other folder of the same report has it
    comparison: Comparison
    environment: str  # as it stands in environment.json; empty if there is none
    diagnosis: SavedDiagnosis | None = None

    @property
    def results(self) -> Results:
        """What was compared."""
        return self.comparison.results

    @property
    def recipe(self) -> Recipe:
        """What was to be trained."""
        return self.results.recipe

    @property
    def begun(self) -> list[VariantResults]:
        """The variants of which some run has a round."""
        variants = self.comparison.variants
        return [variant for variant in variants if any(run.rounds for run in variant.runs)]


def read(paths: Sequence[Path]) -> list[ReportFolder]:
    """Read result folders, and give them different names.

    Raises:
        InputError: a folder has no results.
    """
    folders: dict[str, ReportFolder] = {}
    for path in paths:
        name = _choose_name(path.resolve().name, folders)
        folders[name] = _read(path, name)
    return list(folders.values())


def _read(path: Path, name: str) -> ReportFolder:
    results = ResultFolder.read(path).results()
    environment = path / "environment.json"
    return ReportFolder(
        name=name,
        comparison=compare(results),
        environment=environment.read_text("utf-8") if environment.exists() else "",
        diagnosis=diagnosis.read(path),
    )


def _choose_name(name: str, taken: Container[str]) -> str:
    """Number a name that is taken."""
    candidate, count = name, 1
    while candidate in taken:
        count += 1
        candidate = f"{name} ({count})"
    return candidate
