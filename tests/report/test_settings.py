"""Settings that differ, between the variants of a recipe and between recipes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from fedbr.recipe import load as config
from fedbr.report.settings import of_folders


def comparison(name: str, overrides: list[str], variants: list[str]) -> Any:
    recipe = config.load("digits", overrides, variants).model_dump(exclude_none=True)
    return SimpleNamespace(name=name, results={"recipe": recipe})


def test_of_recipes_what_differs_and_parameters_of_methods_that_both_have() -> None:
    first = comparison("a", ["data.alpha=0.5"], ["fedavg", "fedbr", "fedprox"])
    second = comparison("b", ["fedbr.lam=1.0"], ["fedbr", "mixup"])
    header, rows = of_folders([first, second])
    assert header == ["", "a", "b"]
    assert rows == [["data.alpha", "0.5", "0.1"], ["fedbr.lam", "0.1", "1"]]


def test_all_values_where_stacks_of_one_recipe_differ() -> None:
    first = comparison("a", [], ["fedbr"])
    second = comparison("b", [], ["fedbr", "mixup+fedbr"])
    second.results["recipe"]["compare"][1]["methods"][1]["lazy"] = 4
    assert of_folders([first, second])[1] == [["fedbr.lazy", "1", "1 and 4"]]


def test_what_stacks_set_for_themselves_is_what_was_used() -> None:
    first, second = (comparison(name, [], ["fedavg", "fedbr"]) for name in "ab")
    for variant, lr in zip(second.results["recipe"]["compare"], (0.1, 0.02), strict=True):
        variant["train"] = {"lr": lr}
    assert of_folders([first, second])[1] == [["train.lr", "0.01", "0.1 and 0.02"]]
    del second.results["recipe"]["compare"][1]["train"]
    assert of_folders([first, second])[1] == [["train.lr", "0.01", "0.1 and 0.01"]]
