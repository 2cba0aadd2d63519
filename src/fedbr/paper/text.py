"""Ours beside the paper's, to be read: Markdown, CSV, LaTeX and a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from ..report import formats, page
from ..report.files import beside, export
from ..report.read import read
from ..report.summary import few_tests
from ..report.tables import Table
from ..report.words import pluralize
from ..report.write import write_page
from ..run.csv_files import format_csv
from ..util.files import write
from .outcome import Outcome
from .scale import Scaled
from .table import PaperTable

CLAIMS = "What the paper's text says of the order"
DIVERGED = "A run that diverged is left out of all means."
VERDICT = (
    "{what} is ahead or behind if the 95 % confidence interval of the mean difference{base}, "
    "paired by seed (Student's t), does not contain 0, and undecided otherwise; of rounds, time "
    "and size, less is ahead. Same sign and opposite sign only say on which side of 0 our mean "
    "lies, beside the paper's: they decide nothing."
)
LEVEL = (
    "'As good as' (=): within, if all of the interval lies within 1 point (a fifth, for time and "
    "size); outside, if all of it lies beyond; open otherwise."
)
UNTUNED = (
    "† not tuned: its parameters are the paper's or its authors', the others' were searched for "
    "on digits."
)


def note(base: str, outcomes: Sequence[Outcome]) -> str:
    """Say how rows are judged, and what the dagger means if there is one."""
    judged = any(outcome.is_judged for outcome in outcomes)
    signs = {claim.claim.sign for outcome in outcomes for claim in outcome.claims}
    sentences = []
    if judged:
        sentences.append(VERDICT.format(what="A row", base=f" from {base}"))
    elif signs:
        sentences.append(VERDICT.format(what="The first of two", base=""))
    if "=" in signs:
        sentences.append(LEVEL)
    sentences.append(DIVERGED)
    if any(outcome.scaled.untuned for outcome in outcomes):
        sentences.append(UNTUNED)
    return " ".join(sentences)


def head(table: PaperTable, parts: Sequence[Scaled]) -> list[str]:
    """Say what the table is, and what of it is not as in the paper."""
    lines = [f"{table.place}: {table.title}", table.about]
    if table.claim:
        lines.append(f"The paper: {table.claim}")
    for scaled in parts:
        seeds = scaled.recipe.train.seeds
        changes = "; ".join(scaled.changes) or "nothing"
        line = f"{scaled.part.name}, {pluralize(len(seeds), 'seed')}. Scaled: {changes}."
        if scaled.why:
            line += f" Its files are not there: {scaled.why}."
        if tests := few_tests(scaled.recipe.train):
            line += f" {tests[0].upper()}{tests[1:]}."
        lines.append(line)
    return lines


def cells(outcome: Outcome, base: str) -> Table:
    """Return a part as header and rows: in every column the paper's figure, then ours."""
    header = [""]
    for paper_title, our_title in outcome.titles:
        if outcome.has_paper_values:
            header.append(f"{paper_title}: paper")
            header.append("ours" if our_title == paper_title else f"{our_title}: ours")
        else:
            header.append(our_title)
    if outcome.is_judged:
        header += [f"{outcome.titles[0][1]} against {base}", "beside the paper"]
    rows = []
    for entry in outcome.entries:
        row = [entry.label]
        for paper, ours in zip(entry.paper, entry.ours, strict=True):
            row += [paper, ours] if outcome.has_paper_values else [ours]
        if outcome.is_judged and entry.judgement is None:
            row += ["", ""]
        elif entry.judgement is not None:
            row += [str(entry.judgement), entry.judgement.direction]
        rows.append(row)
    return header, rows


def write_all(folder: Path, table: PaperTable, outcomes: Sequence[Outcome]) -> Path:
    """Write table.md, table.csv, table.tex and a page with all curves.

    Args:
        folder: where they go; the results of each part lie in a folder below it.
        table: the paper's.
        outcomes: of every part.

    Returns:
        Where the page is.
    """
    write(folder / "table.md", markdown(table, outcomes))
    write(folder / "table.csv", format_csv(_csv_rows(table, outcomes)))
    write(folder / "table.tex", "\n".join(_latex(table, outcome) for outcome in outcomes))
    comparisons = read([folder / outcome.scaled.part.slug for outcome in outcomes])
    page = write_page(comparisons, folder / "report.html", html(table, outcomes))
    export(comparisons, beside(page))
    return page


def markdown(table: PaperTable, outcomes: Sequence[Outcome]) -> str:
    """Write the table with all that is said of it."""
    first, *others = head(table, [outcome.scaled for outcome in outcomes])
    paragraphs = [f"# {first}", *others]
    for outcome in outcomes:
        paragraphs.append(f"## {outcome.scaled.heading}")
        paragraphs.append(formats.markdown(cells(outcome, table.base)).strip())
        if outcome.claims:
            paragraphs.append(f"{CLAIMS}:")
            paragraphs.append("\n".join(f"- {claim}" for claim in outcome.claims))
    paragraphs.append(note(table.base, outcomes))
    return "\n\n".join(paragraphs) + "\n"


def html(table: PaperTable, outcomes: Sequence[Outcome]) -> str:
    """Write the same for a page."""
    first, *others = head(table, [outcome.scaled for outcome in outcomes])
    parts = [f"<h1>{escape(first)}</h1>", page.paragraphs(others)]
    for outcome in outcomes:
        parts.append(f"<h2>{escape(outcome.scaled.heading)}</h2>")
        parts.append(page.table(*cells(outcome, table.base)))
        if outcome.claims:
            parts.append(page.paragraphs([f"{CLAIMS}:"]))
            parts.append(page.bullets([str(claim) for claim in outcome.claims]))
    parts.append(page.paragraphs([note(table.base, outcomes)], "note"))
    return f"<section>{''.join(parts)}</section>"


def _csv_rows(table: PaperTable, outcomes: Sequence[Outcome]) -> Iterator[dict[str, str]]:
    """Yield a row for every value, and for every order that the text claims."""
    for outcome in outcomes:
        place = {
            "table": table.name,
            "part": outcome.scaled.part.name,
            "ours on": outcome.scaled.here,
        }
        for entry in outcome.entries:
            for i, (paper_title, our_title) in enumerate(outcome.titles):
                row = place | {
                    "row": entry.label,
                    "paper's column": paper_title,
                    "paper": entry.paper[i],
                    "our column": our_title,
                    "ours": entry.ours[i],
                    "verdict": "",
                    "sign": "",
                }
                if i == 0 and entry.judgement is not None:
                    row["verdict"] = str(entry.judgement)
                    row["sign"] = entry.judgement.direction
                yield row
        for claim in outcome.claims:
            yield place | {
                "row": claim.words,
                "verdict": str(claim.judgement),
                "sign": claim.judgement.direction,
            }


def _latex(table: PaperTable, outcome: Outcome) -> str:
    """Write a part with what was scaled and how it was judged as comments above it."""
    scaled = outcome.scaled
    both = ": the paper and ours" if outcome.has_paper_values else ""
    caption = f"{table.title}, {scaled.part.name}{both} (ours: {scaled.here})."
    label = f"{table.name}-{scaled.part.slug}"
    _, *lines = head(table, [scaled])
    for claim in outcome.claims:
        lines.append(str(claim))
    lines.append(note(table.base, [outcome]))
    comments = [f"% {line}" for line in lines]
    return "\n".join([*comments, formats.latex(cells(outcome, table.base), caption, label)])
