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
    from ..metrics.base import Metric

KINDS = ("methods", "data", "models", "partitions", "metrics", "recipes")
KIND = typer.Argument(..., metavar="|".join(KINDS))


class Entry(NamedTuple):
    """What is printed of one name: a line of its own, and details below it."""

    name: str
    summary: str
    details: list[str]


def list_(kind: str = KIND) -> int:
    """Show what there is: names, one line each, parameters with defaults, and papers."""
    if kind not in KINDS:
        raise unknown("list", kind, KINDS)
    functions = {
        "methods": _list_methods,
        "data": _list_data,
        "models": _list_models,
        "partitions": _list_partitions,
        "metrics": _list_metrics,
        "recipes": _list_recipes,
    }
    console = plain_console()
    for entry in functions[kind]():
        console.print(Text(entry.name, style="bold"), entry.summary)
        for detail in entry.details:
            console.print(f"    {detail}")
    if kind == "methods":
        console.print(
            "\nBytes are those of a client in a round, counted on the recipe digits, whose model "
            "has 95 kB; beside a larger model, a method's own module weighs less."
        )
    return 0


def _list_models() -> list[Entry]:
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


def _list_data() -> list[Entry]:
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


def _list_partitions() -> list[Entry]:
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


def _list_metrics() -> list[Entry]:
    """Say of every metric what it gives, what that means, and how it adds up."""
    from ..metrics import METRICS

    entries = [Entry(name, _summary(cls), _metric_details(cls())) for name, cls in METRICS.items()]
    yours = Entry(
        "package.module:Class",
        "Yours: a subclass of fedbr.Metric",
        ["looked for in the current folder too; metrics.extra = ['package.module:Class'] measures"],
    )
    return [*entries, yours]


def _metric_details(metric: Metric) -> list[str]:
    """Describe the values of a metric, those of rounds and of runs."""
    definitions = metric.definitions(own_tests=False)
    with_own_tests = metric.definitions(own_tests=True)
    of_runs = _value_names(metric.per_run([], []))
    details = []
    for name, meaning in definitions.items():
        when = "run" if name in of_runs else "round"
        details.append(f"per {when}: {name}  {meaning}")
        if with_own_tests[name] != meaning:
            details.append(f"  with clients' own tests: {with_own_tests[name]}")
    undefined = [name for name in of_runs if name not in definitions]
    if undefined:
        details.append(f"per run: {', '.join(undefined)}")
    details.append(f"adds up: {metric.adds_up}")
    return details


def _value_names(values: Mapping[str, Value]) -> list[str]:
    """Return the names of values; those of a table are named after it."""
    names = []
    for name, value in values.items():
        inner = list(value) if isinstance(value, Mapping) else []
        names += [f"{name}.{key}" for key in inner] or [name]
    return names


def _list_recipes() -> list[Entry]:
    from ..recipe import load as config

    shipped = [Entry(name, config.read_summary(name), []) for name in config.list_shipped()]
    return shipped + _list_sections()


def _list_sections() -> list[Entry]:
    """Describe what a recipe may say, section by section."""
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
    return [*entries, Entry("[[compare]]", "once for each variant of the comparison", variant)]


def _list_methods() -> list[Entry]:
    from ..methods import METHODS, TRAFFIC

    fedavg = Entry(
        "fedavg",
        "Average the clients' models: what the runtime does by itself, the empty list",
        ["paper: McMahan et al. Communication-Efficient Learning of Deep Networks, AISTATS 2017"],
    )
    entries = [fedavg]
    for name, cls in METHODS.items():
        *fields, paper = _fields(cls)
        if name in TRAFFIC:  # a method that is being written has no entry yet
            fields.append(_describe_traffic(**TRAFFIC[name]))
        entries.append(Entry(name, _summary(cls), [*fields, paper]))
    yours = Entry(
        "package.module:Class",
        "Yours: a subclass of fedbr.Method",
        ["looked for in the current folder too; --set and --grid know it by its attribute `name`"],
    )
    return [*entries, yours]


def _describe_traffic(up: float, down: float, once_up: float, once_down: float) -> str:
    """Say how much a method sends, beside FedAvg, and what it sends once."""
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
    if paper := getattr(cls, "paper", ""):
        details.append(f"paper: {paper}")
    return details


def _choices(annotation: Any) -> str:
    if get_origin(annotation) is not Literal:
        return ""
    return f" ({', '.join(map(str, get_args(annotation)))})"


def _default(value: object) -> str:
    """Write a default as TOML does."""
    if value is None:
        return "unset"
    if isinstance(value, bool):
        return str(value).lower()
    return repr(list(value) if isinstance(value, tuple) else value)
