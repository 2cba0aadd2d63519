"""fedbr list: what there is, with parameters, defaults and the paper of each."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import typer
from rich.console import Console
from rich.padding import Padding
from rich.text import Text


class Kind(StrEnum):
    methods = "methods"
    data = "data"
    models = "models"
    partitions = "partitions"
    recipes = "recipes"


KIND = typer.Argument(..., help="What to list.")


def list_(kind: Kind = KIND) -> int:
    """Show what there is: names, one line each, parameters with defaults, and papers."""
    console = Console(highlight=False)
    for name, summary, details in _entries(kind):
        console.print(Text(name, style="bold"), Text(summary))
        for detail in details:
            console.print(Padding(Text(detail), (0, 0, 0, 4)))
    return 0


def _entries(kind: Kind) -> list[tuple[str, str, list[str]]]:
    from .. import config
    from ..data import DATASETS, PARTITIONS
    from ..methods import METHODS
    from ..models import MODELS

    if kind is Kind.methods:
        paper = "paper: McMahan et al. Communication-Efficient Learning of Deep Networks, AISTATS 2017"
        fedavg = ("fedavg", "Average the clients' models: what the runtime does by itself, the empty list", [paper])
        return [fedavg, *((name, _first_line(cls), _fields(cls)) for name, cls in METHODS.items())]
    if kind is Kind.models:
        return [(name, _first_line(cls), _fields(cls)) for name, cls in MODELS.items()] + [
            (
                "package.module:factory",
                "Yours: called with the shape of a sample and the number of classes",
                [],
            )
        ]
    if kind is Kind.data:
        return [(name, dataset.summary, []) for name, dataset in DATASETS.items()]
    if kind is Kind.partitions:
        return [(name, _first_line(function), []) for name, function in PARTITIONS.items()]
    return [(name, config.headline(name), []) for name in config.shipped()]


def _first_line(thing: Any) -> str:
    return (thing.__doc__ or "").strip().splitlines()[0].rstrip(".")


def _fields(cls: Any) -> list[str]:
    described = [
        f"{name} = {_default(f.default)}  {f.description or ''}".rstrip() for name, f in cls.model_fields.items()
    ]
    return described + ([f"paper: {cls.paper}"] if cls.paper else [])


def _default(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "unset" if value is None else repr(list(value) if isinstance(value, tuple) else value)
