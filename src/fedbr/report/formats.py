"""Tables as text that other programs read: LaTeX, Markdown, CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"$\sim$", "^": r"\textasciicircum{}", "<": "$<$", ">": "$>$", "|": r"\textbar{}", "±": r"$\pm$",
    "×": r"$\times$", "−": "$-$", "†": r"$^\dagger$", "[": "{[}", "]": "{]}",
}  # fmt: skip  # a bracket behind \\ would be an option
MARKDOWN = {c: f"\\{c}" for c in r"\`*_[]|~$#"} | {"<": "&lt;", ">": "&gt;", "&": "&amp;"}

Table = tuple[Sequence[str], Sequence[Sequence[str]]]  # header and cells


def latex(table: Table, caption: str, label: str) -> str:
    """Write a table for LaTeX; it needs the package booktabs."""
    header, cells = table
    lines = [" & ".join(map(_latex, row)) + r" \\" for row in (header, *cells)]
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{_latex(caption)}}}",
            rf"\label{{tab:{label}}}",
            rf"\begin{{tabular}}{{l{'r' * (len(header) - 1)}}}",
            r"\toprule",
            lines[0],
            r"\midrule",
            *lines[1:],
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def markdown(table: Table) -> str:
    """Write a table for Markdown."""
    header, cells = table
    head, *body = ["| " + " | ".join(map(plain, row)) + " |" for row in (header, *cells)]
    return "\n".join([head, "|---|" + "---:|" * (len(header) - 1), *body, ""])


def as_csv(rows: Iterable[Mapping[str, Any]]) -> str:
    """Write a line for each row under the names of all that any row has; what it lacks stays empty."""
    rows = list(rows)
    names = dict.fromkeys(name for row in rows for name in row)
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _latex(text: str) -> str:
    return "".join(LATEX.get(c, c) for c in text)


def plain(text: str) -> str:
    """Escape what Markdown or HTML would take for its own."""
    return "".join(MARKDOWN.get(c, c) for c in text)
