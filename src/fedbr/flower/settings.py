"""Read and check what Flower hands to its components: the configuration of a run, or a node."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..recipe.load import load, override
from ..recipe.schema import Recipe
from ..util.errors import InputError, unknown
from ..util.tables import TomlTable
from .messages import ranges
from .node import NodeSettings
from .roster import Settings
from .types import Config, ConfigValue

# The keys of [tool.flwr.app.config] and their defaults.
RUN: dict[str, ConfigValue] = {
    "recipe": "digits",
    "set": "",
    "out": "",
    "fresh": False,
    "reply-timeout": 600.0,
    "wait": 300.0,
    "min-share": 0.5,
}
# The keys of a node's configuration.
NODE = ("ids", "partition-id", "data-path", "state-dir", "workers", "start-anew")
MAX_CLIENTS = 10**6  # of one node


@dataclass(frozen=True)
class RunSettings:
    """What the people of the server decide: the configuration of a run."""

    recipe: Recipe
    out: Path
    settings: Settings
    fresh: bool


def read_run_settings(config: Config) -> RunSettings:
    """Check a run's configuration.

    Args:
        config: as Flower hands it over; its recipe is a name, a file of the server, or its whole
            text.

    Raises:
        InputError: a key is unknown, or a value is not allowed.
    """
    for key in config:
        if key not in RUN:
            raise unknown("run config", key, RUN)
    values = RUN | dict(config)
    overrides = str(values["set"]).split()
    text = str(values["recipe"])
    is_whole = "\n" in text
    recipe = override(_parse_recipe(text), overrides) if is_whole else load(text, overrides)
    settings = Settings(
        reply_timeout=_read_number(values, "reply-timeout", 10**6),
        wait=_read_number(values, "wait", 10**6),
        min_share=_read_number(values, "min-share", 1),
    )
    fresh = values["fresh"]
    if not isinstance(fresh, bool):
        raise InputError(f"fresh = {fresh!r}: expected true or false")
    out = Path(str(values["out"] or Path("runs") / recipe.name)).expanduser()
    return RunSettings(recipe, out, settings, fresh)


def _read_number(config: Config, key: str, most: int) -> float:
    """Return a number above 0; InputError for anything else."""
    number = config[key]
    is_number = isinstance(number, int | float) and not isinstance(number, bool)
    if not is_number or not 0 < float(number) <= most:
        raise InputError(f"{key} = {number!r}: expected a number above 0, at most {most}")
    return float(number)


def read_node_settings(config: Config) -> NodeSettings:
    """Check a node's configuration; Flower's own partition-id is one client.

    Raises:
        InputError: a key is unknown, or a value is not allowed.
    """
    for key in config:
        if key not in (*NODE, "num-partitions"):
            raise unknown("node config", key, NODE)
    clients = read_ids(str(config.get("ids", config.get("partition-id", ""))))
    data = str(config.get("data-path", ""))
    if data and not Path(data).expanduser().exists():
        raise InputError(f"data-path = {data!r}: there is no such file or folder")
    workers = config.get("workers", 1)
    if not isinstance(workers, int) or workers < 1:
        raise InputError(f"workers = {workers!r}: expected a whole number of at least 1")
    folder = str(config.get("state-dir") or _default_folder(clients))
    return NodeSettings(
        clients,
        data=data,
        state_dir=Path(folder).expanduser(),
        workers=workers,
        start_anew=bool(config.get("start-anew", False)),
    )


def read_ids(text: str) -> tuple[int, ...]:
    """Parse which clients a node holds.

    Raises:
        InputError: the text is something else, names a client twice, or too many of them.

    >>> read_ids("0-2, 7")
    (0, 1, 2, 7)
    """
    clients: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not dash:
            last = first
        are_numbers = first.isdecimal() and last.isdecimal()
        if not are_numbers or int(last) < int(first):
            raise InputError(
                f"ids = {text!r}: expected numbers of clients, such as 3, 0-499 or 0-4,7"
            )
        if int(last) - int(first) >= MAX_CLIENTS:
            raise InputError(f"ids = {text!r}: at most {MAX_CLIENTS:,} clients")
        clients.extend(range(int(first), int(last) + 1))
    if len(set(clients)) < len(clients):
        raise InputError(f"ids = {text!r}: duplicate client")
    return tuple(sorted(clients))


def _default_folder(clients: Sequence[int]) -> Path:
    home = Path(os.environ.get("FLWR_HOME") or Path.home() / ".flwr")
    return home / "fedbr" / f"clients-{ranges(clients).replace(', ', '-')[:40]}"


def _parse_recipe(text: str) -> TomlTable:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"recipe: not TOML ({error})") from error
