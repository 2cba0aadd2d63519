"""Whether a folder may go on with a recipe: the same one, or one that only adds to it."""

from __future__ import annotations

import reprlib
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from ..recipe.load import parse_stored
from ..recipe.schema import Recipe
from ..util.errors import InputError
from ..util.tables import TomlTable


def find_changes(stored: TomlTable, recipe: Recipe, same_names: bool) -> list[str]:
    """Say in words what keeps a folder from going on with a recipe.

    Args:
        stored: the folder's own recipe.
        recipe: the one to go on with.
        same_names: whether the runs of the folder keep their names.

    Returns:
        A text for every difference; nothing if the recipes are the same, or if the new one only
        adds seeds, variants or rounds.
    """
    with suppress(InputError):  # an older version's recipe: what it did not know has its default
        stored = tomllib.loads(parse_stored(stored).to_toml())
    new = tomllib.loads(recipe.to_toml())
    for variant in (*stored.get("compare", []), *new["compare"]):
        variant.pop("tuned", None)  # a remark that changes no run
    for section in ("train", "metrics"):
        stored.setdefault(section, {})
    if {*stored["train"].get("seeds", [])} <= {*new["train"]["seeds"]}:
        stored["train"]["seeds"] = new["train"]["seeds"]
    variants = stored.get("compare", [])
    if same_names and variants == new["compare"][: len(variants)]:
        stored["compare"] = new["compare"]
    if _only_adds_rounds(stored, new):
        stored["train"]["rounds"] = new["train"]["rounds"]
    return [_describe(*difference) for difference in find_differences(stored, new)]


def _only_adds_rounds(stored: TomlTable, new: TomlTable) -> bool:
    """Say whether rounds are added after a last one that was trained and tested as any other."""
    train, last = new["train"], stored["train"].get("rounds", 0)
    if not 0 < last < train["rounds"]:
        return False
    if "evaluate_samples" in train:  # the last round is tested on all samples
        return False
    for every in (train["evaluate_every"], new["metrics"]["bias_every"] or 1):
        if not every or last % every:  # it was tested only because it was the last
            return False
    return True


def find_differences(a: Any, b: Any, key: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield every key that differs in two recipes, with both values.

    >>> list(find_differences({"train": {"lr": 0.1}}, {"train": {"lr": 0.2}}))
    [('train.lr', 0.1, 0.2)]
    """
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        for name in sorted({*a, *b}):
            yield from find_differences(a.get(name), b.get(name), f"{key}.{name}" if key else name)
    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        for i, (left, right) in enumerate(zip(a, b, strict=True)):
            yield from find_differences(left, right, f"{key}.{i}")
    elif a != b:
        yield key, a, b


def _describe(key: str, stored: Any, new: Any) -> str:
    """Say in words how one key differs."""
    if key == "compare":
        stored, new = _join_labels(stored), _join_labels(new)
    return f"{key} is {reprlib.repr(stored)} there, {reprlib.repr(new)} here"


def _join_labels(variants: Sequence[TomlTable]) -> str:
    return ", ".join(str(variant.get("label")) for variant in variants)
