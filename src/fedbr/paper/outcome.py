"""Our results beside the paper's: who is ahead here, and on which side of 0 the paper has it."""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ..report.words import evidence, pluralize
from ..run.results import Results
from ..util.estimate import Difference, Verdict
from .columns import COLUMNS, BySeed, Column
from .scale import Scaled
from .table import Cell, Claim, PaperTable

DAGGER = " †"  # not tuned
LEVEL = 1.0  # points within which a variant is as good as another
LEVEL_OF_COSTS = 0.2  # the same of time and size, as a share of the other's

Direction = Literal["same sign", "opposite sign", "level", "within", "outside", "open", ""]
Values = Mapping[str, Sequence[BySeed]]  # label -> for every column, the value of each seed


@dataclass(frozen=True)
class Judgement:
    """What our runs say of an order that the paper has.

    The verdict is that of every other command. The direction only says on which side of 0 our mean
    lies: it decides nothing.
    """

    difference: Difference | None
    digits: int
    direction: Direction
    diverged: str = ""  # on how many seeds the first of the two diverged, in words

    @property
    def verdict(self) -> str:
        """Ahead, behind or undecided; a dash if there is nothing to compare."""
        if self.difference is None:
            return self.diverged or "-"
        verdict = self.difference.verdict
        if self.diverged and verdict is Verdict.AHEAD:
            return self.diverged
        return verdict.value

    def __str__(self) -> str:
        if self.difference is None:
            return self.verdict
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
    """A part of a table with our values in it."""

    scaled: Scaled
    titles: Sequence[tuple[str, str]]  # of every column, the paper's and ours
    entries: Sequence[Entry]
    claims: Sequence[JudgedClaim]

    @property
    def is_judged(self) -> bool:
        """Whether rows are compared with the baseline's."""
        return any(entry.judgement for entry in self.entries)

    @property
    def has_paper_values(self) -> bool:
        """Whether the paper has numbers for it; of a figure it has none."""
        return any(any(entry.paper) for entry in self.entries)


def make_outcome(table: PaperTable, index: int, scaled: Scaled, results: Results) -> Outcome:
    """Put our results beside the paper's.

    Args:
        table: the paper's.
        index: which part of the table.
        scaled: that part as a recipe.
        results: of the part's recipe.
    """
    columns = scaled.part.columns
    values = _collect_values(results, columns, table.base)
    diverged = {label: _describe_diverged(results, label) for label in results.labels}
    entries = []
    for row in table.rows:
        if row.label not in values:
            continue
        ours = []
        for name, by_seed in zip(columns, values[row.label], strict=True):
            ours.append(COLUMNS[name].show(by_seed))
        paper = [""] * len(columns)
        if row.paper:
            paper = [_show_cell(cell) for cell in row.paper[index]]
        label = row.label
        if label in scaled.untuned:
            label += DAGGER
        judgement = _judge_row(table, index, columns[0], row.label, values, diverged)
        entries.append(Entry(label, ours, paper, judgement))
    titles = []
    for name in columns:
        column = COLUMNS[name]
        our_title = column.title_at(scaled.recipe.metrics.targets)
        titles.append((column.title_at(scaled.part.targets), our_title))
    return Outcome(scaled, titles, entries, _judge_claims(table, columns, values, diverged))


def _describe_diverged(results: Results, label: str) -> str:
    """Say on how many seeds a variant diverged; nothing if on none."""
    runs = results.of(label)
    lost = sum(run.diverged for run in runs)
    return f"diverged on {lost} of {pluralize(len(runs), 'seed')}" if lost else ""


def _collect_values(results: Results, columns: Sequence[str], baseline: str) -> Values:
    """Make the values of all runs; one that diverged has none."""
    base_runs = {run.seed: run for run in results.of(baseline) if not run.diverged}
    values: dict[str, list[BySeed]] = {label: [] for label in results.labels}
    for label, by_column in values.items():
        for name in columns:
            by_seed: dict[int, float | None] = dict.fromkeys(results.seeds)
            for run in results.of(label):
                if not run.diverged:
                    base = base_runs.get(run.seed)
                    by_seed[run.seed] = COLUMNS[name].value(run, base, results.recipe)
            by_column.append(by_seed)
    return values


def _judge_row(
    table: PaperTable,
    index: int,
    column: str,
    label: str,
    values: Values,
    diverged: Mapping[str, str],
) -> Judgement | None:
    """Judge a row against the baseline's, where the paper has numbers of both."""
    paper = {row.label: row.paper[index] for row in table.rows if row.paper}
    if label == table.base:
        return None
    for name in (label, table.base):
        if name not in paper or name not in values:
            return None
    paper_value = _parse_number(paper[label][0])
    paper_base = _parse_number(paper[table.base][0])
    if paper_value is None or paper_base is None:
        return Judgement(None, 0, "")
    sign = "="
    if paper_value > paper_base:
        sign = ">"
    elif paper_value < paper_base:
        sign = "<"
    judgement = judge(sign, COLUMNS[column], values[label][0], values[table.base][0])
    return replace(judgement, diverged=diverged[label])


def _judge_claims(
    table: PaperTable, columns: Sequence[str], values: Values, diverged: Mapping[str, str]
) -> list[JudgedClaim]:
    """Judge the orders that the paper's text claims, as far as this part has their values."""
    several = any(claim.column for claim in table.claims)  # then each says what it is about
    claims = []
    for claim in table.claims:
        name = claim.column or columns[0]
        if name not in columns or claim.left not in values or claim.right not in values:
            continue
        column, place = COLUMNS[name], columns.index(name)
        left, right = values[claim.left][place], values[claim.right][place]
        judgement = replace(judge(claim.sign, column, left, right), diverged=diverged[claim.left])
        claims.append(JudgedClaim(claim, column.title if several else "", judgement))
    return claims


def judge(sign: str, column: Column, left: BySeed, right: BySeed) -> Judgement:
    """Say who is ahead here, and whether our mean lies on the paper's side of 0.

    Args:
        sign: the paper's order of the two: >, < or =.
        column: what the values are.
        left: the values of the first.
        right: the values of the second.
    """
    difference = Difference.of(left, right, higher_is_better=not column.lower_is_better)
    if difference is None:
        return Judgement(None, column.digits, "")
    if sign == "=":
        return Judgement(difference, column.digits, _judge_level(difference, column, right))
    direction: Direction = "level"
    if round(difference.mean, difference.digits(column.digits)):
        same = (difference.mean > 0) == (sign == ">")
        direction = "same sign" if same else "opposite sign"
    return Judgement(difference, column.digits, direction)


def _judge_level(difference: Difference, column: Column, right: BySeed) -> Direction:
    """Say whether the interval lies within what counts as level."""
    if difference.interval is None:
        return "open"
    low, high = difference.interval
    room = LEVEL
    if column.is_cost:
        values = [value for value in right.values() if value is not None]
        room = LEVEL_OF_COSTS * statistics.fmean(values)
    if -room <= low and high <= room:
        return "within"
    if low > room or high < -room:
        return "outside"
    return "open"


def _show_cell(cell: Cell) -> str:
    return f"{cell:.2f}" if isinstance(cell, float) else str(cell)


def _parse_number(cell: Cell) -> float | None:
    """Read the number with which a cell begins, such as "51.2 ± 0.4"."""
    if isinstance(cell, float | int):
        return float(cell)
    match = re.match(r"[\d.]+", cell)
    return float(match[0]) if match else None
