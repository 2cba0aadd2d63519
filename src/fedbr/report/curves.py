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
    measured_rounds = [set(seed) for seed in seeds]
    common = sorted(set.intersection(*measured_rounds)) if seeds else []
    last = common[-1] if common else 0
    later = sorted(round for round in set().union(*measured_rounds) if round > last)
    mean, low, high = [], [], []
    for round in [*common, *later]:
        values = [seed[round] for seed in seeds if round in seed]
        mean.append(statistics.fmean(values))
        low.append(min(values))
        high.append(max(values))
    return Band(rounds=common + later, mean=mean, low=low, high=high, whole=len(common))


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
    """Make a curve of the runs of all seeds; of a long one, as many points as can be seen.

    Args:
        runs: of one variant; those that were never tested are left out.
        measure: what the curve is of, one of MEASURES.
    """
    seeds, spending = [], []
    for run in runs:
        if values := measured(run, measure):
            seeds.append(values)
            spending.append(spent(run))
    thinned = _thin(band(seeds))
    places: dict[str, list[float]] = {unit: [] for unit in UNITS}
    for round in thinned.rounds:
        tested = [by_unit for seed, by_unit in zip(seeds, spending, strict=True) if round in seed]
        for unit in UNITS:
            places[unit].append(statistics.fmean(by_unit[unit][round] for by_unit in tested))
    return Curve(thinned, places)


def accuracies(results: Results) -> dict[str, list[dict[int, float]]]:
    """Return, for every label, the accuracy by round of every seed that has begun."""
    by_label: dict[str, list[dict[int, float]]] = {label: [] for label in results.labels}
    for run in results.runs:
        if not run.rounds:
            continue
        tested = {}
        for record in run.rounds:
            if record.accuracy is not None:
                tested[record.round] = record.accuracy
        by_label[run.label].append(tested)
    return by_label


def _thin(band: Band) -> Band:
    """Keep points that are spread evenly, the first and the last among them."""
    count = len(band.rounds)
    if count <= MOST:
        return band
    kept = [round(i * (count - 1) / (MOST - 1)) for i in range(MOST)]
    return Band(
        rounds=[band.rounds[i] for i in kept],
        mean=[band.mean[i] for i in kept],
        low=[band.low[i] for i in kept],
        high=[band.high[i] for i in kept],
        whole=sum(i < band.whole for i in kept),
    )
