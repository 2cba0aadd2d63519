"""Settings that differ: between the variants of a recipe, and between recipes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..recipe.schema import Recipe, Variant
from .tables import Table

Settings = Mapping[str, str]  # key such as "train.lr" -> value in words


def of_variants(recipe: Recipe) -> Table:
    """List the methods and parameters of each variant.

    Of a method that a row above has too, only what is different.
    """
    first_use: dict[str, Settings] = {}
    rows = []
    for variant in recipe.compare:
        said = []
        for method in variant.methods:
            name, own = method["name"], _parameters(method)
            words = _new(own, first_use.setdefault(name, own))
            said.append(f"{name}: {words}" if len(variant.methods) > 1 else words)
        if training := _training(variant):
            said.append(_list(training))
        names = " + ".join(method["name"] for method in variant.methods) or "none (FedAvg)"
        rows.append([variant.label, names, "; ".join(said)])
    return ["", "methods", "parameters"], rows


def of_recipes(recipes: Mapping[str, Recipe]) -> Table:
    """List the settings in which recipes differ, a column for each; variants apart.

    recipes: by the names of their columns.
    """
    columns = []
    methods = [_of_methods(recipe.compare) for recipe in recipes.values()]
    for recipe, parameters in zip(recipes.values(), methods, strict=True):
        shared = {}  # of methods that more than one of the recipes has
        for key, value in parameters.items():
            if sum(key in other for other in methods) > 1:
                shared[key] = value
        columns.append(_of_recipe(recipe) | shared)
    rows = []
    for key in dict.fromkeys(key for column in columns for key in column):
        if len({column.get(key) for column in columns}) > 1:
            rows.append([key, *(column.get(key, "-") for column in columns)])
    return ["", *recipes], rows


def _new(own: Settings, first: Settings) -> str:
    """Say the parameters of a method, or how they differ from those of its first use."""
    if not own:
        return "no parameters"
    if own is first:
        return _list(own)
    changed = {key: value for key, value in own.items() if first.get(key) != value}
    return _list(changed) or "as above"


def _of_recipe(recipe: Recipe) -> dict[str, str]:
    """Return the settings of all variants together."""
    values = recipe.model_dump(exclude_none=True, exclude={"name", "compare"})
    return dict(_flat(values)) | _of_training(recipe)


def _of_training(recipe: Recipe) -> dict[str, str]:
    """Return what variants set for themselves; where they differ, all values that were used."""
    usual = dict(_flat({"train": recipe.train.model_dump(exclude_none=True)}))
    own = [_training(variant) for variant in recipe.compare]
    used = {}
    for key in dict.fromkeys(key for settings in own for key in settings):
        values = [settings.get(key, usual.get(key, "-")) for settings in own]
        used[key] = " and ".join(dict.fromkeys(values))
    return used


def _of_methods(variants: Sequence[Variant]) -> dict[str, str]:
    """Return the parameters of a recipe's methods; where its variants differ, all values."""
    used: dict[str, dict[str, None]] = {}
    for variant in variants:
        for method in variant.methods:
            for key, value in _parameters(method).items():
                used.setdefault(f"{method['name']}.{key}", {})[value] = None
    return {key: " and ".join(values) for key, values in used.items()}


def _parameters(method: Mapping[str, Any]) -> dict[str, str]:
    """Return the parameters of a method: its table in the recipe, without the name."""
    return dict(_flat({key: value for key, value in method.items() if key != "name"}))


def _training(variant: Variant) -> dict[str, str]:
    """Return what a variant sets for itself."""
    own = variant.train.model_dump(exclude_none=True) if variant.train else {}
    return dict(_flat(own, "train."))


def _list(settings: Settings) -> str:
    return ", ".join(f"{key} = {value}" for key, value in settings.items())


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield the keys of nested tables, joined by dots, and their values in words."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", _word(value)


def _word(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list):
        return ", ".join(map(_word, value))
    return str(value)
