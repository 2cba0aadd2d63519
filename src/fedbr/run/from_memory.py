"""Experiments on objects in memory: a federation, a model and methods from Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from ..core.census import Clients
from ..core.method import Method
from ..core.method_checks import check_methods
from ..core.setup import Setup
from ..data import Federation
from ..methods import METHODS
from ..recipe.load import parse_stored
from ..recipe.schema import MEMORY, MetricsConfig, Recipe, TrainConfig, Variant
from ..util.errors import InputError
from ..util.imports import source_hash
from ..util.tables import Options
from .arguments import starting_model
from .plan import Experiment
from .setup import assemble


@dataclass(frozen=True)
class MemorySource:
    """Makes the parts of a run from objects; every seed has the same clients."""

    federation: Federation
    model: nn.Module | str  # a module starts from its own weights, whatever the seed
    recipe: Recipe
    variants: Mapping[str, Sequence[Method]]  # the methods of each variant, by its label
    _setups: dict[tuple[str, int], Setup] = field(default_factory=dict, compare=False)

    def clients(self, seed: int) -> Federation:
        return self.federation

    def methods(self, variant: Variant) -> Sequence[Method]:
        return self.variants[variant.label]

    def code(self, variant: Variant) -> dict[str, str]:
        """Return the names of the user's own classes in a variant, each with a hash."""
        classes: list[type] = []
        for method in self.variants[variant.label]:
            if METHODS.get(method.name) is not type(method):
                classes.append(type(method))
        if not isinstance(self.model, str):
            classes.append(type(self.model))
        return {_name_class(cls): source_hash(cls) for cls in classes}

    def setup(self, variant: Variant, seed: int, clients: Clients) -> Setup:
        """Return the setup of a run; those of one seed are kept, as they are used again."""
        key = variant.label, seed
        if key not in self._setups:
            if any(other != seed for _, other in self._setups):
                self._setups.clear()
            self._setups[key] = self._make_setup(variant, seed, clients)
        return self._setups[key]

    def _make_setup(self, variant: Variant, seed: int, clients: Clients) -> Setup:
        options = self.recipe.model.options
        start = starting_model(self.model, options, self.federation, seed)
        train = self.recipe.of(variant).train
        return assemble(start, list(self.methods(variant)), clients, train, seed)


def make_experiment(
    federation: Federation,
    model: nn.Module | str,
    options: Options,
    variants: Mapping[str, Sequence[Method]],
    train: TrainConfig,
    metrics: MetricsConfig,
    out: str | Path | None,
) -> Experiment:
    """Make an experiment on objects, with a recipe that describes them as far as TOML can.

    Args:
        options: of a model by its name.
        variants: the methods of each variant, by its label.
        out: a result folder; None: results stay in memory.
    """
    for methods in variants.values():
        check_methods(methods)
    compare = []
    for label, methods in variants.items():
        compare.append({"label": label, "methods": [_make_table(method) for method in methods]})
    values = {
        "name": "python",
        "data": {
            "name": MEMORY,
            "clients": federation.census.num_clients,
            "partition": "given",
        },
        "model": {"name": model, **options} if isinstance(model, str) else {"name": MEMORY},
        "train": train.model_dump(exclude_none=True),
        "metrics": metrics.model_dump(exclude_none=True),
        "compare": compare,
    }
    recipe = parse_stored(values)
    source = MemorySource(federation, model, recipe, variants)
    return Experiment(recipe, None if out is None else Path(out), source)


def check_variants(methods: Any) -> Mapping[str, Sequence[Method]]:
    """Refuse anything but lists of methods by label."""
    example = "such as {'FedAvg': [], 'FedBR': [fedbr.FedBR()]}"
    if not isinstance(methods, Mapping) or not methods:
        raise InputError(f"methods: expected lists of methods by label, {example}")
    for label, entries in methods.items():
        if not isinstance(label, str) or not label:
            raise InputError(f"methods: expected a label, not {label!r}, {example}")
        is_list = isinstance(entries, Sequence) and all(isinstance(m, Method) for m in entries)
        if not is_list:
            raise InputError(f"methods[{label!r}] = {entries!r}: must be a list, {example}")
    return methods


def make_label(methods: Sequence[Method]) -> str:
    """Make the label of a list of methods, such as "Mixup + FedBR"; that of none is "FedAvg"."""
    return " + ".join(type(method).__name__ for method in methods) or "FedAvg"


def _make_table(method: Method) -> Options:
    """Write a method as a recipe does; a class of the user's own as "package.module:Class"."""
    cls = type(method)
    name = method.name if METHODS.get(method.name) is cls else _name_class(cls)
    return {"name": name, **method.model_dump(mode="json", exclude_none=True)}


def _name_class(cls: type) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"
