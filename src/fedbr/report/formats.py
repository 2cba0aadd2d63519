"""Tables as text that other programs read: LaTeX and Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from .tables import Table

LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "{": r"\{", "}": r"\}", "~": r"$\sim$", "^": r"\textasciicircum{}", "<": "$<$", ">": "$>$",
    "|": r"\textbar{}", "±": r"$\pm$", "×": r"$\times$", "−": "$-$", "†": r"$^\dagger$",
    "[": "{[}", "]": "{]}",
}  # fmt: skip  # a bracket behind \\ would be an option
MARKDOWN = {c: f"\\{c}" for c in r"\`*_[]|~$#"} | {"<": "&lt;", ">": "&gt;", "&": "&amp;"}


def latex(table: Table, caption: str, label: str) -> str:
    """Write a table for LaTeX; it needs the package booktabs.

    Args:
        table: header and cells.
        caption: above the table.
        label: what LaTeX calls it, behind ``tab:``.
    """
    header, cells = table
    head, *rows = [_latex_row(row) for row in (header, *cells)]
    columns = "l" + "r" * (len(header) - 1)
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{_latex(caption)}}}",
        rf"\label{{tab:{label}}}",
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        head,
        r"\midrule",
        *rows,
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def markdown(table: Table) -> str:
    """Write a table for Markdown.

    >>> print(markdown((["", "a"], [["b", "1"]])), end="")
    |  | a |
    |---|---:|
    | b | 1 |
    """
    header, cells = table
    head, *rows = [f"| {' | '.join(map(plain, row))} |" for row in (header, *cells)]
    rule = "|---|" + "---:|" * (len(header) - 1)
    return "\n".join([head, rule, *rows]) + "\n"


def plain(text: str) -> str:
    """Escape what Markdown or HTML would take for its own.

    >>> plain("a_b")
    'a\\\\_b'
    """
    return "".join(MARKDOWN.get(c, c) for c in text)


def _latex_row(cells: Sequence[str]) -> str:
    return " & ".join(map(_latex, cells)) + r" \\"


def _latex(text: str) -> str:
    return "".join(LATEX.get(c, c) for c in text)
