"""Changes to a recipe on the command line: ``--set key=value`` and ``--methods mixup+fedbr``.

They are applied to a recipe as its file has it; load.py validates the result.
"""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import tomli_w

from .. import methods as method_table
from ..util.errors import InputError, unknown
from ..util.tables import Options, TomlTable
from .schema import Recipe


@dataclass(frozen=True)
class Override:
    """One ``key=value`` of ``--set``."""

    text: str
    path: tuple[str, ...]  # ("train", "rounds")
    value: Any

    @classmethod
    def parse(cls, text: str) -> Override:
        """Read ``section.key=value``.

        Raises:
            InputError: the text is malformed.

        >>> Override.parse("train.rounds=5")
        Override(text='train.rounds=5', path=('train', 'rounds'), value=5)
        """
        key, equals, value = text.partition("=")
        path = tuple(key.strip().split("."))
        is_key = len(path) > 1 or path == ("name",)
        if not equals or not is_key:
            raise InputError(f"--set {text!r}: expected section.key=value, such as train.rounds=5")
        return cls(text, path, read_value(value))

    @property
    def key(self) -> str:
        """The whole key, such as "train.rounds"."""
        return ".".join(self.path)

    @property
    def section(self) -> str:
        """The section of the recipe, or the method whose parameter it is."""
        return self.path[0]


@dataclass(frozen=True)
class Entry:
    """A method in a recipe that is not validated yet, and where it stands."""

    methods: list[Any]  # of its variant
    index: int  # its place among them
    table: Options

    @property
    def name(self) -> str:
        """The method's own name, however the recipe names it."""
        return find_method_name(self.table["name"])


def apply(values: TomlTable, overrides: Sequence[str]) -> TomlTable:
    """Return a recipe's values with ``key=value`` overrides; nothing is validated.

    A key begins with a section of the recipe, or with a method: ``fedbr.lam=1`` changes that method
    in every variant that has it. Another ``model.name`` drops the options of the model before.

    Raises:
        InputError: a key has no place in a recipe.

    >>> apply({"train": {"rounds": 40}}, ["train.rounds=5", "data.alpha=0.5"])
    {'train': {'rounds': 5}, 'data': {'alpha': 0.5}}
    >>> apply({"compare": [{"label": "A", "methods": ["fedbr"]}]}, ["fedbr.lam=1"])
    {'compare': [{'label': 'A', 'methods': [{'name': 'fedbr', 'lam': 1}]}]}
    """
    changed = copy.deepcopy(values)
    parsed = [Override.parse(text) for text in overrides]
    _drop_model_options(changed, parsed)
    for override in parsed:
        if override.section in Recipe.model_fields:
            _set_key(changed, override)
        else:
            _set_parameter(changed, override)
    return changed


def read_variants(texts: Sequence[str]) -> list[TomlTable]:
    """Read the variants of ``--methods``.

    Two classes with the same name, such as one of fedbr and one of the user's, would have the same
    label; the user's is then labelled with the text itself.

    >>> [variant["label"] for variant in read_variants(["fedavg", "mixup+fedbr"])]
    ['FedAvg', 'Mixup + FedBR']
    """
    variants = [read_variant(text) for text in texts]
    labelled = []
    for text, variant in zip(texts, variants, strict=True):
        label = variant["label"]
        others = [other["methods"] for other in variants if other["label"] == label]
        is_ambiguous = any(methods != variant["methods"] for methods in others)
        if is_ambiguous and ":" in text:
            label = text
        labelled.append({**variant, "label": label})
    return labelled


def read_variant(text: str) -> TomlTable:
    """Read one variant: names of methods joined by "+", "fedavg" for none.

    The case of names does not matter, so that labels of printed tables can be used.

    Raises:
        InputError: a method is unknown.

    >>> read_variant("Mixup + FedBR")
    {'label': 'Mixup + FedBR', 'methods': ['mixup', 'fedbr']}
    >>> read_variant("fedavg")
    {'label': 'FedAvg', 'methods': []}
    """
    if "," in text:
        apart = " ".join(text.split(","))
        raise InputError(
            f"--methods {text!r}: variants are separated by spaces, as in --methods {apart}"
        )
    folded = {name.casefold(): name for name in (*method_table.METHODS, "fedavg")}
    names = []
    for part in text.split("+"):
        word = part.strip()
        name = folded.get(word.casefold(), word)
        if not name:
            raise InputError(
                f"--methods {text!r}: expected names of methods joined by '+', such as mixup+fedbr"
            )
        if name != "fedavg":
            names.append(name)
    classes = [method_table.find(name, f"--methods {text!r}: method") for name in names]
    label = " + ".join(cls.__name__ for cls in classes)
    return {"label": label or "FedAvg", "methods": names}


