"""Ours beside the paper's, and whether they show the same order."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..recipe.schema import Recipe, Variant
from ..report.statistics import Paired, paired
from ..report.tables import Figure
from ..run.folder import ResultFolder
from .scale import Scaled
from .table import Cell, Claim, PaperTable

DAGGER = " †"  # not tuned


@dataclass(frozen=True)
class Entry:
    """One row of one part: ours and the paper's in every column, and how the row stands to the base
    row.
    """

    label: str
    ours: Sequence[str]
    paper: Sequence[str]
    verdict: str  # of the first column


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
    runs = {variant.label: _runs(results, variant) for variant in recipe.compare}
    base = runs.get(table.base, {})
    values = {
        label: [
            {seed: COLUMNS[c].value(run, base.get(seed), recipe) for seed, run in own.items()}
            for c in part.columns
        ]
        for label, own in runs.items()
    }
    entries = []
    for row in table.rows:
        if row.label not in values:
            continue
        own = values[row.label]
        paper = (
            [_show(cell) for cell in row.paper[index]] if row.paper else [""] * len(part.columns)
        )
        shown = [_figure(COLUMNS[c], column) for c, column in zip(part.columns, own, strict=True)]
        theirs = next((r.paper[index] for r in table.rows if r.label == table.base and r.paper), [])
        verdict = ""
        if row.paper and theirs and row.label != table.base and table.base in values:
            difference = (_number(row.paper[index][0]), _number(theirs[0]))
            verdict = _verdict(COLUMNS[part.columns[0]], difference, own[0], values[table.base][0])
        entries.append(
            Entry(row.label + DAGGER * (row.label in scaled.untuned), shown, paper, verdict)
        )
    several = any(claim.column for claim in table.claims)  # then each says what it is about
    orders = [
        _order(
            claim, values[claim.left][i], values[claim.right][i], COLUMNS[part.columns[i]], several
        )
        for claim in table.claims
        if {claim.left, claim.right} <= {*values}
        and (i := _place(part.columns, claim.column)) is not None
    ]
    titles = [(_title(c, part.targets), _title(c, recipe.metrics.targets)) for c in part.columns]
    return Outcome(scaled, titles, entries, orders)


def _place(columns: Sequence[str], wanted: str) -> int | None:
    """Find the column that a claim is about; those that name none are about the first."""
    return (columns.index(wanted) if wanted in columns else None) if wanted else 0


def _title(column: str, targets: Sequence[float]) -> str:
    return COLUMNS[column].title.format(*(100 * t for t in (*targets, 0, 0)))


Rounds = list[dict[str, Any]]


def _runs(results: ResultFolder, variant: Variant) -> dict[int, Rounds]:
    """Read the rounds of every seed; one that diverged has none."""
    found = {}
    for seed in results.recipe.train.seeds:
        folder = results.run(variant, seed)
        found[seed] = [] if "diverged_at" in folder.info else folder.lines()
    return found


Value = Callable[
    [Rounds, Rounds | None, Recipe], float | None
]  # of a run, the base row's run, and their recipe


def _tops(key: str) -> Value:
    def top5(run: Rounds, base: Rounds | None, recipe: Recipe) -> float | None:
        best = sorted((100 * line[key] for line in run if line.get(key) is not None), reverse=True)[
            :5
        ]
        return statistics.fmean(best) if best else None

    return top5


def _first(key: str, target: Callable[[Rounds | None, Recipe], float | None]) -> Value:
    def first(run: Rounds, base: Rounds | None, recipe: Recipe) -> float | None:
        goal = target(base, recipe)
        lines = [
            line for line in run if line[key] is not None and goal is not None and line[key] >= goal
        ]
        return lines[0]["round"] if lines else None

    return first


def _last(key: str) -> Callable[[Rounds | None, Recipe], float | None]:
    return lambda base, recipe: base[-1][key] if base else None


def _sent(run: Rounds, base: Rounds | None, recipe: Recipe) -> float | None:
    """Return the million numbers that a client sends in a round, once what is sent only once is
    sent.
    """
    return run[-1]["bytes_up"] / 4e6 / len(run[-1]["clients"]) if run else None


def _step(run: Rounds, base: Rounds | None, recipe: Recipe) -> float | None:
    """Return the seconds of a local step of all clients."""
    return (
        statistics.median(line["seconds_train"] for line in run) / recipe.train.local_steps
        if run
        else None
    )


@dataclass(frozen=True)
class Column:
    """A figure of a run: its title with the targets in it, how it is found, and how it is shown."""

    title: str
    value: Value
    digits: int = 1
    room: float | None = 1.0  # within which two are level, in points; None: a fifth of the other


COLUMNS = {
    "top5": Column("5 best rounds %", _tops("accuracy")),
    "worst_top5": Column("worst client %", _tops("accuracy_worst")),
    "local_top5": Column("local models %", _tops("accuracy_local")),
    "rounds_to": Column(
        "rounds to {0:g} %", _first("accuracy", lambda base, recipe: recipe.metrics.targets[0]), 0
    ),
    "rounds_to_second": Column(
        "rounds to {1:g} %", _first("accuracy", lambda base, recipe: recipe.metrics.targets[-1]), 0
    ),
    "rounds_to_fedavg": Column("rounds to FedAvg's last", _first("accuracy", _last("accuracy")), 0),
    "worst_rounds_to_fedavg": Column(
        "rounds to FedAvg's last worst", _first("accuracy_worst", _last("accuracy_worst")), 0
    ),
    "parameters": Column("million sent", _sent, 3, None),
    "step_seconds": Column("s/step", _step, 4, None),
}
BySeed = Mapping[int, float | None]


def _figure(column: Column, values: BySeed) -> str:
    figure = Figure.of(values.values())
    if figure is None:
        return "-"
    missed = "" if figure.count == len(values) else f" ({figure.count} of {len(values)})"
    return figure.show(column.digits) + missed


def _show(cell: Cell) -> str:
    return (
        cell if isinstance(cell, str) else f"{cell:.2f}" if isinstance(cell, float) else str(cell)
    )


def _number(cell: Cell) -> float | None:
    if isinstance(cell, float | int):
        return float(cell)
    found = re.match(r"[\d.]+", cell)
    return float(found[0]) if found else None


def _verdict(
    column: Column, paper: tuple[float | None, float | None], own: BySeed, base: BySeed
) -> str:
    """Say whether we see the paper's order of a row and the base row."""
    pair = paired(own, base)
    if pair is None or None in paper:
        return "-"
    theirs = paper[0] - paper[1]  # type: ignore[operator]
    sign = ">" if theirs > 0 else "<" if theirs < 0 else "="
    return f"{_judged(sign, pair, column, base)} ({_size(pair, column, sign)})"


