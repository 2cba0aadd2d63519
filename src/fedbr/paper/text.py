"""Ours beside the paper's, to be read: Markdown, CSV, LaTeX and a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from ..report import formats, page
from ..report.files import beside, export
from ..report.read import read
from ..report.tables import Table
from ..report.words import few_tests, number
from ..report.write import write_page
from ..run.csv_files import as_csv
from ..util.files import write
from .outcome import Outcome
from .scale import Scaled
from .table import PaperTable

CLAIMS = "What the paper's text says of the order"
DIVERGED = "A run that diverged has no figure."
VERDICT = (
    "{what} is ahead or behind if the 95 % confidence interval of the mean difference{base}, paired "
    "by seed (Student's t), does not contain 0, and undecided otherwise; of rounds, time and size, "
    "less is ahead. Same sign and opposite sign only say on which side of 0 our mean lies, beside "
    "the paper's: they decide nothing."
)
LEVEL = (
    "'As good as' (=): within, if all of the interval lies within 1 point (a fifth, for time and "
    "size); outside, if all of it lies beyond; open otherwise."
)
UNTUNED = (
    " † not tuned: its parameters are the paper's or its authors', the others' were searched for "
    "on digits."
)


def note(base: str, outcomes: Sequence[Outcome]) -> str:
    """Say how rows are judged, and what the dagger means if there is one."""
    rows = any(outcome.is_judged for outcome in outcomes)
    claims = [judged.claim for outcome in outcomes for judged in outcome.claims]
    said = []
    if rows or claims:
        what = "A row" if rows else "The first of two"
        said.append(VERDICT.format(what=what, base=f" from {base}" if rows else ""))
    if any(claim.sign == "=" for claim in claims):
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
        tests = few_tests(scaled.recipe.train)
        more = f" {tests[0].upper()}{tests[1:]}." if tests else ""
        lines.append(
            f"{scaled.part.name}, {number(len(seeds), 'seed')}. Scaled: {changes}.{why}{more}"
        )
    return lines


def cells(outcome: Outcome, base: str) -> Table:
    """Return a part as header and rows: in every column the paper's figure, then ours."""
    known = any(any(entry.paper) for entry in outcome.entries)
    header = [""]
    for theirs, ours in outcome.titles:
        if known:
            header.append(f"{theirs}: paper")
            header.append("ours" if ours == theirs else f"{ours}: ours")
        else:
            header.append(ours)
    if outcome.is_judged:
        header += [f"{outcome.titles[0][1]} against {base}", "beside the paper"]
    rows = []
    for entry in outcome.entries:
        row = [entry.label]
        for paper, ours in zip(entry.paper, entry.ours, strict=True):
            row += [paper, ours] if known else [ours]
        if outcome.is_judged:
            judgement = entry.judgement
            row += ["", ""] if judgement is None else [str(judgement), judgement.direction]
        rows.append(row)
    return header, rows


def write_all(folder: Path, table: PaperTable, outcomes: Sequence[Outcome]) -> Path:
    """Write table.md, table.csv, table.tex and a page with all curves; return where the page is."""
    write(folder / "table.md", markdown(table, outcomes))
    write(folder / "table.csv", as_csv(_lines(table, outcomes)))
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
        if outcome.claims:
            paragraphs.append(
                "\n".join([f"{CLAIMS}:", "", *(f"- {claim}" for claim in outcome.claims)])
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
        if outcome.claims:
            parts.append(
                page.paragraphs([f"{CLAIMS}:"]) + page.bullets(list(map(str, outcome.claims)))
            )
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
                line = place | {"row": entry.label}
                line |= {"paper's column": theirs, "paper": entry.paper[i]}
                line |= {"our column": title, "ours": entry.ours[i], "verdict": "", "sign": ""}
                if i == 0 and entry.judgement is not None:
                    line |= {"verdict": str(entry.judgement), "sign": entry.judgement.direction}
                yield line
        for judged in outcome.claims:
            verdict = {"verdict": str(judged.judgement), "sign": judged.judgement.direction}
            yield place | {"row": judged.words} | verdict


def _latex(table: PaperTable, outcome: Outcome) -> str:
    """Write a part with what was scaled and how it was judged as comments above it."""
    scaled = outcome.scaled
    known = any(any(entry.paper) for entry in outcome.entries)
    said = [*head(table, [scaled])[1:], *map(str, outcome.claims), note(table.base, [outcome])]
    both = ": the paper and ours" if known else ""
    caption = f"{table.title}, {scaled.part.name}{both} (ours: {scaled.here})."
    written = formats.latex(cells(outcome, table.base), caption, f"{table.name}-{scaled.part.slug}")
    return "\n".join([*(f"% {line}" for line in said), written])
