"""Ours beside the paper's, as text: Markdown, CSV and LaTeX."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from ..core.disk import write
from .outcome import Outcome
from .scale import Scaled
from .table import PaperTable

SPECIAL = {c: f"\\{c}" for c in "&%$#_{}"} | {
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "\\": r"\textbackslash{}",
}
NOTE = (
    "A row agrees if it is on the same side of {base} as in the paper, differs if it is on the other, and is undecided "
    "if the mean difference over the seeds is not larger than its spread (standard deviation)."
)


def head(table: PaperTable, parts: Sequence[Scaled]) -> str:
    """Say what the table is, and what of it is not as in the paper."""
    lines = [f"{table.place}: {table.title}. {table.about}"]
    if table.claim:
        lines.append(f"The paper: {table.claim}")
    for scaled in parts:
        seeds = scaled.recipe.train.seeds
        changes = "; ".join(scaled.changes) or "nothing"
        why = f" Its files are not there: {scaled.why}" if scaled.why else ""
        lines.append(f"{scaled.part.name}, {len(seeds)} seed{'s' if len(seeds) > 1 else ''}. Scaled: {changes}.{why}")
    return "\n".join(lines)


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


def write_all(folder: Path, table: PaperTable, outcomes: Sequence[Outcome]) -> None:
    """Write table.md, table.csv and table.tex."""
    write(folder / "table.md", markdown(table, outcomes))
    write(folder / "table.csv", comma_separated(table, outcomes))
    write(folder / "table.tex", latex(table, outcomes))


def markdown(table: PaperTable, outcomes: Sequence[Outcome]) -> str:
    paragraphs = [f"# {table.place}: {table.title}", *head(table, [o.scaled for o in outcomes]).split("\n")]
    for outcome in outcomes:
        header, rows = cells(outcome, table.base)
        lines = ["| " + " | ".join(c.replace("|", r"\|") for c in row) + " |" for row in (header, *rows)]
        paragraphs += [f"## {outcome.scaled.part.name}", "\n".join([lines[0], "|" + "---|" * len(header), *lines[1:]])]
        if outcome.orders:
            paragraphs.append(
                "\n".join(["What the paper's text says of the order:", "", *(f"- {o}" for o in outcome.orders)])
            )
    return "\n\n".join([*paragraphs, NOTE.format(base=table.base)]) + "\n"


def comma_separated(table: PaperTable, outcomes: Sequence[Outcome]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["table", "part", "row", "paper's column", "paper", "our column", "ours", f"against {table.base}"])
    for outcome in outcomes:
        for entry in outcome.entries:
            for (theirs, title), paper, ours in zip(outcome.titles, entry.paper, entry.ours, strict=True):
                place = [table.name, outcome.scaled.part.name, entry.label]
                writer.writerow([*place, theirs, paper, title, ours, entry.verdict])
    return text.getvalue()


def latex(table: PaperTable, outcomes: Sequence[Outcome]) -> str:
    """Write a table for every part (booktabs)."""
    found = []
    for outcome in outcomes:
        header, rows = cells(outcome, table.base)
        body = "\n".join(" & ".join(map(escaped, row)) + r" \\" for row in rows)
        found.append(
            "\\begin{table}\n\\centering\n"
            f"\\caption{{{escaped(f'{table.title}, {outcome.scaled.part.name}. Paper and ours.')}}}\n"
            f"\\begin{{tabular}}{{l{'r' * (len(header) - 1)}}}\n\\toprule\n"
            + " & ".join(map(escaped, header)) + " \\\\\n\\midrule\n" + body
            + "\n\\bottomrule\n\\end{tabular}\n\\end{table}\n"
        )  # fmt: skip
    return "\n".join(found)


def escaped(text: str) -> str:
    """Let LaTeX show a text as it is."""
    plain = "".join(SPECIAL.get(c, c) for c in text)
    return plain.replace("±", r"$\pm$").replace("×", r"$\times$")
