"""Curves over seeds: the mean, the lowest and the highest, by round, by seconds and by megabytes."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

UNITS = {
    "round": "round",
    "seconds": "seconds of training",
    "megabytes": "megabytes sent and received",
}
MEASURES = {
    "accuracy": "accuracy of the global model, %",
    "accuracy_worst": "accuracy of the worst client, %",
}
MOST = 400  # points of a curve: more than a screen can show

Seed = Mapping[int, float]  # round -> value
Lines = Sequence[Mapping[str, Any]]  # the rounds of a run, as in metrics.jsonl


@dataclass(frozen=True)
class Band:
    """A value over seeds, at the rounds in which it was measured."""

    rounds: list[int]
    mean: list[float]
    low: list[float]
    high: list[float]
    whole: int  # the first so many points rest on all seeds, those behind them on fewer


def band(seeds: Sequence[Seed]) -> Band:
    """Put seeds together; rounds that some seed has not reached, as it is unfinished or diverged,
    come last.
    """
    common = sorted(set.intersection(*(set(s) for s in seeds))) if seeds else []
    last = common[-1] if common else 0
    later = sorted({r for s in seeds for r in s if r > last})
    rounds = common + later
    columns = [[s[r] for s in seeds if r in s] for r in rounds]
    return Band(
        rounds,
        [statistics.fmean(c) for c in columns],
        [min(c) for c in columns],
        [max(c) for c in columns],
        len(common),
    )


def measured(lines: Lines, measure: str = "accuracy") -> Seed:
    """Return a measure in percent by round, where there is one."""
    values = {line["round"]: line[measure] for line in lines}
    return {r: 100 * v for r, v in values.items() if v is not None and math.isfinite(v)}


def spent(lines: Lines) -> dict[str, Seed]:
    """Return what was spent up to each round, in every unit."""
    rounds = [line["round"] for line in lines]
    seconds = accumulate(line["seconds_train"] for line in lines)
    megabytes = accumulate((line["bytes_up"] + line["bytes_down"]) / 1e6 for line in lines)
    columns: dict[str, Iterable[float]] = {
        "round": rounds,
        "seconds": seconds,
        "megabytes": megabytes,
    }
    return {unit: dict(zip(rounds, values, strict=True)) for unit, values in columns.items()}


@dataclass(frozen=True)
class Curve:
    """A variant's curve: a band and, in every unit, where its points lie (mean over seeds)."""

    band: Band
    places: Mapping[str, list[float]]


def curve(runs: Sequence[Lines], measure: str = "accuracy") -> Curve:
    """Make a curve of the runs of all seeds; of a long one, as many points as can be seen."""
    tested = [(found, spent(lines)) for lines in runs if (found := measured(lines, measure))]
    whole = band([found for found, _ in tested])
    kept = _some(len(whole.rounds))
    places = {
        unit: [
            statistics.fmean(by[unit][r] for found, by in tested if r in found)
            for r in whole.rounds
        ]
        for unit in UNITS
    }
    mean, low, high = ([column[i] for i in kept] for column in (whole.mean, whole.low, whole.high))
    thin = Band(
        [whole.rounds[i] for i in kept], mean, low, high, sum(i < whole.whole for i in kept)
    )
    return Curve(thin, {unit: [values[i] for i in kept] for unit, values in places.items()})


def _some(count: int) -> list[int]:
    """Choose positions that are spread evenly, the first and the last among them."""
    if count <= MOST:
        return list(range(count))
    return [round(i * (count - 1) / (MOST - 1)) for i in range(MOST)]
