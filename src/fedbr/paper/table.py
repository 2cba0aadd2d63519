"""A table or a figure of the paper, as its file in recipes/paper has it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from .. import data
from ..util.errors import unknown

Cell = str | float  # of the paper's table; "-" and "" are its own
SETTINGS = "settings"  # the file that all tables share
TomlTable = dict[str, Any]  # such as a method with its parameters


@dataclass(frozen=True)
class Part:
    """One data set of a table."""

    name: str
    setting: str  # of settings.toml
    columns: Sequence[str]  # of columns.COLUMNS
    targets: Sequence[float] = ()
    set: Sequence[str] = ()  # what its recipe changes in the setting
    cpu: Sequence[str] = ()  # the same at the size for two cores only
    first: Sequence[str] = ()  # methods that act before those of every row

    @property
    def slug(self) -> str:
        """The name for files and folders."""
        return re.sub(r"\W+", "-", self.name.casefold()).strip("-")


@dataclass(frozen=True)
class Row:
    """One row of a table: a variant, and what the paper has for it in every part."""

    label: str
    methods: Sequence[str | TomlTable]
    paper: Sequence[Sequence[Cell]] = ()


@dataclass(frozen=True)
class Claim:
    """An order that the paper's text claims."""

    left: str
    sign: str  # >, < or =
    right: str
    column: str = ""  # the first one, unless it says

    def __str__(self) -> str:
        return f"{self.left} {self.sign} {self.right}"


@dataclass(frozen=True)
class PaperTable:
    """A table or a figure of the paper."""

    name: str
    title: str
    place: str
    about: str
    parts: Sequence[Part]
    rows: Sequence[Row]
    figure: str = ""  # "round" or "seconds": what its curves are over
    claim: str = ""
    expect: Sequence[Sequence[str]] = ()

    @property
    def claims(self) -> list[Claim]:
        """The orders that the paper's text claims, as ``expect`` lists them."""
        return [Claim(*entry) for entry in self.expect]

    @property
    def base(self) -> str:
        """The row that the others are compared with."""
        for row in self.rows:
            if not row.methods:
                return row.label
        return self.rows[0].label


def names() -> list[str]:
    """Name all tables and figures.

    >>> names()[:3]
    ['ablation', 'clients-100', 'combine']
    """
    folder = resources.files("fedbr") / "paper" / "tables"
    files = [file.name.removesuffix(".toml") for file in folder.iterdir()]
    return sorted(name for name in files if name != SETTINGS)


def load(name: str) -> PaperTable:
    """Read a table or a figure.

    Raises:
        InputError: there is none of that name.

    >>> load("lambda").place
    'Table 12'
    """
    if name not in names():
        raise unknown("TABLE", name, names())
    values = read(name)
    parts = [Part(**part) for part in values.pop("part")]
    rows = [Row(**row) for row in values.pop("row")]
    return PaperTable(name=name, parts=parts, rows=rows, **values)


def read(name: str) -> TomlTable:
    """Read one of the files: a table, or what they share (SETTINGS)."""
    file = resources.files("fedbr") / "paper" / "tables" / f"{name}.toml"
    return tomllib.loads(file.read_text("utf-8"))


def list_files(table: PaperTable) -> list[str]:
    """Name the files that a table needs, as ``fedbr data get`` does."""
    settings = read(SETTINGS)
    names = []
    for part in table.parts:
        dataset = settings[part.setting]["paper"]["data"]["name"]
        names.append(data.DATASETS[dataset].files)
    return list(dict.fromkeys(names))
