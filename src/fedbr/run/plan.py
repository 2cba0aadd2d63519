"""What is to be trained: experiments, and the single runs that they are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from .. import data
from ..core.census import Clients
from ..core.method import Method
from ..core.method_checks import without_neutral
from ..core.setup import Setup
from ..data import DataOptions, Federation
from ..recipe.schema import Recipe, Variant
from ..util.tables import Options
from .setup import build_setup


class Source(Protocol):
    """Where the clients, the model and the methods of a run come from."""

    def clients(self, seed: int) -> Clients:
        """Return the clients of a seed."""
        ...

    def methods(self, variant: Variant) -> Sequence[Method]:
        """Return the methods of a variant, in the order in which they act."""
        ...

    def code(self, variant: Variant) -> dict[str, str]:
        """Return the names of the user's own code in a variant, each with a hash of its source."""
        ...

    def setup(self, variant: Variant, seed: int, clients: Clients) -> Setup:
        """Return what stays the same during a run."""
        ...


@dataclass(frozen=True)
class RecipeSource:
    """Makes the parts of a run as its recipe says."""

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
    """Load the clients of a recipe.

    The last two results are kept: runs that come one after the other often have the same clients.
    """
    return data.load(options, seed)


@dataclass(frozen=True)
class Experiment:
    """A recipe, where its objects come from, and where its results go."""

    recipe: Recipe
    path: Path | None = None  # None: results stay in memory
    given: Source | None = None  # None: all is made as the recipe says

    @property
    def source(self) -> Source:
        """Where the parts of its runs come from."""
        return self.given or RecipeSource(self.recipe)

    def runs(self) -> list[PlannedRun]:
        """List all runs, seed by seed: cut short, there are all variants of the first seeds."""
        runs = []
        for seed in self.recipe.train.seeds:
            for variant in self.recipe.compare:
                runs.append(PlannedRun(self, variant, seed))
        return runs


@dataclass(frozen=True)
class PlannedRun:
    """One variant with one seed."""

    experiment: Experiment
    variant: Variant
    seed: int

    @property
    def label(self) -> str:
        """The label of its variant."""
        return self.variant.label

    @property
    def recipe(self) -> Recipe:
        """The recipe with what the variant sets for itself."""
        return self.experiment.recipe.of(self.variant)

    @property
    def rounds(self) -> int:
        """How many rounds it has when it is finished."""
        return self.experiment.recipe.train.rounds

    def model_methods(self) -> list[Options]:
        """Return the methods that change the model: without them it cannot be built again.

        Each is a table as in a recipe.
        """
        methods = self.experiment.source.methods(self.variant)
        tables = []
        for table, method in zip(self.variant.methods, methods, strict=True):
            changes_model = type(method).rebuild is not Method.rebuild
            if changes_model and without_neutral([method]):
                tables.append(table)
        return tables

    @property
    def title(self) -> str:
        """The run in words: its label, and its seed where there are several."""
        if len(self.experiment.recipe.train.seeds) > 1:
            return f"{self.label}, seed {self.seed}"
        return self.label
