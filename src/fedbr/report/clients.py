"""What clients have and get: each one's accuracy with every variant, and who holds what."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..core.records import ClassCounts
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
    # All variants of a seed have the same split.
    first_runs: dict[int, RunResult] = {}
    for run in results.runs:
        first_runs.setdefault(run.seed, run)
    seeds = [seed for seed in results.seeds if seed in first_runs]
    if not seeds:
        return None
    split = first_runs[seeds[0]].record.split
    assert split is not None
    many = len(split.sizes) > MANY
    counts = _class_counts(results, seeds[0])
    return Clients(
        labels=results.labels,
        sorted=many,
        names=counts.clients if counts else None,
        classes=counts.names if counts else None,
        seeds=[_seed(results, first_runs[seed], many) for seed in seeds],
    )


def _seed(results: Results, run: RunResult, many: bool) -> SeedClients:
    """Gather what is known of the clients of a seed.

    run: the first of that seed.
    """
    split = run.record.split
    assert split is not None
    rows = []
    for label in results.labels:
        row = _accuracy(results.run(label, run.seed))
        rows.append(_thinned(row) if many else row)
    counts = _class_counts(results, run.seed)
    return SeedClients(
        seed=run.seed,
        accuracy=rows,
        counts=None if counts is None else _by_class(counts),
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
    return None if value is None or not math.isfinite(value) else round(100 * value, 1)


def _thinned(row: Row) -> Row:
    """Sort clients from the worst to the best and keep some."""
    known = sorted(value for value in row if value is not None)
    if not known:
        return []
    return [known[round(i * (len(known) - 1) / (COLUMNS - 1))] for i in range(COLUMNS)]


def _by_class(counts: ClassCounts) -> list[list[int]]:
    """Read counts such as "3:130 7:14", a text for each client.

    >>> _by_class(ClassCounts(2, None, None, ("1:30", "0:5 1:2")))
    [[0, 5], [30, 2]]
    """
    by_class = [[0] * len(counts.counts) for _ in range(counts.number)]
    for client, text in enumerate(counts.counts):
        for pair in text.split():
            label, count = pair.split(":")
            by_class[int(label)][client] = int(count)
    return by_class
