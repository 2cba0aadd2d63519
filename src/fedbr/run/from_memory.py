"""Experiments on objects in memory: a federation, a model and methods, given in Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from ..core.census import Clients
from ..core.method import Method, check_methods
from ..core.setup import Setup
from ..data import Federation
from ..methods import METHODS
from ..recipe.load import parse_stored
from ..recipe.schema import MEMORY, MetricsConfig, Recipe, TrainConfig, Variant
from ..util.errors import InputError
from ..util.imports import source_hash
from .arguments import starting_model
from .plan import Experiment
from .setup import assemble


@dataclass(frozen=True)
class MemorySource:
    """Makes runs of what it was given; every seed has the same clients."""

    federation: Federation
    model: nn.Module | str  # a module starts from its own weights, whatever the seed
    recipe: Recipe
    listed: Mapping[str, Sequence[Method]]  # the methods of each variant, by its label
    _setups: dict[tuple[str, int], Setup] = field(default_factory=dict, compare=False)

    def clients(self, seed: int) -> Federation:
        return self.federation

    def methods(self, variant: Variant) -> Sequence[Method]:
        return self.listed[variant.label]

    def code(self, variant: Variant) -> dict[str, str]:
        """Return which code of the user's a variant trains with, and a hash of each."""
        own: list[type] = []
        for method in self.listed[variant.label]:
            if METHODS.get(method.name) is not type(method):
                own.append(type(method))
        if not isinstance(self.model, str):
            own.append(type(self.model))
        return {_name(kind): source_hash(kind) for kind in own}

    def setup(self, variant: Variant, seed: int, clients: Clients) -> Setup:
        """Return the setup of a run; those of one seed are kept, as they are asked for again."""
        key = variant.label, seed
        if key not in self._setups:
            if any(kept != seed for _, kept in self._setups):
                self._setups.clear()
            self._setups[key] = self._make_setup(variant, seed, clients)
        return self._setups[key]

    def _make_setup(self, variant: Variant, seed: int, clients: Clients) -> Setup:
        options = self.recipe.model.options
        start = starting_model(self.model, options, self.federation, seed)
        train = self.recipe.of(variant).train
        return assemble(start, list(self.methods(variant)), clients, train, seed)


def in_memory(
    federation: Federation,
    model: nn.Module | str,
    options: Mapping[str, Any],
    listed: Mapping[str, Sequence[Method]],
    train: TrainConfig,
    measure: MetricsConfig,
    out: str | Path | None,
) -> Experiment:
    """Make an experiment whose recipe says all that can be said of it.

    options: of a model by name. listed: the methods of each variant, by its label. out: a result
    folder; None: results stay in memory.
    """
    for methods in listed.values():
        check_methods(methods)
    named = isinstance(model, str)
    values = {
        "name": "python",
        "data": {
            "name": MEMORY,
            "clients": federation.census.num_clients,
            "partition": "given",
        },
        "model": {"name": model, **options} if named else {"name": MEMORY},
        "train": train.model_dump(exclude_none=True),
        "metrics": measure.model_dump(exclude_none=True),
        "compare": [
            {"label": label, "methods": [_table(method) for method in methods]}
            for label, methods in listed.items()
        ],
    }
    recipe = parse_stored(values)
    source = MemorySource(federation, model, recipe, listed)
    return Experiment(recipe, None if out is None else Path(out), source)


def check_listed(methods: Any) -> Mapping[str, Sequence[Method]]:
    """Refuse what is not lists of methods by label."""
    example = "such as {'FedAvg': [], 'FedBR': [fedbr.FedBR()]}"
    if not isinstance(methods, Mapping) or not methods:
        raise InputError(f"methods: lists of methods by label are expected, {example}")
    for label, listed in methods.items():
        if not isinstance(label, str) or not label:
            raise InputError(f"methods: {label!r} is no label; {example}")
        if not isinstance(listed, Sequence) or not all(isinstance(m, Method) for m in listed):
            raise InputError(f"methods[{label!r}] = {listed!r}: must be a list, {example}")
    return methods


def label_of(methods: Sequence[Method]) -> str:
    """Name a list of methods as tables do: "Mixup + FedBR"; none is FedAvg."""
    return " + ".join(type(method).__name__ for method in methods) or "FedAvg"


def _table(method: Method) -> dict[str, Any]:
    """Write a method as a recipe does; one that is not in the table by where its class is."""
    kind = type(method)
    name = method.name if METHODS.get(method.name) is kind else _name(kind)
    return {"name": name, **method.model_dump(mode="json", exclude_none=True)}


def _name(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"
