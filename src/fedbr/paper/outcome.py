"""Our figures beside the paper's: who is ahead here, and on which side of 0 the paper has it."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ..metrics.base import best
from ..recipe.schema import Recipe
from ..report.words import evidence
from ..run.results import Results, RunResult
from ..util.estimate import Difference, Estimate
from .scale import Scaled
from .table import Cell, Claim, PaperTable

DAGGER = " †"  # not tuned
LEVEL = 1.0  # points within which a variant is as good as another
LEVEL_OF_COSTS = 0.2  # the same of time and size, as a share of the other's

BySeed = Mapping[int, float | None]
Direction = Literal["same sign", "opposite sign", "level", "within", "outside", "open", ""]


@dataclass(frozen=True)
class Judgement:
    """What our runs say of an order that the paper has.

    The verdict is that of every other command. The direction only says on which side of 0 our mean
    lies: it decides nothing.
    """

    difference: Difference | None
    digits: int
    direction: Direction

    @property
    def verdict(self) -> str:
        return self.difference.verdict.value if self.difference else "-"

    def __str__(self) -> str:
        if self.difference is None:
            return "-"
        mean = self.difference.show_mean(self.digits)
        return f"{self.verdict}, {mean} ({evidence(self.difference, self.digits)})"


@dataclass(frozen=True)
class Entry:
    """One row of one part: ours and the paper's in every column."""

    label: str
    ours: Sequence[str]
    paper: Sequence[str]
    judgement: Judgement | None  # of the first column against the baseline's row


@dataclass(frozen=True)
class JudgedClaim:
    """An order that the paper's text claims, and what ours says."""

    claim: Claim
    column: str  # its title, where claims are about several
    judgement: Judgement

    @property
    def words(self) -> str:
        """The claim, and what it is about."""
        return f"{self.claim} in {self.column}" if self.column else str(self.claim)

    def __str__(self) -> str:
        direction = f"; {self.judgement.direction}" if self.judgement.direction else ""
        return f"{self.words}: {self.judgement}{direction}"


@dataclass(frozen=True)
class Outcome:
    """A part of a table with our figures in it."""

    scaled: Scaled
    titles: Sequence[tuple[str, str]]  # of every column, the paper's and ours
    entries: Sequence[Entry]
    claims: Sequence[JudgedClaim]

    @property
    def is_judged(self) -> bool:
        """Whether rows are compared with the baseline's."""
        return any(entry.judgement for entry in self.entries)


# The figure of a run, beside the baseline's run of the same seed, in a recipe.
Value = Callable[[RunResult, RunResult | None, Recipe], float | None]


@dataclass(frozen=True)
class Column:
    """A figure of a run: its title with the targets in it, how it is made, how it is shown."""

    title: str
    value: Value
    digits: int = 1
    is_cost: bool = False  # less is better, and level within a share instead of points
    is_rounds: bool = False  # less is better


def outcome(table: PaperTable, index: int, scaled: Scaled, results: Results) -> Outcome:
    """Put our figures beside the paper's.

    index: which part of the table. results: of the part's recipe.
    """
    part, recipe = scaled.part, scaled.recipe
    values = _values(results, part.columns, table.base)
    entries = []
    for row in table.rows:
        if row.label not in values:
            continue
        own = values[row.label]
        shown = []
        for name, by_seed in zip(part.columns, own, strict=True):
            shown.append(_estimate(COLUMNS[name], by_seed))
        paper = [""] * len(part.columns)
        if row.paper:
            paper = [_show(cell) for cell in row.paper[index]]
        mark = DAGGER if row.label in scaled.untuned else ""
        judgement = _judge_row(table, index, part.columns[0], row.label, values)
        entries.append(Entry(row.label + mark, shown, paper, judgement))
    targets = recipe.metrics.targets
    titles = [(_title(name, part.targets), _title(name, targets)) for name in part.columns]
    return Outcome(scaled, titles, entries, _judge_claims(table, part.columns, values))


Values = Mapping[str, Sequence[BySeed]]  # label -> for every column, the figure of each seed


def _values(results: Results, columns: Sequence[str], baseline: str) -> Values:
    """Make the figures of all runs; one that diverged has none."""
    base = {run.seed: run for run in results.of(baseline) if not run.diverged}
    values: dict[str, list[BySeed]] = {}
    for label in results.labels:
        values[label] = []
        for name in columns:
            by_seed: dict[int, float | None] = dict.fromkeys(results.seeds)
            for run in results.of(label):
                if not run.diverged:
                    by_seed[run.seed] = COLUMNS[name].value(run, base.get(run.seed), results.recipe)
            values[label].append(by_seed)
    return values


def _judge_row(
    table: PaperTable, index: int, column: str, label: str, values: Values
) -> Judgement | None:
    """Judge a row against the baseline's, where the paper has figures of both."""
    paper = {row.label: row.paper[index] for row in table.rows if row.paper}
    if label == table.base or not {label, table.base} <= {*paper} & {*values}:
        return None
    mine, theirs = (_number(paper[name][0]) for name in (label, table.base))
    if mine is None or theirs is None:
        return Judgement(None, 0, "")
    sign = ">" if mine > theirs else "<" if mine < theirs else "="
    return judge(sign, COLUMNS[column], values[label][0], values[table.base][0])


