"""Whether a folder may go on with a recipe: the same one, or one that only adds to it."""

from __future__ import annotations

import reprlib
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from ..recipe.load import parse_stored
from ..recipe.schema import Recipe
from ..util.errors import InputError

Table = dict[str, Any]  # a recipe as TOML has it


def changes(there: Table, recipe: Recipe, same_names: bool) -> list[str]:
    """Say in words what keeps a folder from going on with a recipe.

    there: the folder's own recipe. same_names: whether runs that are there keep their names.
    Returns nothing if the recipes are the same, or if seeds, variants or rounds come behind.
    """
    with suppress(InputError):  # an older version's recipe: what it did not know has its default
        there = tomllib.loads(parse_stored(there).to_toml())
    here = tomllib.loads(recipe.to_toml())
    for variant in (*there.get("compare", []), *here["compare"]):
        variant.pop("tuned", None)  # a remark that changes no run
    for section in ("train", "metrics"):
        there.setdefault(section, {})
    if {*there["train"].get("seeds", [])} <= {*here["train"]["seeds"]}:
        there["train"]["seeds"] = here["train"]["seeds"]
    known = there.get("compare", [])
    if same_names and known == here["compare"][: len(known)]:
        there["compare"] = here["compare"]
    if _only_goes_on(there, here):
        there["train"]["rounds"] = here["train"]["rounds"]
    return [_in_words(*difference) for difference in differences(there, here)]


def _only_goes_on(there: Table, here: Table) -> bool:
    """Say whether rounds come behind a last one that was no other than it would be among them."""
    train, last = here["train"], there["train"].get("rounds", 0)
    every = (train["evaluate_every"], here["metrics"]["bias_every"] or 1)
    usual = "evaluate_samples" not in train and all(k and last % k == 0 for k in every)
    return usual and 0 < last < train["rounds"]


def differences(a: Any, b: Any, key: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Compare two recipes: every key that differs, with both values.

    >>> list(differences({"train": {"lr": 0.1}}, {"train": {"lr": 0.2}}))
    [('train.lr', 0.1, 0.2)]
    """
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        for name in sorted({*a, *b}):
            yield from differences(a.get(name), b.get(name), f"{key}.{name}" if key else name)
    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        for i, (left, right) in enumerate(zip(a, b, strict=True)):
            yield from differences(left, right, f"{key}.{i}")
    elif a != b:
        yield key, a, b


def _in_words(key: str, there: Any, here: Any) -> str:
    if key == "compare":
        there, here = (
            ", ".join(str(variant.get("label")) for variant in side) for side in (there, here)
        )
    return f"{key} is {reprlib.repr(there)} there, {reprlib.repr(here)} here"
