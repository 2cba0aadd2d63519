"""Ours beside the paper's, and whether they show the same order."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..config import Recipe, Stack
from ..results.store import ResultFolder
from ..results.tables import Figure
from .scale import Scaled
from .table import Cell, PaperTable

TITLES = {
    "top5": "5 best rounds %",
    "rounds_to": "rounds to {0:g} %",
    "rounds_to_second": "rounds to {1:g} %",
    "worst_top5": "worst client %",
    "rounds_to_fedavg": "rounds to FedAvg's last",
    "worst_rounds_to_fedavg": "rounds to FedAvg's last worst",
    "local_top5": "local models %",
    "parameters": "million sent",
    "step_seconds": "s/step",
}


@dataclass(frozen=True)
class Entry:
    """One row of one part: ours and the paper's in every column, and how the row stands to the base row."""

    label: str
    ours: Sequence[str]
    paper: Sequence[str]
    verdict: str


@dataclass(frozen=True)
class Outcome:
    """A part of a table with our figures in it."""

    scaled: Scaled
    titles: Sequence[tuple[str, str]]  # of every column, the paper's and ours
    entries: Sequence[Entry]
    orders: Sequence[str]  # what the paper's text says of the order, and what ours says


def outcome(table: PaperTable, index: int, scaled: Scaled, folder: Path) -> Outcome:
    """Put our figures beside the paper's."""
    results = ResultFolder(folder, scaled.recipe)
    part, recipe = scaled.part, scaled.recipe
    runs = {stack.label: _runs(results, stack) for stack in recipe.compare}
    base = runs.get(table.base, {})
    values = {
        label: [{seed: COLUMNS[c](run, base.get(seed), recipe) for seed, run in own.items()} for c in part.columns]
        for label, own in runs.items()
    }
    entries = []
    for row in table.rows:
        if row.label not in values:
            continue
        own = values[row.label]
        paper = [_show(cell) for cell in row.paper[index]] if row.paper else [""] * len(part.columns)
        shown = [_figure(c, column) for c, column in zip(part.columns, own, strict=True)]
        theirs = next((r.paper[index] for r in table.rows if r.label == table.base and r.paper), [])
        verdict = ""
        if row.paper and theirs and row.label != table.base and table.base in values:
            difference = (_number(row.paper[index][0]), _number(theirs[0]))
            verdict = _verdict(difference, own[0], values[table.base][0])
        entries.append(Entry(row.label, shown, paper, verdict))
    orders = [
        f"{left} {sign} {right}: {_order(sign, values[left][0], values[right][0])}"
        for left, sign, right in table.expect
        if left in values and right in values
    ]
    titles = [(_title(c, part.targets), _title(c, recipe.metrics.targets)) for c in part.columns]
    return Outcome(scaled, titles, entries, orders)


def _title(column: str, targets: Sequence[float]) -> str:
    return TITLES[column].format(*(100 * t for t in (*targets, 0, 0)))


Rounds = list[dict[str, Any]]


def _runs(results: ResultFolder, stack: Stack) -> dict[int, Rounds]:
    """Read the rounds of every seed; one that diverged has none."""
    found = {}
    for seed in results.recipe.train.seeds:
        folder = results.run(stack, seed)
        found[seed] = [] if "diverged_at" in folder.info else folder.lines()
    return found


Column = Callable[[Rounds, Rounds | None, Recipe], float | None]  # of a run, the base row's run, and their recipe


def _tops(key: str) -> Column:
    def top5(run: Rounds, base: Rounds | None, recipe: Recipe) -> float | None:
        best = sorted((100 * line[key] for line in run if line.get(key) is not None), reverse=True)[:5]
        return statistics.fmean(best) if best else None

    return top5


def _first(key: str, target: Callable[[Rounds | None, Recipe], float | None]) -> Column:
    def first(run: Rounds, base: Rounds | None, recipe: Recipe) -> float | None:
        goal = target(base, recipe)
        lines = [line for line in run if line[key] is not None and goal is not None and line[key] >= goal]
        return lines[0]["round"] if lines else None

    return first


def _last(key: str) -> Callable[[Rounds | None, Recipe], float | None]:
    return lambda base, recipe: base[-1][key] if base else None


def _sent(run: Rounds, base: Rounds | None, recipe: Recipe) -> float | None:
    """Return the million numbers that a client sends in a round, once what is sent only once is sent."""
    return run[-1]["bytes_up"] / 4e6 / len(run[-1]["clients"]) if run else None


def _step(run: Rounds, base: Rounds | None, recipe: Recipe) -> float | None:
    """Return the seconds of a local step of all clients."""
    return statistics.median(line["seconds_train"] for line in run) / recipe.train.local_steps if run else None


COLUMNS: dict[str, Column] = {
    "top5": _tops("accuracy"),
    "worst_top5": _tops("accuracy_worst"),
    "local_top5": _tops("accuracy_local"),
    "rounds_to": _first("accuracy", lambda base, recipe: recipe.metrics.targets[0]),
    "rounds_to_second": _first("accuracy", lambda base, recipe: recipe.metrics.targets[-1]),
    "rounds_to_fedavg": _first("accuracy", _last("accuracy")),
    "worst_rounds_to_fedavg": _first("accuracy_worst", _last("accuracy_worst")),
    "parameters": _sent,
    "step_seconds": _step,
}
BySeed = Mapping[int, float | None]


def _figure(column: str, values: BySeed) -> str:
    figure = Figure.of(values.values())
    if figure is None:
        return "-"
    missed = "" if figure.count == len(values) else f" ({figure.count} of {len(values)})"
    return figure.show(0 if "rounds" in column else 3 if column in ("parameters", "step_seconds") else 1) + missed


def _show(cell: Cell) -> str:
    return cell if isinstance(cell, str) else f"{cell:g}" if cell >= 100 else f"{cell:.2f}"


def _number(cell: Cell) -> float | None:
    if isinstance(cell, float | int):
        return float(cell)
    found = re.match(r"[\d.]+", cell)
    return float(found[0]) if found else None


def _pairs(left: BySeed, right: BySeed) -> list[float]:
    """Return the differences over the seeds that both have."""
    return [a - b for s, a in left.items() if a is not None and (b := right.get(s)) is not None]


def _verdict(paper: tuple[float | None, float | None], own: BySeed, base: BySeed) -> str:
    """Say whether we see the paper's order of a row and the base row."""
    figure = Figure.of(_pairs(own, base))
    if figure is None or None in paper:
        return "-"
    theirs = paper[0] - paper[1]  # type: ignore[operator]
    size = f"{figure.mean:+.1f}" + (f" ± {figure.spread:.1f}" if figure.spread is not None else "")
    return f"{_same(theirs, figure)} (paper {theirs:+.2f}, ours {size})"


def _same(theirs: float, ours: Figure) -> str:
    if ours.spread is not None and abs(ours.mean) <= ours.spread:
        return "undecided"
    return "agrees" if (theirs > 0) == (ours.mean > 0) else "differs"


def _order(sign: str, left: BySeed, right: BySeed) -> str:
    """Say whether we see an order that the paper's text claims."""
    figure = Figure.of(_pairs(left, right))
    if figure is None:
        return "-"
    size = f"{figure.mean:+.1f}" + (f" ± {figure.spread:.1f}" if figure.spread is not None else "")
    if sign == "=":
        close = figure.spread is None or abs(figure.mean) <= figure.spread
        return f"{'agrees' if close and figure.spread is not None else 'undecided' if close else 'differs'} ({size})"
    return f"{_same(1.0 if sign == '>' else -1.0, figure)} ({size})"
