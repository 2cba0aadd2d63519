"""fedbr list: what there is, with parameters, defaults and the paper of each."""

from __future__ import annotations

from typing import Any, Literal, get_args, get_origin

import typer
from rich.text import Text

from ..util.errors import unknown
from .tables import plain_console

KINDS = ("methods", "data", "models", "partitions", "recipes")
KIND = typer.Argument(..., metavar="|".join(KINDS))


def list_(kind: str = KIND) -> int:
    """Show what there is: names, one line each, parameters with defaults, and papers."""
    if kind not in KINDS:
        raise unknown("list", kind, KINDS)
    console = plain_console()
    for name, summary, details in _entries(kind):
        console.print(Text(name, style="bold"), summary)
        for detail in details:
            console.print(f"    {detail}")
    if kind == "methods":
        console.print(
            "\nBytes are those of a client in a round, counted on the recipe digits, whose model has 95 kB; "
            "beside a larger model, a method's own module weighs less."
        )
    return 0


def _entries(kind: str) -> list[tuple[str, str, list[str]]]:
    from ..data import DATASETS, PARTITIONS
    from ..models import MODELS
    from ..recipe import load as config
    from ..recipe.schema import DataConfig

    if kind == "methods":
        return _methods()
    if kind == "models":
        return [(name, _first_line(cls), _fields(cls)) for name, cls in MODELS.items()] + [
            (
                "package.module:factory",
                "Yours: called with the shape of a sample and the number of classes",
                [
                    "looked for in the current folder too; all other keys of [model] are passed to it by name"
                ],
            )
        ]
    if kind == "data":
        return [(name, dataset.summary, _about(dataset)) for name, dataset in DATASETS.items()] + [
            ("options", "of every data set, in the recipe's [data]", _fields(DataConfig))
        ]
    if kind == "partitions":
        uses = {
            "lda": {"alpha"},
            "lda-prior": {"alpha"},
            "quantity": {"alpha"},
            "shards": {"shards_per_client"},
        }
        fields = {
            option: _fields(DataConfig, only={option}) for option in ("alpha", "shards_per_client")
        }
        return [
            (
                name,
                _first_line(function),
                [line for option in uses.get(name, ()) for line in fields[option]],
            )
            for name, function in PARTITIONS.items()
        ]
    return [(name, config.read_summary(name), []) for name in config.list_shipped()] + _sections()


def _sections() -> list[tuple[str, str, list[str]]]:
    """Return what a recipe may say, section by section."""
    from ..recipe.schema import DataConfig, MetricsConfig, ModelConfig, TrainConfig

    sections: list[tuple[str, Any, list[str]]] = [
        ("[data]", DataConfig, []),
        ("[model]", ModelConfig, ["and the parameters of that model: fedbr list models"]),
        ("[train]", TrainConfig, []),
        ("[metrics]", MetricsConfig, []),
    ]
    variant = [
        "label  its name in tables",
        "methods = []  in the order in which they act: names, or { name = ..., parameter = ... }: fedbr list methods",
        "train = { lr = ... }  its own lr, momentum or weight_decay instead of those of [train]",
        "tuned = unset  whether its parameters were searched for; beside such variants, reports mark those that were not",
    ]
    return [
        (name, "keys of this section of a recipe", _fields(cls) + more)
        for name, cls, more in sections
    ] + [("[[compare]]", "once for each side of the comparison", variant)]


def _about(dataset: Any) -> list[str]:
    lines = [f"partition, unless the recipe says another: {dataset.partition}"]
    if dataset.files:
        lines.append(f"needs files: fedbr data get {dataset.files}")
    return lines + ([f"paper: {dataset.paper}"] if dataset.paper else [])


def _methods() -> list[tuple[str, str, list[str]]]:
    from ..methods import METHODS, TRAFFIC

    paper = "paper: McMahan et al. Communication-Efficient Learning of Deep Networks, AISTATS 2017"
    fedavg = (
        "fedavg",
        "Average the clients' models: what the runtime does by itself, the empty list",
        [paper],
    )
    found = [fedavg]
    for name, cls in METHODS.items():
        *fields, source = _fields(cls)
        sent = [_sent(**TRAFFIC[name])] if name in TRAFFIC else []  # a method that is being written
        found.append((name, _first_line(cls), [*fields, *sent, source]))
    yours = "looked for in the current folder too; --set and --grid know it by its attribute `name`"
    return [*found, ("package.module:Class", "Yours: a subclass of fedbr.Method", [yours])]


def _sent(up: float, down: float, once_up: float, once_down: float) -> str:
    once = [
        f"once {amount / 1e3:.1f} kB {way}"
        for amount, way in ((once_up, "up"), (once_down, "down"))
        if amount
    ]
    return ", ".join([f"bytes: {up:.2f}x FedAvg up, {down:.2f}x down", *once])


def _first_line(thing: Any) -> str:
    return (thing.__doc__ or "").strip().splitlines()[0].rstrip(".")


def _fields(cls: Any, only: set[str] | None = None) -> list[str]:
    described = [
        f"{name} = {_default(f.get_default(call_default_factory=True))}  {f.description or ''}{_choices(f.annotation)}"
        for name, f in cls.model_fields.items()
        if only is None or name in only
    ]
    paper = getattr(cls, "paper", "")
    return described + ([f"paper: {paper}"] if paper else [])


def _choices(annotation: Any) -> str:
    values = get_args(annotation) if get_origin(annotation) is Literal else ()
    return f" ({', '.join(map(str, values))})" if values else ""


def _default(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "unset" if value is None else repr(list(value) if isinstance(value, tuple) else value)
