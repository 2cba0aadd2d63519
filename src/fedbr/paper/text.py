"""Ours beside the paper's, to be read: Markdown, CSV, LaTeX and a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from ..report import formats, page
from ..report.comparison import read
from ..report.files import beside, export
from ..report.statistics import luck
from ..report.tables import few_tests, number
from ..report.write import write_page
from ..util.files import write
from .outcome import Outcome
from .scale import Scaled
from .table import PaperTable

CLAIMS = "What the paper's text says of the order"
DIVERGED = "A run that diverged has no figure."
NOTE = (
    "{what} agrees if it is on the same side{base} as in the paper, differs if it is on the other, and is undecided "
    "if the mean difference, paired by seed, is not larger than its standard deviation (in brackets, with "
    "the number of seeds that go the paper's way). {luck} A star: the 95 % "
    "confidence interval (Student's t) excludes 0 too."
)
LEVEL = (
    "'As good as' (=) is judged by that interval alone: it agrees if all of it lies within 1 point, or within a fifth "
    "for time and size, and differs if all of it lies outside; few seeds seldom decide it."
)
LUCK = "Where there is no difference at all, {count} seeds decide all the same in {luck:.0f} % of the rows."
UNTUNED = " † not tuned: its parameters are the paper's or its authors', the others' were searched for on digits."


def note(base: str, outcomes: Sequence[Outcome]) -> str:
    """Say how rows are judged, how sure that is, and what the dagger means if there is one."""
    count = min(len(outcome.scaled.recipe.train.seeds) for outcome in outcomes)
    chance = (
        LUCK.format(count=count, luck=100 * luck(count))
        if count > 1
        else "One seed decides nothing."
    )
    rows = any(entry.verdict for outcome in outcomes for entry in outcome.entries)
    orders = [order for outcome in outcomes for order in outcome.orders]
    said = []
    if rows or orders:
        said.append(
            NOTE.format(
                what="A row" if rows else "An order", base=f" of {base}" * rows, luck=chance
            )
        )
    if any(" = " in order for order in orders):
        said.append(LEVEL)
    untuned = UNTUNED if any(outcome.scaled.untuned for outcome in outcomes) else ""
    return " ".join([*said, DIVERGED]) + untuned


def head(table: PaperTable, parts: Sequence[Scaled]) -> list[str]:
    """Say what the table is, and what of it is not as in the paper."""
    lines = [f"{table.place}: {table.title}", table.about]
    if table.claim:
        lines.append(f"The paper: {table.claim}")
    for scaled in parts:
        seeds = scaled.recipe.train.seeds
        changes = "; ".join(scaled.changes) or "nothing"
        why = f" Its files are not there: {scaled.why}." if scaled.why else ""
        tests = few_tests(scaled.recipe.train.model_dump())
        more = f" {tests[0].upper()}{tests[1:]}." if tests else ""
        lines.append(
            f"{scaled.part.name}, {number(len(seeds), 'seed')}. Scaled: {changes}.{why}{more}"
        )
    return lines


def cells(outcome: Outcome, base: str) -> tuple[list[str], list[list[str]]]:
    """Return a part as header and rows: in every column the paper's figure, then ours."""
    known = any(any(entry.paper) for entry in outcome.entries)
    header = [""]
    for theirs, ours in outcome.titles:
        header += (
            [f"{theirs}: paper", "ours" if ours == theirs else f"{ours}: ours"] if known else [ours]
        )
    judged = any(entry.verdict for entry in outcome.entries)
    rows = []
    for entry in outcome.entries:
        pairs = zip(entry.paper, entry.ours, strict=True)
        row = [entry.label, *(cell for pair in pairs for cell in (pair if known else pair[1:]))]
        rows.append([*row, entry.verdict] if judged else row)
    return [*header, f"{outcome.titles[0][1]} against {base}"] if judged else header, rows


def write_all(folder: Path, table: PaperTable, outcomes: Sequence[Outcome]) -> Path:
    """Write table.md, table.csv, table.tex and a page with all curves; return where the page is."""
    write(folder / "table.md", markdown(table, outcomes))
    write(folder / "table.csv", formats.as_csv(_lines(table, outcomes)))
    write(folder / "table.tex", "\n".join(_latex(table, outcome) for outcome in outcomes))
    comparisons = read([folder / outcome.scaled.part.slug for outcome in outcomes])
    page = write_page(comparisons, folder / "report.html", html(table, outcomes))
    export(comparisons, beside(page))
    return page


def markdown(table: PaperTable, outcomes: Sequence[Outcome]) -> str:
    """Write the table with all that is said of it."""
    first, *others = head(table, [o.scaled for o in outcomes])
    paragraphs = [f"# {first}", *others]
    for outcome in outcomes:
        paragraphs += [
            f"## {outcome.scaled.heading}",
            formats.markdown(cells(outcome, table.base)).strip(),
        ]
        if outcome.orders:
            paragraphs.append(
                "\n".join([f"{CLAIMS}:", "", *(f"- {order}" for order in outcome.orders)])
            )
    return "\n\n".join([*paragraphs, note(table.base, outcomes)]) + "\n"


def html(table: PaperTable, outcomes: Sequence[Outcome]) -> str:
    """Write the same for a page."""
    first, *others = head(table, [o.scaled for o in outcomes])
    parts = [f"<h1>{escape(first)}</h1>", page.paragraphs(others)]
    for outcome in outcomes:
        parts += [
            f"<h2>{escape(outcome.scaled.heading)}</h2>",
            page.table(*cells(outcome, table.base)),
        ]
        if outcome.orders:
            parts.append(page.paragraphs([f"{CLAIMS}:"]) + page.bullets(outcome.orders))
    return f"<section>{''.join(parts)}{page.paragraphs([note(table.base, outcomes)], 'note')}</section>"


def _lines(table: PaperTable, outcomes: Sequence[Outcome]) -> Iterator[dict[str, str]]:
    """Yield a line for every figure, and for every order that the text claims."""
    for outcome in outcomes:
        place = {
            "table": table.name,
            "part": outcome.scaled.part.name,
            "ours on": outcome.scaled.here,
        }
        for entry in outcome.entries:
            for i, (theirs, title) in enumerate(outcome.titles):
                paper = {"paper's column": theirs, "paper": entry.paper[i]}
                ours = {
                    "our column": title,
                    "ours": entry.ours[i],
                    "verdict": "" if i else entry.verdict,
                }
                yield place | {"row": entry.label} | paper | ours
        for order in outcome.orders:
            claim, _, judged = order.rpartition(": ")
            yield place | {"row": claim, "verdict": judged}


def _latex(table: PaperTable, outcome: Outcome) -> str:
    """Write a part with what was scaled and how it was judged as comments above it."""
    scaled = outcome.scaled
    known = any(any(entry.paper) for entry in outcome.entries)
    said = [*head(table, [scaled])[1:], *outcome.orders, note(table.base, [outcome])]
    caption = f"{table.title}, {scaled.part.name}{': the paper and ours' if known else ''} (ours: {scaled.here})."
    written = formats.latex(cells(outcome, table.base), caption, f"{table.name}-{scaled.part.slug}")
    return "\n".join([*(f"% {line}" for line in said), written])
