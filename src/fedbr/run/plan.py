"""What is to be trained: experiments, and the single runs that they are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

from .. import data
from ..core.census import Clients
from ..core.method import Method, without_neutral
from ..core.setup import Setup
from ..data import DataOptions, Federation
from ..recipe.schema import Recipe, Variant
from .setup import build_setup


class Source(Protocol):
    """Where the clients, the model and the methods of a run come from."""

    def clients(self, seed: int) -> Clients: ...

    def methods(self, variant: Variant) -> Sequence[Method]: ...

    def code(self, variant: Variant) -> dict[str, str]: ...

    def setup(self, variant: Variant, seed: int, clients: Clients) -> Setup: ...


@dataclass(frozen=True)
class RecipeSource:
    """All of it is made as the recipe says."""

    recipe: Recipe

    def clients(self, seed: int) -> Federation:
        return clients_of(self.recipe.data, seed)

    def methods(self, variant: Variant) -> Sequence[Method]:
        return variant.build()

    def code(self, variant: Variant) -> dict[str, str]:
        return self.recipe.code(variant)

    def setup(self, variant: Variant, seed: int, clients: Clients) -> Setup:
        return build_setup(self.recipe.of(variant), variant, clients, seed)


@lru_cache(maxsize=2)
def clients_of(options: DataOptions, seed: int) -> Federation:
    """Load the clients of a recipe; runs that come one after the other often have the same."""
    return data.load(options, seed)


@dataclass(frozen=True)
class Experiment:
    """A recipe, where its objects come from, and where its results go."""

    recipe: Recipe
    path: Path | None = None  # None: results stay in memory
    given: Source | None = None  # None: all is made as the recipe says

    @property
    def source(self) -> Source:
        return self.given or RecipeSource(self.recipe)

    def runs(self) -> list[PlannedRun]:
        """List all runs, seed by seed: cut short, there are all variants of the first seeds."""
        recipe = self.recipe
        return [PlannedRun(self, v, seed) for seed in recipe.train.seeds for v in recipe.compare]


@dataclass(frozen=True)
class PlannedRun:
    """One variant with one seed."""

    experiment: Experiment
    variant: Variant
    seed: int

    @property
    def label(self) -> str:
        return self.variant.label

    @property
    def recipe(self) -> Recipe:
        """The recipe with what the variant has of its own."""
        return self.experiment.recipe.of(self.variant)

    @property
    def rounds(self) -> int:
        return self.experiment.recipe.train.rounds

    def rebuilding(self) -> list[dict[str, Any]]:
        """Return those of the methods without which the model cannot be built again."""
        methods = self.experiment.source.methods(self.variant)
        built = zip(self.variant.methods, methods, strict=True)
        return [
            table
            for table, method in built
            if without_neutral([method]) and type(method).rebuild is not Method.rebuild
        ]

    @property
    def title(self) -> str:
        """The run in words: its label, and its seed where there are several."""
        several = len(self.experiment.recipe.train.seeds) > 1
        return f"{self.label}, seed {self.seed}" if several else self.label