def find_dropped_options(
    values: TomlTable, overrides: Sequence[str], variants: Sequence[str]
) -> list[str]:
    """Return the parameters that ``--methods`` does not take from a recipe.

    A method of ``--methods`` has default parameters. Where all variants of the recipe that use it
    agree on others, ``--set`` with what is returned restores them.

    Args:
        values: the recipe as its file has it.
        overrides: those of ``--set``.
        variants: those of ``--methods``.

    >>> values = {"compare": [{"label": "A", "methods": [{"name": "fedbr", "lazy": 4}]}]}
    >>> find_dropped_options(values, [], ["fedavg", "fedbr"])
    ['fedbr.lazy=4']
    """
    used = set()
    for variant in read_variants(variants):
        used.update(variant["methods"])
    keys = {text.partition("=")[0].strip() for text in overrides}
    dropped = []
    for table in _list_agreed_tables(values):
        if table["name"] not in used:
            continue
        method = method_table.find(table["name"])
        for option, field in method.model_fields.items():
            key = f"{method.name}.{option}"
            value = table.get(option, field.default)
            if value != field.default and key not in keys:
                dropped.append(f"{key}={write_value(value)}")
    return dropped


def find_method_name(name: str) -> str:
    """Return a method's own name, however a recipe names it.

    >>> find_method_name("fedbr"), find_method_name("fedbr.methods:FedBR")
    ('fedbr', 'fedbr')
    """
    return method_table.find(name).name if ":" in name else name


def read_value(text: str) -> Any:
    """Read a value of TOML; anything else is a text, or a list if it has commas.

    >>> read_value("0.5"), read_value("cnn"), read_value("0,1,2")
    (0.5, 'cnn', [0, 1, 2])
    """
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        if "," in text:
            return [read_value(part.strip()) for part in text.split(",") if part.strip()]
        return text.strip()


def write_value(value: Any) -> str:
    """Write a value so that ``read_value`` reads it again.

    >>> write_value("cnn")
    '"cnn"'
    """
    return tomli_w.dumps({"value": value}).partition("=")[2].strip()


def _drop_model_options(values: TomlTable, overrides: Sequence[Override]) -> None:
    """Remove the section [model] where overrides name another model."""
    names = [override.value for override in overrides if override.path == ("model", "name")]
    model = values.get("model")
    if names and isinstance(model, dict) and names[-1] != model.get("name"):
        del values["model"]


def _set_key(values: TomlTable, override: Override) -> None:
    """Set a key of a section; a number in it is the place in a list (``compare.0.label``)."""
    where = f"--set {override.text!r}"
    *parents, last = override.path
    target: Any = values
    for depth, part in enumerate(parents):
        if isinstance(target, list):
            if not part.isdigit() or int(part) >= len(target):
                above = ".".join(parents[:depth])
                raise InputError(f"{where}: {above} has entries 0 to {len(target) - 1}, not {part}")
            target = target[int(part)]
        else:
            target = target.setdefault(part, {})
        if not isinstance(target, dict | list):
            raise InputError(f"{where}: {'.'.join(parents[: depth + 1])} is not a table")
    if isinstance(target, list):
        raise InputError(f"{where}: name a key inside {'.'.join(parents)}")
    target[last] = override.value


def _set_parameter(values: TomlTable, override: Override) -> None:
    """Set a parameter of a method in every variant that has it."""
    entries = list(_list_entries(values))
    matching = [entry for entry in entries if entry.name == override.section]
    if not matching:
        methods = [*method_table.METHODS, *(entry.name for entry in entries)]
        if override.section in methods:
            raise InputError(
                f"--set {override.key}: no variant of the recipe has {override.section!r}"
            )
        sections = {*Recipe.model_fields, *methods}
        raise unknown(f"--set {override.text!r}: section", override.section, sections)
    parameter = ".".join(override.path[1:])
    for entry in matching:
        entry.methods[entry.index] = entry.table | {parameter: override.value}


def _list_entries(values: TomlTable) -> Iterator[Entry]:
    """Yield the methods of all variants; malformed entries are left for the validation."""
    variants = values.get("compare", [])
    if not isinstance(variants, list):
        return
    for variant in variants:
        methods = variant.get("methods", []) if isinstance(variant, dict) else []
        if not isinstance(methods, list):
            continue
        for index, entry in enumerate(methods):
            table = {"name": entry} if isinstance(entry, str) else entry
            if isinstance(table, dict) and isinstance(table.get("name"), str):
                yield Entry(methods, index, table)


def _list_agreed_tables(values: TomlTable) -> list[Options]:
    """Return a method's table where all variants of the recipe that use it have the same."""
    tables_by_name: dict[str, list[Options]] = {}
    for entry in _list_entries(values):
        tables_by_name.setdefault(entry.table["name"], []).append(entry.table)
    agreed = []
    for first, *others in tables_by_name.values():
        if all(table == first for table in others):
            agreed.append(first)
    return agreed
