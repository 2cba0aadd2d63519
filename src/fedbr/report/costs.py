"""What a variant costs: bytes and seconds, per round and up to the target, beside FedAvg's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .comparison import Comparison
from .curves import spent
from .tables import Figure, Row, base_of, rows

Run = dict[str, Any]


def cost_table(comparison: Comparison) -> tuple[list[str], list[list[str]]]:
    """Return the costs as header and cells; × is relative to FedAvg (or the first variant)."""
    found = rows(comparison.results)
    target = f"{comparison.recipe.metrics.target * 100:g} %"
    header = ["", "MB/round", "×", "s/round", "×", f"MB to {target}", f"s to {target}"]
    return header, [_cells(comparison, row, base_of(found)) for row in found]


def _cells(comparison: Comparison, row: Row, base: Row) -> list[str]:
    cells = [row.title]
    for get in (_megabytes, _seconds):
        mine, theirs = (side.figure(_per_round(get)) for side in (row, base))
        cells += [f"{mine.mean:.2f}" if mine else "-"]
        cells += [f"{mine.mean / theirs.mean:.1f}" if mine and theirs and theirs.mean else "-"]
    return cells + [_to_target(comparison, row, unit) for unit in ("megabytes", "seconds")]


def _megabytes(run: Run) -> float:
    return float(run["bytes"]["up"] + run["bytes"]["down"]) / 1e6


def _seconds(run: Run) -> float:
    return float(run["seconds"]["train"])


def _per_round(get: Callable[[Run], float]) -> Callable[[Run], float | None]:
    return lambda run: get(run) / run["rounds"] if run["rounds"] else None


def _to_target(comparison: Comparison, row: Row, unit: str) -> str:
    """Add up what was spent until the target was reached, over the seeds that reached it."""
    reached = [(run["seed"], at) for run in row.counted if (at := row.round_of(run)) is not None]
    figure = Figure.of(spent(comparison.lines[row.label, seed])[unit][at] for seed, at in reached)
    if figure is None:
        return "-"
    some = "" if figure.count == len(row.counted) else f" ({figure.count} of {len(row.counted)})"
    return figure.show(0 if figure.mean >= 100 else 1) + some
