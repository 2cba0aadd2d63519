"""What Flower hands to its components, checked: the run's configuration and the node's."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..recipe.load import load, override
from ..recipe.schema import Recipe
from ..util.errors import InputError, unknown
from .messages import ranges
from .node import NodeSettings
from .roster import Settings

RUN: dict[str, Any] = {  # the keys of [tool.flwr.app.config] and their defaults
    "recipe": "digits",
    "set": "",
    "out": "",
    "fresh": False,
    "reply-timeout": 600.0,
    "wait": 300.0,
    "min-share": 0.5,
}
NODE = ("ids", "partition-id", "data-path", "state-dir", "workers", "start-anew")
MANY = 10**6  # clients of one node


@dataclass(frozen=True)
class RunSettings:
    """What the people of the server decide."""

    recipe: Recipe
    out: Path
    settings: Settings
    fresh: bool


def run_settings(given: Mapping[str, Any]) -> RunSettings:
    """Check a run's configuration.

    given: as Flower hands it over; its recipe is a name, a file of the server, or its whole text.
    """
    for key in given:
        if key not in RUN:
            raise unknown("run config", key, RUN)
    values = RUN | dict(given)
    overrides = str(values["set"]).split()
    text = str(values["recipe"])
    recipe = override(_read(text), overrides) if "\n" in text else load(text, overrides)
    numbers = {}
    for key, most in (("reply-timeout", 10**6), ("wait", 10**6), ("min-share", 1)):
        number = values[key]
        is_number = isinstance(number, int | float) and not isinstance(number, bool)
        if not is_number or not 0 < number <= most:
            raise InputError(f"{key} = {number!r}: expected a number above 0, at most {most}")
        numbers[key] = float(number)
    if not isinstance(values["fresh"], bool):
        raise InputError(f"fresh = {values['fresh']!r}: expected true or false")
    out = Path(values["out"] or Path("runs") / recipe.name).expanduser()
    settings = Settings(numbers["reply-timeout"], numbers["wait"], numbers["min-share"])
    return RunSettings(recipe, out, settings, values["fresh"])


def node_settings(given: Mapping[str, Any]) -> NodeSettings:
    """Check a node's configuration; Flower's own partition-id is one client."""
    for key in given:
        if key not in (*NODE, "num-partitions"):
            raise unknown("node config", key, NODE)
    ids = str(given.get("ids", given.get("partition-id", "")))
    clients, data = read_ids(ids), str(given.get("data-path", ""))
    if data and not Path(data).expanduser().exists():
        raise InputError(f"data-path = {data!r}: there is no such file or folder")
    workers = given.get("workers", 1)
    if not isinstance(workers, int) or workers < 1:
        raise InputError(f"workers = {workers!r}: expected a whole number of at least 1")
    folder = str(given.get("state-dir") or _default_folder(clients))
    return NodeSettings(
        clients, data, Path(folder).expanduser(), workers, bool(given.get("start-anew", False))
    )


def read_ids(text: str) -> tuple[int, ...]:
    """Read which clients a node holds.

    >>> read_ids("0-2, 7")
    (0, 1, 2, 7)
    """
    clients: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        numbers = first.isdecimal() and (not dash or last.isdecimal())
        if not numbers or int(last or first) < int(first):
            raise InputError(
                f"ids = {text!r}: expected numbers of clients, such as 3, 0-499 or 0-4,7"
            )
        if int(last or first) - int(first) >= MANY:
            raise InputError(f"ids = {text!r}: at most {MANY:,} clients")
        clients.extend(range(int(first), int(last or first) + 1))
    if len(set(clients)) < len(clients):
        raise InputError(f"ids = {text!r}: duplicate client")
    return tuple(sorted(clients))


def _default_folder(clients: Sequence[int]) -> Path:
    home = Path(os.environ.get("FLWR_HOME") or Path.home() / ".flwr")
    return home / "fedbr" / f"clients-{ranges(clients).replace(', ', '-')[:40]}"


def _read(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"recipe: not TOML ({error})") from error
