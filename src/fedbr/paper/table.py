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


@dataclass(frozen=True)
class Part:
    """One data set of a table."""

    name: str
    setting: str
    columns: Sequence[str]
    targets: Sequence[float] = ()
    set: Sequence[str] = ()
    cpu: Sequence[str] = ()  # the same at the size for two cores only
    first: Sequence[str] = ()

    @property
    def slug(self) -> str:
        return re.sub(r"\W+", "-", self.name.casefold()).strip("-")


@dataclass(frozen=True)
class Line:
    """One row of a table: a variant, and what the paper has for it in every part."""

    label: str
    methods: Sequence[Any]
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
    rows: Sequence[Line]
    figure: str = ""  # "round" or "seconds": what its curves are over
    claim: str = ""
    expect: Sequence[Sequence[str]] = ()

    @property
    def claims(self) -> list[Claim]:
        return [Claim(*entry) for entry in self.expect]

    @property
    def base(self) -> str:
        """The row that the others are compared with."""
        return next((row.label for row in self.rows if not row.methods), self.rows[0].label)


def names() -> list[str]:
    """Name all tables and figures."""
    folder = resources.files("fedbr") / "paper" / "tables"
    return sorted(
        p.name.removesuffix(".toml") for p in folder.iterdir() if p.name not in ("settings.toml",)
    )


def load(name: str) -> PaperTable:
    """Read a table or a figure."""
    if name not in names():
        raise unknown("TABLE", name, names())
    values = read(name)
    parts = [Part(**part) for part in values.pop("part")]
    rows = [Line(**row) for row in values.pop("row")]
    return PaperTable(name=name, parts=parts, rows=rows, **values)


def read(name: str) -> dict[str, Any]:
    """Read one of the files."""
    file = resources.files("fedbr") / "paper" / "tables" / f"{name}.toml"
    return tomllib.loads(file.read_text("utf-8"))


def needs(table: PaperTable) -> list[str]:
    """Name the files that a table wants, as ``fedbr data get`` does."""
    settings = read("settings")
    return list(
        dict.fromkeys(
            data.DATASETS[settings[p.setting]["paper"]["data"]["name"]].files for p in table.parts
        )
    )
