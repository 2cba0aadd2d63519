"""Recipes by name, from files and from result folders."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

import fedbr
from fedbr.recipe.load import list_shipped, load, parse, parse_stored, read, read_summary
from fedbr.util.errors import InputError

COMPARE = [{"label": "FedAvg", "methods": []}]


@pytest.mark.parametrize("name", list_shipped())
def test_a_shipped_recipe_survives_its_own_toml(name: str, tmp_path: Path) -> None:
    recipe = load(name)
    file = tmp_path / "again.toml"
    file.write_text(recipe.to_toml(), "utf-8")
    assert load(str(file)) == recipe
    assert len(read_summary(name)) > 20


def test_a_file_without_a_name_is_named_after_itself(tmp_path: Path) -> None:
    file = tmp_path / "my data.toml"
    file.write_text("[train]\nrounds = 3\n", "utf-8")
    assert read(str(file)) == {"name": "my_data", "train": {"rounds": 3}}
    file.write_text('\ufeffname = "other"\n', "utf-8")  # as some editors of Windows begin it
    assert read(str(file)) == {"name": "other"}


def test_files_that_cannot_be_read_are_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"'digts' is unknown; did you mean 'digits'\? .* TOML"):
        read("digts")
    with pytest.raises(InputError, match="cannot read it"):
        read(str(tmp_path / "missing.toml"))
    (tmp_path / "broken.toml").write_text("train = {")
    with pytest.raises(InputError, match="not TOML"):
        read(str(tmp_path / "broken.toml"))


def test_a_key_of_an_older_version_is_read_with_a_word() -> None:
    old = {"compare": COMPARE, "train": {"cohort": 2}}
    with pytest.warns(RuntimeWarning, match="cohort is called train.clients_at_once now"):
        assert parse(old).train.clients_at_once == 2
    with pytest.warns(RuntimeWarning, match="cohort is called"):
        assert load("digits", ["train.cohort=3"]).train.clients_at_once == 3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert parse_stored(old).train.clients_at_once == 2  # nobody wrote it today
    with pytest.raises(InputError, match="give one of them"):
        parse({"compare": COMPARE, "train": {"cohort": 2, "clients_at_once": 2}})
    assert old["train"] == {"cohort": 2}


def test_python_reads_the_older_name_too(federation: fedbr.Federation) -> None:
    with pytest.warns(RuntimeWarning, match="cohort is called"):
        fedbr.train(federation, "mlp", rounds=1, local_steps=1, cohort=2)


def test_a_stored_recipe_imports_no_code_of_its_own() -> None:
    methods = [{"name": "no.such.module:Method", "strength": 1.0}]
    values = {"compare": [{"label": "Theirs", "methods": methods}]}
    assert parse_stored(values).compare[0].methods == methods
    with pytest.raises(InputError, match="cannot import it"):
        parse(values)
