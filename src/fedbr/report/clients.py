"""What clients have and get: each one's accuracy with every variant, and who holds what."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..core.records import ClassCounts, Split
from ..run.results import Results, RunResult

MANY = 200  # clients that have a column each; of more, the accuracies are sorted and thinned
COLUMNS = 100  # that are left then

Row = Sequence[float | None]  # accuracies in percent; None: not tested


@dataclass(frozen=True)
class SeedClients:
    """The clients of one seed. Splits differ, so that a mean over seeds would say nothing."""

    seed: int
    accuracy: Sequence[Row]  # a row for each variant; an empty one was never tested
    counts: Sequence[Sequence[int]] | None  # samples of each class, by client; None: not known
    effective: Sequence[float]  # classes that a client has in effect
    sizes: Sequence[int]  # samples of a client


@dataclass(frozen=True)
class Clients:
    """What the picture of the clients shows."""

    labels: Sequence[str]
    sorted: bool  # whether there are so many that accuracies go from the worst to the best
    names: Sequence[str] | None
    classes: Sequence[str] | None
    seeds: Sequence[SeedClients]


def describe_clients(results: Results) -> Clients | None:
    """Gather what is known of the clients, seed by seed; None if no run has begun."""
    splits: dict[int, Split] = {}  # all variants of a seed have the same
    for run in results.runs:
        if run.seed not in splits:
            assert run.record.split is not None
            splits[run.seed] = run.record.split
    seeds = [seed for seed in results.seeds if seed in splits]
    if not seeds:
        return None
    counts = _class_counts(results, seeds[0])
    return Clients(
        labels=results.labels,
        sorted=len(splits[seeds[0]].sizes) > MANY,
        names=counts.clients if counts else None,
        classes=counts.names if counts else None,
        seeds=[_describe_seed(results, seed, splits[seed]) for seed in seeds],
    )


def _describe_seed(results: Results, seed: int, split: Split) -> SeedClients:
    """Gather what is known of the clients of a seed."""
    rows = []
    for label in results.labels:
        row = _accuracy(results.run(label, seed))
        rows.append(_thin(row) if len(split.sizes) > MANY else row)
    counts = _class_counts(results, seed)
    return SeedClients(
        seed=seed,
        accuracy=rows,
        counts=None if counts is None else _count_by_class(counts),
        effective=split.effective_classes[:MANY],
        sizes=split.sizes[:MANY],
    )


def _class_counts(results: Results, seed: int) -> ClassCounts | None:
    """Return who holds which classes; None: older runs do not say."""
    for run in results.runs:
        if run.seed == seed and run.record.classes is not None:
            return run.record.classes
    return None


def _accuracy(run: RunResult | None) -> Row:
    """Return every client's accuracy in the last round that was tested."""
    for record in reversed(run.rounds if run else []):
        if record.accuracy_clients:
            return [_percent(value) for value in record.accuracy_clients]
    return []


def _percent(value: float | None) -> float | None:
    if value is None or not math.isfinite(value):
        return None
    return round(100 * value, 1)


def _thin(row: Row) -> Row:
    """Sort clients from the worst to the best and keep some, spread evenly."""
    tested = sorted(value for value in row if value is not None)
    if not tested:
        return []
    last = len(tested) - 1
    return [tested[round(i * last / (COLUMNS - 1))] for i in range(COLUMNS)]


def _count_by_class(counts: ClassCounts) -> list[list[int]]:
    """Read counts such as "3:130 7:14", a text for each client.

    >>> _count_by_class(ClassCounts(2, None, None, ("1:30", "0:5 1:2")))
    [[0, 5], [30, 2]]
    """
    by_class = [[0] * len(counts.counts) for _ in range(counts.number)]
    for client, text in enumerate(counts.counts):
        for pair in text.split():
            label, count = pair.split(":")
            by_class[int(label)][client] = int(count)
    return by_class
