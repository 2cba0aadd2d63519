"""Ours beside the paper's, to be read: Markdown, CSV, LaTeX and a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from ..core.disk import write
from ..results import formats, page
from ..results.comparison import read
from ..results.export import beside, export
from ..results.report import write_page
from ..results.statistics import luck
from .outcome import Outcome
from .scale import Scaled
from .table import PaperTable

CLAIMS = "What the paper's text says of the order"
NOTE = (
    "A row agrees if it is on the same side of {base} as in the paper, differs if it is on the other, and is undecided "
    "if the mean difference, paired by seed, is not larger than its standard deviation (in brackets, with "
    "the number of seeds that go the paper's way). {luck} A star: the 95 % "
    "confidence interval (Student's t) excludes 0 too. 'As good as' (=) agrees if all of that interval lies within 1 "
    "point, or within a fifth for time and size. A run that diverged has no figure."
)
LUCK = "Where there is no difference at all, {count} seeds decide all the same in {luck:.0f} % of the rows."
UNTUNED = " † not tuned: its parameters are the paper's or its authors', the others' were searched for on digits."


def note(base: str, outcomes: Sequence[Outcome]) -> str:
    """Say how rows are judged, how sure that is, and what the dagger means if there is one."""
    count = min(len(outcome.scaled.recipe.train.seeds) for outcome in outcomes)
    chance = LUCK.format(count=count, luck=100 * luck(count)) if count > 1 else "One seed decides nothing."
    untuned = UNTUNED if any(outcome.scaled.untuned for outcome in outcomes) else ""
    return NOTE.format(base=base, luck=chance) + untuned


def head(table: PaperTable, parts: Sequence[Scaled]) -> list[str]:
    """Say what the table is, and what of it is not as in the paper."""
    lines = [f"{table.place}: {table.title}", table.about]
    if table.claim:
        lines.append(f"The paper: {table.claim}")
    for scaled in parts:
        seeds = scaled.recipe.train.seeds
        changes = "; ".join(scaled.changes) or "nothing"
        why = f" Its files are not there: {scaled.why}" if scaled.why else ""
        lines.append(f"{scaled.part.name}, {len(seeds)} seed{'s' if len(seeds) > 1 else ''}. Scaled: {changes}.{why}")
    return lines


def cells(outcome: Outcome, base: str) -> tuple[list[str], list[list[str]]]:
    """Return a part as header and rows: in every column the paper's figure, then ours."""
    known = any(any(entry.paper) for entry in outcome.entries)
    header = [""]
    for theirs, ours in outcome.titles:
        header += [f"{theirs}: paper", "ours" if ours == theirs else f"{ours}: ours"] if known else [ours]
    judged = any(entry.verdict for entry in outcome.entries)
    rows = []
    for entry in outcome.entries:
        pairs = zip(entry.paper, entry.ours, strict=True)
        row = [entry.label, *(cell for pair in pairs for cell in (pair if known else pair[1:]))]
        rows.append([*row, entry.verdict] if judged else row)
    return [*header, f"against {base}"] if judged else header, rows


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
        paragraphs += [f"## {outcome.scaled.part.name}", formats.markdown(cells(outcome, table.base)).strip()]
        if outcome.orders:
            paragraphs.append("\n".join([f"{CLAIMS}:", "", *(f"- {order}" for order in outcome.orders)]))
    return "\n\n".join([*paragraphs, note(table.base, outcomes)]) + "\n"


def html(table: PaperTable, outcomes: Sequence[Outcome]) -> str:
    """Write the same for a page."""
    first, *others = head(table, [o.scaled for o in outcomes])
    parts = [f"<h1>{escape(first)}</h1>", page.paragraphs(others)]
    for outcome in outcomes:
        parts += [f"<h2>{escape(outcome.scaled.part.name)}</h2>", page.table(*cells(outcome, table.base))]
        if outcome.orders:
            parts.append(page.paragraphs([f"{CLAIMS}:"]) + page.bullets(outcome.orders))
    return f"<section>{''.join(parts)}{page.paragraphs([note(table.base, outcomes)], 'note')}</section>"


def _lines(table: PaperTable, outcomes: Sequence[Outcome]) -> Iterator[dict[str, str]]:
    """Yield a line for every figure."""
    for outcome in outcomes:
        for entry in outcome.entries:
            for (theirs, title), paper, ours in zip(outcome.titles, entry.paper, entry.ours, strict=True):
                place = {"table": table.name, "part": outcome.scaled.part.name, "row": entry.label}
                figures = {"paper's column": theirs, "paper": paper, "our column": title, "ours": ours}
                yield place | figures | {f"against {table.base}": entry.verdict}


def _latex(table: PaperTable, outcome: Outcome) -> str:
    part = outcome.scaled.part
    return formats.latex(
        cells(outcome, table.base), f"{table.title}, {part.name}: the paper's and ours.", f"{table.name}-{part.slug}"
    )
