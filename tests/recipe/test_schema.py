"""What a recipe may say, and the one line for what it may not."""

from __future__ import annotations

from typing import Any

import pytest

from fedbr.recipe.load import parse
from fedbr.recipe.schema import MetricsConfig, ModelConfig, Section, TrainConfig
from fedbr.util.errors import InputError

FEDAVG = {"label": "FedAvg", "methods": []}


def recipe(**sections: Any) -> dict[str, Any]:
    return {"compare": [FEDAVG], **sections}


@pytest.mark.parametrize(
    ("values", "line"),
    [
        (recipe(name="a/b"), "name = 'a/b': expected letters, digits and _, and . + -"),
        (recipe(trian={}), "trian = {}: unknown key; did you mean 'train'?"),
        (recipe(data={"name": "mnits"}), "data.name = 'mnits' is unknown"),
        (recipe(data={"name": 3}), "data.name = 3: input should be a valid string"),
        (recipe(data={"partition": "ldaa"}), "data.partition = 'ldaa' is unknown"),
        (recipe(data={"unseen": "photo"}), "data.unseen = 'photo': digits has no use for it"),
        (recipe(data=3), "data = 3: input should be a valid dictionary"),
        (recipe(model={"name": "cnnn"}), "model.name = 'cnnn' is unknown; did you mean 'cnn'?"),
        (recipe(model={"width": -1.0}), "model.width = -1.0: "),
        (recipe(train={"rounds": "5"}), "train.rounds = '5': input should be a valid integer"),
        (recipe(train={"learning_rate": 1.0}), "unknown key; did you mean 'lr'?"),
        (recipe(train={"seeds": [1, 1]}), "train.seeds = [1, 1]: duplicate seed"),
        (recipe(train={"clients_per_round": 11}), "there are only 10 clients (data.clients)"),
        (recipe(metrics={"target": 2.0}), "metrics.target = 2.0: "),
        ({}, "compare: expected at least one variant, such as: [[compare]]"),
        ({"compare": FEDAVG}, "compare: expected a list, not one table"),
        ({"compare": [FEDAVG, FEDAVG]}, "compare: duplicate label among FedAvg, FedAvg"),
        ({"compare": [{"methods": []}]}, "compare: expected a label for every variant"),
        ({"compare": [{"label": "A", "methods": "fedbr"}]}, "expected a list"),
        (
            {"compare": [{"label": "A", "methods": [3]}]},
            "compare[A].methods = 3: expected a name, or a",
        ),
        (
            {"compare": [{"label": "A", "methods": [{"name": "fedavg", "lam": 1}]}]},
            "compare[A].methods: fedavg has no parameters, not lam",
        ),
    ],
)
def test_wrong_values_get_one_line(values: dict[str, Any], line: str) -> None:
    with pytest.raises(InputError) as refused:
        parse(values)
    assert line in str(refused.value)
    assert "\n" not in str(refused.value)


def test_defaults_come_from_the_data_set() -> None:
    digits = parse(recipe()).data
    assert (digits.name, digits.partition, digits.clients) == ("digits", "lda-prior", 10)
    named = parse(recipe(data={"name": "npz", "path": "x.npz", "partition": "domains"})).data
    assert named.clients is None  # the file says how many


def test_one_value_is_a_list_of_one() -> None:
    chosen = parse(recipe(train={"seeds": 3}, metrics={"targets": 0.5}))
    assert chosen.train.seeds == [3]
    assert chosen.metrics.targets == [0.5]


def test_a_variant_trains_with_settings_of_its_own() -> None:
    slow = {"label": "Slow", "methods": [], "train": {"lr": 0.001}}
    chosen = parse({"compare": [FEDAVG, slow], "train": {"momentum": 0.5}})
    lrs = [chosen.of(variant).train.lr for variant in chosen.compare]
    assert lrs == [0.01, 0.001]
    assert chosen.of(chosen.compare[1]).train.momentum == 0.5


@pytest.mark.parametrize("section", [ModelConfig, TrainConfig, MetricsConfig])
def test_every_key_says_what_it_means(section: type[Section]) -> None:
    for key, field in section.model_fields.items():
        assert field.description, key
