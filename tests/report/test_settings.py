"""Settings that differ, between the variants of a recipe and between recipes."""

from __future__ import annotations

from typing import Any

from fedbr.recipe import load as config
from fedbr.recipe.schema import Recipe
from fedbr.report.settings import list_differences, list_variants


def recipe(overrides: list[str], variants: list[str]) -> Recipe:
    return config.load("digits", overrides, variants)


def changed(recipe: Recipe, *variants: dict[str, Any]) -> Recipe:
    """Return the recipe with other values in its variants, one after another."""
    values = recipe.model_dump(exclude_none=True)
    for variant, change in zip(values["compare"], variants, strict=False):
        variant |= change
    return config.parse(values)


def test_recipes_what_differs_and_parameters_of_methods_that_both_have() -> None:
    first = recipe(["data.alpha=0.5"], ["fedavg", "fedbr", "fedprox"])
    second = recipe(["fedbr.lam=1.0"], ["fedbr", "mixup"])
    header, rows = list_differences({"a": first, "b": second})
    assert header == ["", "a", "b"]
    assert rows == [["data.alpha", "0.5", "0.1"], ["fedbr.lam", "0.1", "1"]]


def test_all_values_where_variants_of_one_recipe_differ() -> None:
    first = recipe([], ["fedbr"])
    second = recipe([], ["fedbr", "mixup+fedbr"])
    mixup, fedbr = second.compare[1].methods
    second = changed(second, {}, {"methods": [mixup, {**fedbr, "lazy": 4}]})
    assert list_differences({"a": first, "b": second})[1] == [["fedbr.lazy", "1", "1 and 4"]]


def test_what_variants_set_for_themselves_is_what_was_used() -> None:
    first = recipe([], ["fedavg", "fedbr"])
    second = changed(first, {"train": {"lr": 0.1}}, {"train": {"lr": 0.02}})
    assert list_differences({"a": first, "b": second})[1] == [["train.lr", "0.01", "0.1 and 0.02"]]
    second = changed(first, {"train": {"lr": 0.1}})
    assert list_differences({"a": first, "b": second})[1] == [["train.lr", "0.01", "0.1 and 0.01"]]


def test_parameters_that_were_there_before_are_not_repeated() -> None:
    made = recipe([], ["fedavg", "fedprox", "mixup+fedprox", "scaffold"])
    (fedprox,) = made.compare[1].methods
    other = {"label": "c", "methods": [{**fedprox, "mu": 9.0}]}
    _, cells = list_variants(changed(made, {}, {}, other))
    assert cells[0] == ["FedAvg", "none (FedAvg)", ""]
    assert cells[2] == ["c", "fedprox", "mu = 9"]
    _, cells = list_variants(made)
    assert cells[2][2].endswith("fedprox: as above")
    assert cells[3][2] == "no parameters"
