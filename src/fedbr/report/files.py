"""What a paper needs, beside the page: figures, and tables as CSV, LaTeX and Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..run.csv_files import Row, format_csv, round_rows, run_rows
from ..util.errors import InputError
from ..util.files import write
from . import summary, tables, words
from .compare import Comparison
from .curves import UNITS, curve
from .formats import latex, markdown, plain
from .plots import column_pictures
from .read import ReportFolder
from .tables import Table

KINDS = ("png", "svg", "pdf")
PAIRED = (
    "Points above or below {base}, paired by seed, with 95 % confidence intervals (Student's t); "
    "undecided: the interval contains 0."
)
File = tuple[str, str | bytes]  # name and content


@dataclass(frozen=True)
class CaptionedTable:
    """A table with its caption, under the name of its file."""

    name: str
    table: Table
    caption: str


def beside(page: Path) -> Path:
    """Return the folder that goes with a page: its name without the ending.

    >>> beside(Path("runs/report.html")).as_posix()
    'runs/report'
    """
    return page.with_suffix("") if page.suffix else page.with_name(f"{page.name}-files")


def export(reports: Sequence[ReportFolder], folder: Path) -> list[Path]:
    """Write all files into a folder; those of several reports into one each below it.

    Returns:
        What was written.

    Raises:
        InputError: it cannot be written there.
    """
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in _files(reports):
            path = folder / name
            path.parent.mkdir(exist_ok=True)
            write(path, content)
            written.append(path)
    except OSError as error:
        raise InputError(f"{folder}: cannot write there ({error.strerror})") from error
    return written


def _files(reports: Sequence[ReportFolder]) -> Iterator[File]:
    runs: list[Row] = []
    rounds: list[Row] = []
    for report in reports:
        runs += run_rows(report.results, report.name)
        rounds += round_rows(report.results, report.name)
    yield "runs.csv", format_csv(runs)
    yield "rounds.csv", format_csv(rounds)
    for number, report in enumerate(reports, 1):
        folder = prefix = ""
        if len(reports) > 1:
            name = re.sub(r"[^\w.+-]", "_", report.name)
            folder = f"{number}-{name}/"
            prefix = f"{name}-"  # so that LaTeX can tell their labels apart
        for file, content in _tables(report.comparison, prefix):
            yield folder + file, content
        for file, content in _pictures(report):
            yield folder + file, content


def _pictures(report: ReportFolder) -> Iterator[File]:
    curves = {variant.label: curve(variant.runs) for variant in report.begun}
    drawn = {label: points for label, points in curves.items() if points.band.rounds}
    if not drawn:
        return
    for unit in UNITS:
        for kind, content in column_pictures(drawn, unit, KINDS):
            yield f"accuracy-by-{unit}.{kind}", content


def _tables(comparison: Comparison, prefix: str) -> Iterator[File]:
    """Yield the tables.

    prefix: of the labels in LaTeX.
    """
    captioned = _make_tables(comparison)
    if not captioned:
        return
    for each in captioned:
        yield f"{each.name}.tex", latex(each.table, each.caption, prefix + each.name)
    text = "".join(f"{plain(sentence)}\n" for sentence in words.headline(comparison))
    for each in captioned:
        text += f"\n{plain(each.caption)}\n\n{markdown(each.table)}"
    yield "tables.md", text


def _make_tables(comparison: Comparison) -> list[CaptionedTable]:
    """Make the tables of a comparison; none while nothing has begun."""
    if comparison.baseline is None:
        return []
    base = comparison.baseline.label
    captioned = []

    about = f"{summary.about(comparison.results)}."
    if unfinished := summary.unfinished(comparison.results):
        about += f" {unfinished}"
    if words.has_dagger(comparison):
        about += f" {words.DAGGER}"
    captioned.append(CaptionedTable("comparison", tables.comparison_table(comparison), about))

    if comparison.pairs:
        caption = " ".join([PAIRED.format(base=base), *words.missing_seeds(comparison)])
        captioned.append(CaptionedTable("paired", tables.paired_table(comparison), caption))

    caption = f"Cost; × is relative to {base}."
    captioned.append(CaptionedTable("cost", tables.cost_table(comparison), caption))
    return captioned
