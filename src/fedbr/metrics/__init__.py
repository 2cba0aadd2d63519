"""Metrics: one file for each, and the table of all.

A metric says in words what its values mean, what is counted of the models' answers, and which
values it has per round and per run. It reads no files and knows no commands.

To add one, write a file beside these with a subclass of ``Metric``, and a line in METRICS. A recipe
then asks for it by ``metrics.extra = ["its-name"]``, or for one of your own by
``metrics.extra = ["package.module:Class"]``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..core.evaluation import Tally, TestPlan
from ..core.records import RoundRecord, Value
from ..util.errors import InputError, unknown
from ..util.imports import import_object
from ..util.tables import Json
from .accuracy import Accuracy
from .base import MeasuredRound, Metric, Tested, examine
from .seconds import Seconds
from .traffic import Traffic
from .worst_client import WorstClient

__all__ = [
    "METRICS",
    "MeasuredRound",
    "Metric",
    "Tested",
    "collect_tallies",
    "examine",
    "find",
    "select",
]

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

    Raises:
        InputError: there is no such metric, or the class is not one.

    >>> find("traffic").name
    'traffic'
    """
    if ":" not in name:
        if name not in METRICS:
            raise unknown("metrics.extra", name, METRICS)
        return METRICS[name]()
    cls = import_object(name, "metrics.extra")
    if not isinstance(cls, type) or not issubclass(cls, Metric):
        raise InputError(f"metrics.extra = {name!r}: not a class derived from fedbr.metrics.Metric")
    return cls()


def select(extra: Sequence[str] = ()) -> list[Metric]:
    """Return the metrics of a run: those of every run, then those that a recipe asks for.

    >>> [metric.name for metric in select(["traffic"])]
    ['accuracy', 'worst-client', 'traffic', 'seconds']
    """
    names = dict.fromkeys((*ALWAYS, *extra))
    return [find(name) for name in names]


def collect_tallies(metrics: Sequence[Metric], plan: TestPlan) -> list[Tally]:
    """Return the tallies of all metrics together, each of them once."""
    own_tests = plan.shares is not None
    by_name: dict[str, Tally] = {}
    for metric in metrics:
        for tally in metric.tallies(own_tests):
            by_name[tally.name] = tally
    return list(by_name.values())


def definitions(metrics: Sequence[Metric], own_tests: bool) -> dict[str, str]:
    """Say in words what each value of a result means, by its name.

    Args:
        own_tests: whether clients are tested on samples of their own, not on a common set.
    """
    meanings = dict(GENERAL)
    for metric in metrics:
        meanings |= metric.definitions(own_tests)
    return meanings


def per_round(metrics: Sequence[Metric], measured: MeasuredRound) -> Json:
    """Return the values of all metrics for a round.

    Raises:
        InputError: two metrics have a value of the same name.
    """
    values: Json = {}
    for metric in metrics:
        _merge(values, metric.per_round(measured), metric)
    return values


def per_run(
    metrics: Sequence[Metric], rounds: Sequence[RoundRecord], targets: Sequence[float]
) -> Json:
    """Return the values of all metrics for a run; tables of the same name become one.

    Raises:
        InputError: two metrics have a value of the same name.
    """
    values: Json = {}
    for metric in metrics:
        _merge(values, metric.per_run(rounds, targets), metric)
    return values


def _merge(values: Json, more: Mapping[str, Value], metric: Metric) -> None:
    for name, value in more.items():
        present = values.get(name)
        if isinstance(present, dict) and isinstance(value, Mapping):
            _merge(present, value, metric)
        elif name in values:
            raise InputError(f"metrics: {metric.name!r} gives {name!r}, as another metric does")
        else:
            values[name] = dict(value) if isinstance(value, Mapping) else value
