"""What is measured: one file a metric, and the table of all.

A metric says in words what it means, what it wants counted of the models' answers, and what it
gives per round and per run. It reads no files and knows no commands. To add one: a file beside
these with a subclass of ``Metric``, and a line in METRICS; a recipe asks for it by
``metrics.extra = ["its-name"]``, or for one of your own by "package.module:Class".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..core.records import RoundRecord
from ..util.errors import InputError, unknown
from ..util.imports import import_object
from .accuracy import Accuracy
from .base import MeasuredRound, Metric, Tested, examine
from .seconds import Seconds
from .traffic import Traffic
from .worst_client import WorstClient

__all__ = ["METRICS", "MeasuredRound", "Metric", "Tested", "examine", "find", "used"]

METRICS: dict[str, type[Metric]] = {
    metric.name: metric for metric in (Accuracy, WorstClient, Traffic, Seconds)
}
ALWAYS = ("accuracy", "worst-client", "traffic", "seconds")  # what every run measures

GENERAL = {
    "model": "the global model; for a variant that keeps each client's own (local), that one in "
    "its place, and then accuracy is the mean over clients",
    "test_samples": "how many samples the rounds are tested on, the same ones every time and the "
    "same share of each class; the last round is always tested on all",
    "loss": "cross-entropy of the batches that clients trained on, without the methods' own terms; "
    "mean over clients and local steps",
    "speed-up": "mean rounds to the target of FedAvg (or of the first variant) divided by the "
    "variant's own, over the same seeds; a run that never reaches it counts with all its rounds, "
    "which makes the ratio a bound: > if only FedAvg has such runs, < if only the variant has, "
    "~ if both have",
}


def find(name: str) -> Metric:
    """Return a metric by its name in METRICS, or your own by "package.module:Class".

    >>> find("traffic").name
    'traffic'
    """
    kind = import_object(name, "metrics.extra") if ":" in name else METRICS.get(name)
    if kind is None:
        raise unknown("metrics.extra", name, METRICS)
    if not isinstance(kind, type) or not issubclass(kind, Metric):
        raise InputError(f"metrics.extra = {name!r}: not a class derived from fedbr.metrics.Metric")
    return kind()


def used(extra: Sequence[str] = ()) -> list[Metric]:
    """Return what a run measures: always the same few, then what a recipe asks for."""
    return [find(name) for name in dict.fromkeys((*ALWAYS, *extra))]


def definitions(metrics: Sequence[Metric], own_tests: bool) -> dict[str, str]:
    """Say in words what each figure of a result means."""
    said = dict(GENERAL)
    for metric in metrics:
        said |= metric.definitions(own_tests)
    return said


def per_round(metrics: Sequence[Metric], measured: MeasuredRound) -> dict[str, Any]:
    """Return what all metrics say of a round."""
    figures: dict[str, Any] = {}
    for metric in metrics:
        _merge(figures, metric.per_round(measured), metric)
    return figures


def per_run(
    metrics: Sequence[Metric], rounds: Sequence[RoundRecord], targets: Sequence[float]
) -> dict[str, Any]:
    """Return what all metrics say of a run; tables of the same name become one."""
    figures: dict[str, Any] = {}
    for metric in metrics:
        _merge(figures, metric.per_run(rounds, targets), metric)
    return figures


def _merge(figures: dict[str, Any], more: Mapping[str, Any], metric: Metric) -> None:
    for name, value in more.items():
        known = figures.get(name)
        if isinstance(known, dict) and isinstance(value, Mapping):
            _merge(known, value, metric)
        elif name in figures:
            raise InputError(f"metrics: {metric.name!r} gives {name!r}, as another metric does")
        else:
            figures[name] = dict(value) if isinstance(value, Mapping) else value
