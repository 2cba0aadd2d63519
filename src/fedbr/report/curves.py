"""Curves over seeds: the mean, the lowest and the highest, by round, seconds and megabytes."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..run.results import Results, RunResult
from .tables import spent_megabytes, spent_seconds

Seed = Mapping[int, float]  # round -> value

UNITS: dict[str, str] = {
    "round": "round",
    "seconds": "seconds of training",
    "megabytes": "megabytes sent and received",
}
MEASURES: dict[str, str] = {
    "accuracy": "accuracy of the global model, %",
    "accuracy_worst": "accuracy of the worst client, %",
}
MOST = 400  # points of a curve: more than a screen can show


@dataclass(frozen=True)
class Band:
    """A value over seeds, at the rounds in which it was measured."""

    rounds: Sequence[int]
    mean: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]
    whole: int  # the first so many points rest on all seeds, those behind them on fewer


@dataclass(frozen=True)
class Curve:
    """A variant's curve: a band and, in every unit, where its points lie (mean over seeds)."""

    band: Band
    places: Mapping[str, Sequence[float]]


def band(seeds: Sequence[Seed]) -> Band:
    """Put seeds together.

    Rounds that some seed has not reached, as it is unfinished or diverged, come last.

    >>> band([{1: 10.0, 2: 30.0}, {1: 20.0}]).mean
    [15.0, 30.0]
    """
    common = sorted(set.intersection(*(set(seed) for seed in seeds))) if seeds else []
    last = common[-1] if common else 0
    later = sorted({round for seed in seeds for round in seed if round > last})
    rounds = common + later
    values = [[seed[round] for seed in seeds if round in seed] for round in rounds]
    return Band(
        rounds=rounds,
        mean=[statistics.fmean(column) for column in values],
        low=[min(column) for column in values],
        high=[max(column) for column in values],
        whole=len(common),
    )


def measured(run: RunResult, measure: str = "accuracy") -> Seed:
    """Return a measure in percent by round, where there is one."""
    values = {}
    for record in run.rounds:
        value: float | None = getattr(record, measure)
        if value is not None and math.isfinite(value):
            values[record.round] = 100 * value
    return values


def spent(run: RunResult) -> dict[str, Seed]:
    """Return what was spent up to each round, in every unit."""
    return {
        "round": {record.round: record.round for record in run.rounds},
        "seconds": spent_seconds(run),
        "megabytes": spent_megabytes(run),
    }


def curve(runs: Sequence[RunResult], measure: str = "accuracy") -> Curve:
    """Make a curve of the runs of all seeds; of a long one, as many points as can be seen."""
    tested = []
    for run in runs:
        if seed := measured(run, measure):
            tested.append((seed, spent(run)))
    whole = band([seed for seed, _ in tested])
    kept = _spread(len(whole.rounds))
    rounds = [whole.rounds[i] for i in kept]
    places: dict[str, Sequence[float]] = {}
    for unit in UNITS:
        places[unit] = [
            statistics.fmean(by_unit[unit][round] for seed, by_unit in tested if round in seed)
            for round in rounds
        ]
    thinned = Band(
        rounds=rounds,
        mean=[whole.mean[i] for i in kept],
        low=[whole.low[i] for i in kept],
        high=[whole.high[i] for i in kept],
        whole=sum(i < whole.whole for i in kept),
    )
    return Curve(thinned, places)


def accuracies(results: Results) -> dict[str, list[dict[int, float]]]:
    """Return, for every label, the accuracy by round of every seed that has begun."""
    by_label = {}
    for label in results.labels:
        seeds = []
        for run in results.of(label):
            tested = {}
            for record in run.rounds:
                if record.accuracy is not None:
                    tested[record.round] = record.accuracy
            if run.rounds:
                seeds.append(tested)
        by_label[label] = seeds
    return by_label


def _spread(count: int) -> list[int]:
    """Choose positions that are spread evenly, the first and the last among them."""
    if count <= MOST:
        return list(range(count))
    return [round(i * (count - 1) / (MOST - 1)) for i in range(MOST)]
