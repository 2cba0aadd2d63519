"""Recipes by name and from files, those of result folders, and those that are shipped."""

from __future__ import annotations

import re
import tomllib
import warnings
from collections.abc import Sequence
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from ..util.errors import InputError, unknown
from ..util.tables import TomlTable
from ..util.validation import validate
from .overrides import apply, read_variants
from .schema import WITHOUT_CODE, Recipe, Variant

# Keys of [train] that have another name now; those of older versions stay readable.
OLD_TRAIN_KEYS = {"cohort": "clients_at_once"}


def load(name: str, overrides: Sequence[str] = (), variants: Sequence[str] = ()) -> Recipe:
    """Read a recipe, change it, and validate it.

    Args:
        name: a shipped recipe or a TOML file.
        overrides: ``key=value`` texts as of ``--set``.
        variants: texts such as "mixup+fedbr", which are compared instead of the recipe's own.

    Raises:
        InputError: the line says what is wrong in any of them.

    >>> recipe = load("digits", ["train.rounds=5"], ["fedavg", "mixup+fedbr"])
    >>> recipe.train.rounds, [variant.label for variant in recipe.compare]
    (5, ['FedAvg', 'Mixup + FedBR'])
    """
    values = read(name)
    if variants:
        values["compare"] = read_variants(variants)
    return override(values, overrides)


def override(values: TomlTable, overrides: Sequence[str]) -> Recipe:
    """Change a recipe's values with ``key=value`` overrides, and validate them.

    >>> override({"compare": [{"label": "FedAvg"}]}, ["train.rounds=5"]).train.rounds
    5
    """
    return parse(apply(values, overrides))


def parse(values: TomlTable) -> Recipe:
    """Validate a recipe's values.

    >>> parse({"compare": [{"label": "FedAvg"}], "train": {"rounds": 0}})
    Traceback (most recent call last):
        ...
    fedbr.util.errors.InputError: train.rounds = 0: input should be greater than or equal to 1
    """
    return validate(Recipe, _rename_keys(values, warn=True), "")


def parse_stored(values: TomlTable) -> Recipe:
    """Validate the recipe of a result folder.

    The folder may be somebody else's, so code that the recipe names is not imported.
    """
    return validate(Recipe, _rename_keys(values, warn=False), "", WITHOUT_CODE)


def parse_variant(values: TomlTable) -> Variant:
    """Validate one variant."""
    return validate(Variant, values, "compare")


def read(name: str) -> TomlTable:
    """Read the values of a shipped recipe or a TOML file; they are not validated.

    A recipe without a name is named after its file.

    Raises:
        InputError: there is no such recipe, or the file is not TOML.

    >>> read("digits")["data"]["alpha"]
    0.1
    """
    if name in list_shipped():
        return tomllib.loads(_shipped_file(name).read_text("utf-8"))
    path = Path(name)
    if path.suffix != ".toml" and not path.exists():
        raise InputError(f"{unknown('recipe', name, list_shipped())}, or a TOML file")
    try:
        values = tomllib.loads(path.read_text("utf-8-sig"))
    except OSError as error:
        raise InputError(f"recipe = {name!r}: cannot read it ({error.strerror})") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"recipe = {name!r}: not TOML ({error})") from error
    return {"name": make_name(path.stem), **values}


def list_shipped() -> list[str]:
    """Return the names of the recipes that come with the package.

    >>> "digits" in list_shipped()
    True
    """
    files = [file.name for file in _shipped_folder().iterdir()]
    return sorted(file.removesuffix(".toml") for file in files if file.endswith(".toml"))


def read_summary(name: str) -> str:
    """Return the first line of a shipped recipe, which says what it is for.

    >>> read_summary("digits").isprintable()
    True
    """
    first = _shipped_file(name).read_text("utf-8").splitlines()[0]
    return first.removeprefix("#").strip()


def make_name(file: str) -> str:
    """Make a valid name for a recipe from the name of a file.

    >>> make_name("my data (2)")
    'my_data__2_'
    """
    return re.sub(r"[^\w.+-]|^[.+-]+", "_", file)


def rename_train_keys(train: TomlTable, warn: bool) -> TomlTable:
    """Give the keys of [train] the names that they have now.

    Args:
        warn: whether a warning names the new key.

    >>> rename_train_keys({"rounds": 5, "cohort": 2}, warn=False)
    {'rounds': 5, 'clients_at_once': 2}
    """
    renamed = dict(train)
    for old, new in OLD_TRAIN_KEYS.items():
        if old not in renamed:
            continue
        if new in renamed:
            raise InputError(f"train.{old}: is called train.{new} now; give one of them")
        if warn:
            message = f"train.{old} is called train.{new} now"
            warnings.warn(message, RuntimeWarning, stacklevel=3)
        renamed[new] = renamed.pop(old)
    return renamed


def _rename_keys(values: TomlTable, warn: bool) -> TomlTable:
    train = values.get("train")
    if not isinstance(train, dict):
        return values
    return {**values, "train": rename_train_keys(train, warn)}


def _shipped_folder() -> Traversable:
    return resources.files(__package__) / "shipped"


def _shipped_file(name: str) -> Traversable:
    return _shipped_folder() / f"{name}.toml"
