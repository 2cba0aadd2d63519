"""What Flower hands to its components, checked: the run's configuration and the node's."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..recipe import load as config
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
    recipe: Recipe
    out: Path
    settings: Settings
    fresh: bool


def run_settings(given: Mapping[str, Any]) -> RunSettings:
    """Check a run's configuration; the recipe is a name, a file of the server, or its whole text."""
    for key in given:
        if key not in RUN:
            raise unknown("run config", key, RUN)
    values = RUN | dict(given)
    overrides = str(values["set"]).split()
    text = str(values["recipe"])
    recipe = (
        config.override(_read(text), overrides) if "\n" in text else config.load(text, overrides)
    )
    for key, most in (("reply-timeout", 10**6), ("wait", 10**6), ("min-share", 1)):
        number = values[key]
        if (
            isinstance(number, bool)
            or not isinstance(number, int | float)
            or not 0 < number <= most
        ):
            raise InputError(f"{key} = {number!r}: a number above 0, at most {most}, is wanted")
    if not isinstance(values["fresh"], bool):
        raise InputError(f"fresh = {values['fresh']!r}: true or false is wanted")
    out = Path(values["out"] or Path("runs") / recipe.name).expanduser()
    settings = Settings(
        float(values["reply-timeout"]), float(values["wait"]), float(values["min-share"])
    )
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
        raise InputError(f"workers = {workers!r}: a whole number of at least 1 is wanted")
    home = Path(os.environ.get("FLWR_HOME") or Path.home() / ".flwr")
    folder = (
        given.get("state-dir")
        or home / "fedbr" / f"clients-{ranges(clients).replace(', ', '-')[:40]}"
    )
    return NodeSettings(
        clients, data, Path(str(folder)).expanduser(), workers, bool(given.get("start-anew", False))
    )


def read_ids(text: str) -> tuple[int, ...]:
    """Read which clients a node holds: 3, or 0-499, or 0-4,7."""
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if (
            not first.isdigit()
            or (dash and not last.isdigit())
            or (dash and int(last) < int(first))
        ):
            raise InputError(
                f"ids = {text!r}: numbers of clients are wanted, such as 3, 0-499 or 0-4,7"
            )
        if int(last or first) - int(first) >= MANY:
            raise InputError(f"ids = {text!r}: at most {MANY:,} clients")
        found.extend(range(int(first), int(last or first) + 1))
    if len(set(found)) < len(found):
        raise InputError(f"ids = {text!r}: a client is there twice")
    return tuple(sorted(found))


def _read(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"recipe: not TOML ({error})") from error
