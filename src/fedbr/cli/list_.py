"""fedbr list: what there is, with parameters, defaults and the paper of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args, get_origin

import typer
from rich.text import Text

from ..util.errors import unknown
from .tables import plain_console

if TYPE_CHECKING:  # torch takes its time, and other commands do without
    from pydantic import BaseModel

    from ..core.records import Value

KINDS = ("methods", "data", "models", "partitions", "metrics", "recipes")
KIND = typer.Argument(..., metavar="|".join(KINDS))


class Entry(NamedTuple):
    """A name, what it is in one line, and what else there is to say of it."""

    name: str
    summary: str
    details: list[str]


def list_(kind: str = KIND) -> int:
    """Show what there is: names, one line each, parameters with defaults, and papers."""
    if kind not in KINDS:
        raise unknown("list", kind, KINDS)
    entries = {
        "methods": _methods,
        "data": _data,
        "models": _models,
        "partitions": _partitions,
        "metrics": _metrics,
        "recipes": _recipes,
    }
    console = plain_console()
    for entry in entries[kind]():
        console.print(Text(entry.name, style="bold"), entry.summary)
        for detail in entry.details:
            console.print(f"    {detail}")
    if kind == "methods":
        console.print(
            "\nBytes are those of a client in a round, counted on the recipe digits, whose model "
            "has 95 kB; beside a larger model, a method's own module weighs less."
        )
    return 0


def _models() -> list[Entry]:
    from ..models import MODELS

    entries = [Entry(name, _summary(cls), _fields(cls)) for name, cls in MODELS.items()]
    yours = Entry(
        "package.module:factory",
        "Yours: called with the shape of a sample and the number of classes",
        [
            "looked for in the current folder too; all other keys of [model] are passed to it by "
            "name"
        ],
    )
    return [*entries, yours]


def _data() -> list[Entry]:
    from ..data import DATASETS
    from ..recipe.schema import DataConfig

    entries = []
    for name, dataset in DATASETS.items():
        details = [f"partition, unless the recipe says another: {dataset.partition}"]
        if dataset.files:
            details.append(f"needs files: fedbr data get {dataset.files}")
        if dataset.paper:
            details.append(f"paper: {dataset.paper}")
        entries.append(Entry(name, dataset.summary, details))
    options = "of every data set, in the recipe's [data]"
    return [*entries, Entry("options", options, _fields(DataConfig))]


def _partitions() -> list[Entry]:
    from ..data import PARTITIONS
    from ..recipe.schema import DataConfig

    uses = {
        "lda": "alpha",
        "lda-prior": "alpha",
        "quantity": "alpha",
        "shards": "shards_per_client",
    }
    entries = []
    for name, function in PARTITIONS.items():
        details = _fields(DataConfig, only=uses[name]) if name in uses else []
        entries.append(Entry(name, _summary(function), details))
    return entries


def _metrics() -> list[Entry]:
    """Say of every metric what it gives, what that means, and how it adds up."""
    from ..metrics import METRICS

    entries = []
    for name, cls in METRICS.items():
        metric = cls()
        common, own = (metric.definitions(own_tests) for own_tests in (False, True))
        of_runs = _names(metric.per_run([], []))
        details = []
        for figure, meaning in common.items():
            when = "run" if figure in of_runs else "round"
            details.append(f"per {when}: {figure}  {meaning}")
            if own[figure] != meaning:
                details.append(f"  with clients' own tests: {own[figure]}")
        plain = [figure for figure in of_runs if figure not in common]
        details += [f"per run: {', '.join(plain)}"] if plain else []
        entries.append(Entry(name, _summary(cls), [*details, f"adds up: {metric.adds_up}"]))
    yours = Entry(
        "package.module:Class",
        "Yours: a subclass of fedbr.Metric",
        ["looked for in the current folder too; metrics.extra = ['package.module:Class'] measures"],
    )
    return [*entries, yours]


def _names(figures: Mapping[str, Value]) -> list[str]:
    """Return the names of figures; those of a table are named after it."""
    names = []
    for name, value in figures.items():
        inner = list(value) if isinstance(value, Mapping) else []
        names += [f"{name}.{key}" for key in inner] or [name]
    return names


def _recipes() -> list[Entry]:
    from ..recipe import load as config

    shipped = [Entry(name, config.read_summary(name), []) for name in config.list_shipped()]
    return shipped + _sections()


def _sections() -> list[Entry]:
    """Return what a recipe may say, section by section."""
    from ..recipe.schema import DataConfig, MetricsConfig, ModelConfig, TrainConfig

    of_model = [*_fields(ModelConfig), "and the parameters of that model: fedbr list models"]
    sections = {
        "[data]": _fields(DataConfig),
        "[model]": of_model,
        "[train]": _fields(TrainConfig),
        "[metrics]": _fields(MetricsConfig),
    }
    keys = "keys of this section of a recipe"
    variant = [
        "label  its name in tables",
        "methods = []  in the order in which they act: names, or { name = ..., parameter = ... }: "
        "fedbr list methods",
        "train = { lr = ... }  its own lr, momentum or weight_decay instead of those of [train]",
        "tuned = unset  whether its parameters were searched for; beside such variants, reports "
        "mark those that were not",
    ]
    entries = [Entry(name, keys, fields) for name, fields in sections.items()]
    return [*entries, Entry("[[compare]]", "once for each side of the comparison", variant)]


def _methods() -> list[Entry]:
    from ..methods import METHODS, TRAFFIC

    fedavg = Entry(
        "fedavg",
        "Average the clients' models: what the runtime does by itself, the empty list",
        [
            "paper: McMahan et al. Communication-Efficient Learning of Deep Networks, AISTATS 2017",
        ],
    )
    entries = [fedavg]
    for name, cls in METHODS.items():
        *fields, source = _fields(cls)
        sent = [_sent(**TRAFFIC[name])] if name in TRAFFIC else []  # a method that is being written
        entries.append(Entry(name, _summary(cls), [*fields, *sent, source]))
    yours = Entry(
        "package.module:Class",
        "Yours: a subclass of fedbr.Method",
        ["looked for in the current folder too; --set and --grid know it by its attribute `name`"],
    )
    return [*entries, yours]


def _sent(up: float, down: float, once_up: float, once_down: float) -> str:
    parts = [f"bytes: {up:.2f}x FedAvg up, {down:.2f}x down"]
    for amount, way in ((once_up, "up"), (once_down, "down")):
        if amount:
            parts.append(f"once {amount / 1e3:.1f} kB {way}")
    return ", ".join(parts)


def _summary(thing: object) -> str:
    """Return the first sentence of a docstring, without its full stop."""
    paragraph = (thing.__doc__ or "").strip().split("\n\n")[0]
    return " ".join(paragraph.split()).rstrip(".")


def _fields(cls: type[BaseModel], only: str = "") -> list[str]:
    """Describe the fields of a section or a method: name, default, meaning, choices, paper."""
    details = []
    for name, field in cls.model_fields.items():
        if only in ("", name):
            default = _default(field.get_default(call_default_factory=True))
            choices = _choices(field.annotation)
            details.append(f"{name} = {default}  {field.description or ''}{choices}")
    paper = getattr(cls, "paper", "")
    return details + ([f"paper: {paper}"] if paper else [])


def _choices(annotation: Any) -> str:
    values = get_args(annotation) if get_origin(annotation) is Literal else ()
    return f" ({', '.join(map(str, values))})" if values else ""


def _default(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "unset" if value is None else repr(list(value) if isinstance(value, tuple) else value)
