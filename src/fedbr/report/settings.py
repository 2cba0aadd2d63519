"""Settings that differ: between the variants of a recipe, and between recipes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .comparison import Comparison


def of_variants(comparison: Comparison) -> tuple[list[str], list[list[str]]]:
    """Return the methods and parameters of each variant; of a method that was there before, what is
    different.
    """
    seen: dict[str, dict[str, str]] = {}
    cells = []
    for variant in comparison.results["recipe"]["compare"]:
        words = []
        for method in variant["methods"]:
            mine = dict(_flat({key: value for key, value in method.items() if key != "name"}))
            first = seen.setdefault(method["name"], mine)
            new = (
                mine
                if first is mine
                else {key: value for key, value in mine.items() if first.get(key) != value}
            )
            shown = _list(new) or ("as above" if mine else "no parameters")
            words.append(f"{method['name']}: {shown}" if len(variant["methods"]) > 1 else shown)
        own = _list(dict(_flat(variant.get("train") or {}, "train.")))
        names = " + ".join(method["name"] for method in variant["methods"]) or "none (FedAvg)"
        cells.append([variant["label"], names, "; ".join([*words, *([own] if own else [])])])
    return ["", "methods", "parameters"], cells


def _of_methods(variants: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the parameters of a recipe's methods; where its variants differ, all values."""
    found: dict[str, dict[str, None]] = {}
    for method in (method for variant in variants for method in variant["methods"]):
        for key, value in _flat(
            {k: v for k, v in method.items() if k != "name"}, f"{method['name']}."
        ):
            found.setdefault(key, {})[value] = None
    return {key: " and ".join(values) for key, values in found.items()}


def _of_training(recipe: Mapping[str, Any]) -> dict[str, str]:
    """Return what variants set for themselves; where they differ, all values that were used."""
    own = [dict(_flat(variant.get("train") or {}, "train.")) for variant in recipe["compare"]]
    usual = dict(_flat({"train": recipe["train"]}))
    return {
        key: " and ".join(dict.fromkeys(variant.get(key, usual.get(key, "-")) for variant in own))
        for key in dict.fromkeys(key for variant in own for key in variant)
    }


def of_folders(comparisons: Sequence[Comparison]) -> tuple[list[str], list[list[str]]]:
    """Return the settings in which recipes differ, a column for each; variants apart."""
    recipes = []
    for comparison in comparisons:
        recipe = comparison.results["recipe"]
        recipes.append(
            dict(_flat({k: v for k, v in recipe.items() if k not in ("name", "compare")}))
        )
        recipes[-1] |= _of_training(recipe)
    methods = [_of_methods(comparison.results["recipe"]["compare"]) for comparison in comparisons]
    for settings, found in zip(
        recipes, methods, strict=True
    ):  # of methods that more than one of the recipes has
        settings |= {
            key: value for key, value in found.items() if sum(key in other for other in methods) > 1
        }
    keys = dict.fromkeys(key for recipe in recipes for key in recipe)
    differing = [key for key in keys if len({recipe.get(key) for recipe in recipes}) > 1]
    cells = [[key, *(recipe.get(key, "-") for recipe in recipes)] for key in differing]
    return ["", *(comparison.name for comparison in comparisons)], cells


def _list(parameters: Mapping[str, str]) -> str:
    return ", ".join(f"{key} = {value}" for key, value in parameters.items())


def _flat(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, item in value.items():
        if isinstance(item, Mapping):
            yield from _flat(item, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", _word(item)


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:g}"
    return ", ".join(map(_word, value)) if isinstance(value, list) else str(value)