def _order(claim: Claim, left: BySeed, right: BySeed, column: Column, named: bool) -> str:
    """Say whether we see an order that the paper's text claims."""
    pair = paired(left, right)
    judged = (
        f"{_judged(claim.sign, pair, column, right)} ({_size(pair, column, claim.sign)})"
        if pair
        else "-"
    )
    return f"{claim} in {column.title}: {judged}" if named else f"{claim}: {judged}"


def _size(pair: Paired, column: Column, sign: str) -> str:
    """Say the mean difference, its spread, and on how many of the seeds it goes the paper's way."""
    text = f"{round(pair.mean, column.digits) + 0.0:+.{column.digits}f}"  # a zero is not below zero
    if pair.spread is not None:
        text += f" ± {pair.spread:.{column.digits}f}"
    if sign == "=":
        return text
    ahead = pair.wins if sign == ">" else len(pair.seeds) - pair.wins - pair.ties
    return f"{text}, {ahead}/{len(pair.seeds)}"


def _judged(sign: str, pair: Paired, column: Column, base: BySeed) -> str:
    """Decide by the spread of the difference; a star says that its 95 % interval, wide with few
    seeds, does so too.
    """
    if pair.interval is None or pair.spread is None:
        return "one seed"
    low, high = pair.interval
    if sign == "=":
        mean = statistics.fmean(v for v in base.values() if v is not None)
        room = mean / 5 if column.room is None else column.room
        inside = -room <= low and high <= room
        return "agrees" if inside else "differs" if low > room or high < -room else "undecided"
    if abs(pair.mean) <= pair.spread:
        return "undecided"
    sure = "" if low <= 0 <= high else "*"
    return ("agrees" if (pair.mean > 0) == (sign == ">") else "differs") + sure