def _judge_claims(table: PaperTable, columns: Sequence[str], values: Values) -> list[JudgedClaim]:
    """Judge the orders that the paper's text claims, as far as this part has their figures."""
    several = any(claim.column for claim in table.claims)  # then each says what it is about
    judged = []
    for claim in table.claims:
        name = claim.column or columns[0]
        if name not in columns or not {claim.left, claim.right} <= {*values}:
            continue
        column, place = COLUMNS[name], columns.index(name)
        left, right = values[claim.left][place], values[claim.right][place]
        judgement = judge(claim.sign, column, left, right)
        judged.append(JudgedClaim(claim, column.title if several else "", judgement))
    return judged


def judge(sign: str, column: Column, left: BySeed, right: BySeed) -> Judgement:
    """Say who is ahead here, and whether our mean lies on the paper's side.

    sign: the paper's order of the two: >, < or =.
    """
    lower_is_better = column.is_cost or column.is_rounds
    difference = Difference.of(left, right, higher_is_better=not lower_is_better)
    if difference is None:
        return Judgement(None, column.digits, "")
    if sign == "=":
        return Judgement(difference, column.digits, _levelness(difference, column, right))
    direction: Direction = "level"
    if difference.mean:
        same = (difference.mean > 0) == (sign == ">")
        direction = "same sign" if same else "opposite sign"
    return Judgement(difference, column.digits, direction)


def _levelness(difference: Difference, column: Column, right: BySeed) -> Direction:
    """Say whether the interval lies within what counts as level."""
    if difference.interval is None:
        return "open"
    low, high = difference.interval
    room = LEVEL
    if column.is_cost:
        room = LEVEL_OF_COSTS * statistics.fmean(v for v in right.values() if v is not None)
    if -room <= low and high <= room:
        return "within"
    return "outside" if low > room or high < -room else "open"


def _percent(value: float | None) -> float | None:
    return None if value is None else 100 * value


def _top5(run: RunResult, base: RunResult | None, recipe: Recipe) -> float | None:
    return _percent(run.accuracy.top5)


def _worst_top5(run: RunResult, base: RunResult | None, recipe: Recipe) -> float | None:
    return _percent(run.accuracy.worst_top5)


def _local_top5(run: RunResult, base: RunResult | None, recipe: Recipe) -> float | None:
    looked_at = [record.bias for record in run.rounds if record.bias is not None]
    return _percent(best([bias.accuracy_local for bias in looked_at]))


def _rounds_to(place: int) -> Value:
    def rounds_to(run: RunResult, base: RunResult | None, recipe: Recipe) -> float | None:
        return run.rounds_to[str(recipe.metrics.targets[place])]

    return rounds_to


def _rounds_to_fedavg(run: RunResult, base: RunResult | None, recipe: Recipe) -> float | None:
    if base is None or not base.rounds or base.rounds[-1].accuracy is None:
        return None
    goal = base.rounds[-1].accuracy
    rounds = (r.round for r in run.rounds if r.accuracy is not None and r.accuracy >= goal)
    return next(rounds, None)


def _worst_rounds_to_fedavg(run: RunResult, base: RunResult | None, recipe: Recipe) -> float | None:
    if base is None or not base.rounds or base.rounds[-1].accuracy_worst is None:
        return None
    goal = base.rounds[-1].accuracy_worst
    for record in run.rounds:
        if record.accuracy_worst is not None and record.accuracy_worst >= goal:
            return record.round
    return None


def _million_sent(run: RunResult, base: RunResult | None, recipe: Recipe) -> float | None:
    """Return the million numbers that a client sends in a round, after what is sent only once."""
    if not run.rounds:
        return None
    last = run.rounds[-1]
    return last.bytes_up / 4e6 / len(last.clients)


def _step_seconds(run: RunResult, base: RunResult | None, recipe: Recipe) -> float | None:
    """Return the seconds of a local step of all clients."""
    if not run.rounds:
        return None
    return statistics.median(r.seconds_train for r in run.rounds) / recipe.train.local_steps


COLUMNS = {
    "top5": Column("5 best rounds %", _top5),
    "worst_top5": Column("worst client %", _worst_top5),
    "local_top5": Column("local models %", _local_top5),
    "rounds_to": Column("rounds to {0:g} %", _rounds_to(0), 0, is_rounds=True),
    "rounds_to_second": Column("rounds to {1:g} %", _rounds_to(-1), 0, is_rounds=True),
    "rounds_to_fedavg": Column("rounds to FedAvg's last", _rounds_to_fedavg, 0, is_rounds=True),
    "worst_rounds_to_fedavg": Column(
        "rounds to FedAvg's last worst", _worst_rounds_to_fedavg, 0, is_rounds=True
    ),
    "parameters": Column("million sent", _million_sent, 3, is_cost=True),
    "step_seconds": Column("s/step", _step_seconds, 4, is_cost=True),
}


def _title(column: str, targets: Sequence[float]) -> str:
    return COLUMNS[column].title.format(*(100 * target for target in (*targets, 0, 0)))


def _estimate(column: Column, values: BySeed) -> str:
    estimate = Estimate.of(values.values())
    if estimate is None:
        return "-"
    missing = "" if estimate.count == len(values) else f" ({estimate.count} of {len(values)})"
    return estimate.show(column.digits) + missing


def _show(cell: Cell) -> str:
    return f"{cell:.2f}" if isinstance(cell, float) else str(cell)


def _number(cell: Cell) -> float | None:
    if isinstance(cell, float | int):
        return float(cell)
    match = re.match(r"[\d.]+", cell)
    return float(match[0]) if match else None
