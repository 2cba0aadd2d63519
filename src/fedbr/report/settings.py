"""Settings that differ: between the variants of a recipe, and between recipes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ..recipe.schema import Recipe, Variant
from .tables import Table

Settings = Mapping[str, str]  # key such as "train.lr" -> value in words


def list_variants(recipe: Recipe) -> Table:
    """List the methods and parameters of each variant.

    Of a method that a row above has too, only what is different is listed.
    """
    first_use: dict[str, Settings] = {}
    rows = []
    for variant in recipe.compare:
        names, settings = [], []
        for method in variant.methods:
            name, parameters = method["name"], _parameters(method)
            changes = _describe_changes(parameters, first_use.setdefault(name, parameters))
            names.append(name)
            settings.append(f"{name}: {changes}" if len(variant.methods) > 1 else changes)
        if training := _training(variant):
            settings.append(_join(training))
        methods = " + ".join(names) or "none (FedAvg)"
        rows.append([variant.label, methods, "; ".join(settings)])
    return ["", "methods", "parameters"], rows


def list_differences(recipes: Mapping[str, Recipe]) -> Table:
    """List the settings in which recipes differ, a column for each; variants apart.

    Args:
        recipes: by the names of their columns.
    """
    methods = [_settings_of_methods(recipe.compare) for recipe in recipes.values()]
    columns = []
    for recipe, parameters in zip(recipes.values(), methods, strict=True):
        settings = _settings_of_all(recipe)
        for key, value in parameters.items():
            recipes_with_key = sum(key in others for others in methods)
            if recipes_with_key > 1:
                settings[key] = value
        columns.append(settings)
    rows = []
    for key in _keys(columns):
        values = [column.get(key) for column in columns]
        if len(set(values)) > 1:
            rows.append([key, *("-" if value is None else value for value in values)])
    return ["", *recipes], rows


def _keys(settings: Sequence[Settings]) -> list[str]:
    """Return the keys of all settings, each once, in the order in which they come."""
    return list(dict.fromkeys(key for values in settings for key in values))


def _describe_changes(parameters: Settings, first: Settings) -> str:
    """Say the parameters of a method, or how they differ from those of its first use."""
    if not parameters:
        return "no parameters"
    if parameters is first:
        return _join(parameters)
    changed = {key: value for key, value in parameters.items() if first.get(key) != value}
    return _join(changed) or "as above"


def _settings_of_all(recipe: Recipe) -> dict[str, str]:
    """Return the settings that all variants share, and what they set for themselves."""
    values = recipe.model_dump(exclude_none=True, exclude={"name", "compare"})
    return dict(_flatten(values)) | _settings_of_training(recipe)


def _settings_of_training(recipe: Recipe) -> dict[str, str]:
    """Return what variants set for themselves; where they differ, all values that were used."""
    common = dict(_flatten({"train": recipe.train.model_dump(exclude_none=True)}))
    by_variant = [_training(variant) for variant in recipe.compare]
    used = {}
    for key in _keys(by_variant):
        values = [settings.get(key, common.get(key, "-")) for settings in by_variant]
        used[key] = " and ".join(dict.fromkeys(values))
    return used


def _settings_of_methods(variants: Sequence[Variant]) -> dict[str, str]:
    """Return the parameters of a recipe's methods; where its variants differ, all values."""
    used: dict[str, dict[str, None]] = {}  # the values are in order, each once
    for variant in variants:
        for method in variant.methods:
            for key, value in _parameters(method).items():
                used.setdefault(f"{method['name']}.{key}", {})[value] = None
    return {key: " and ".join(values) for key, values in used.items()}


def _parameters(method: Mapping[str, object]) -> dict[str, str]:
    """Return the parameters of a method: its table in the recipe, without the name."""
    return dict(_flatten({key: value for key, value in method.items() if key != "name"}))


def _training(variant: Variant) -> dict[str, str]:
    """Return what a variant sets for itself."""
    if variant.train is None:
        return {}
    return dict(_flatten(variant.train.model_dump(exclude_none=True), "train."))


def _join(settings: Settings) -> str:
    return ", ".join(f"{key} = {value}" for key, value in settings.items())


def _flatten(values: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield the keys of nested tables, joined by dots, and their values in words."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", _show(value)


def _show(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list):
        return ", ".join(map(_show, value))
    return str(value)
