"""Changes on the command line: which place of a recipe a text reaches, and what is refused."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbr.recipe.load import read
from fedbr.recipe.overrides import (
    apply,
    find_dropped_options,
    find_method_name,
    read_value,
    read_variant,
    read_variants,
    write_value,
)
from fedbr.util.errors import InputError


def two_variants() -> dict[str, Any]:
    return {
        "model": {"name": "cnn", "width": 0.25},
        "compare": [
            {"label": "A", "methods": ["fedbr", {"name": "fedprox", "mu": 0.1}]},
            {"label": "B", "methods": [{"name": "fedbr", "lam": 2.0}]},
        ],
    }


def test_values_that_are_given_stay_as_they_are() -> None:
    values = two_variants()
    before = copy.deepcopy(values)
    changed = apply(values, ["fedbr.lam=1", "compare.0.label=C", "model.width=1"])
    assert values == before
    assert changed["model"] == {"name": "cnn", "width": 1}
    assert changed["compare"][0]["label"] == "C"


def test_a_parameter_reaches_every_variant_that_has_the_method() -> None:
    first, second = apply(two_variants(), ["fedbr.lam=1", "fedprox.mu=0.5"])["compare"]
    assert first["methods"] == [{"name": "fedbr", "lam": 1}, {"name": "fedprox", "mu": 0.5}]
    assert second["methods"] == [{"name": "fedbr", "lam": 1}]


def test_the_last_of_several_texts_counts() -> None:
    changed = apply({}, ["train.rounds=5", "train.rounds=6", " train.lr = 0.1 "])
    assert changed == {"train": {"rounds": 6, "lr": 0.1}}


def test_another_model_drops_the_options_of_the_one_before() -> None:
    other = apply(two_variants(), ["model.name=mlp", "model.hidden=8"])
    assert other["model"] == {"name": "mlp", "hidden": 8}
    same = apply(two_variants(), ["model.name=cnn"])
    assert same["model"] == {"name": "cnn", "width": 0.25}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("train.rounds", "--set 'train.rounds': expected section.key=value"),
        ("rounds=5", "--set 'rounds=5': expected section.key=value"),
        ("trian.rounds=5", "section = 'trian' is unknown; did you mean 'train'?"),
        ("scaffold.x=1", "--set scaffold.x: no variant of the recipe has 'scaffold'"),
        ("compare.2.label=C", "compare has entries 0 to 1, not 2"),
        ("compare.label=C", "name a key inside compare"),
        ("model.name.first=1", "model.name is not a table"),
    ],
)
def test_a_text_without_a_place_is_refused(text: str, words: str) -> None:
    with pytest.raises(InputError) as refused:
        apply(two_variants(), [text])
    assert words in str(refused.value)


@pytest.mark.parametrize("malformed", [{"compare": 3}, {"compare": [3]}, {"compare": [{}]}])
def test_what_is_malformed_is_left_for_the_validation(malformed: dict[str, Any]) -> None:
    assert apply(malformed, ["name=x"]) == {**malformed, "name": "x"}


def test_variants_are_read_whatever_their_case() -> None:
    assert read_variant("scaffold+FedBR") == read_variant("SCAFFOLD + fedbr")
    assert read_variant("fedavg+mixup") == read_variant("mixup")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("fedavg,fedbr", "separated by spaces, as in --methods fedavg fedbr"),
        ("mixup+", "names of methods joined by '+'"),
        ("fedrb", "did you mean 'fedbr'?"),
    ],
)
def test_a_variant_that_cannot_be_read_is_refused(text: str, words: str) -> None:
    with pytest.raises(InputError) as refused:
        read_variant(text)
    assert words in str(refused.value)


def test_one_class_by_two_names_has_two_labels() -> None:
    labels = [variant["label"] for variant in read_variants(["fedbr", "fedbr.methods:FedBR"])]
    assert labels == ["FedBR", "fedbr.methods:FedBR"]
    assert find_method_name("fedbr.methods:FedBR") == "fedbr"


def test_dropped_options_are_those_that_the_recipe_agrees_on() -> None:
    digits = read("digits")
    assert find_dropped_options(digits, [], ["fedavg", "fedbr"]) == ["fedbr.lazy=4"]
    assert find_dropped_options(digits, ["fedbr.lazy=1"], ["fedbr"]) == []
    assert find_dropped_options(digits, [], ["mixup"]) == []
    assert find_dropped_options(digits, [], []) == []
    several = read("lazy-digits")
    assert find_dropped_options(several, [], ["fedbr"]) == []


texts = st.text(st.characters(exclude_categories=["C", "Z"]))
numbers = st.integers(-(10**9), 10**9) | st.floats(allow_nan=False)
values = texts | numbers | st.booleans() | st.lists(numbers) | st.lists(texts)


@given(values)
def test_a_value_that_is_written_is_read_again(value: object) -> None:
    assert read_value(write_value(value)) == value
