"""One self-contained HTML page from result folders: no network, text escaped, finished or not."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from ..bias import report as diagnosis
from ..run.folder import ResultFolder
from ..util.errors import InputError
from ..util.files import write
from . import local_models, settings, tables, verdicts
from .comparison import Comparison, read
from .costs import cost_table
from .figures import Figures, clients_figure, curves_figure, end_of
from .files import beside
from .page import embedded, folded, page, paragraphs, sample, table
from .plots import look
from .together import together

DEFINITIONS = {
    "±": "sample standard deviation over seeds",
    "paired difference": "the variant's figure minus that of FedAvg (or of the first variant), seed by seed: both sides of "
    "a seed have the same split and the same initial weights; mean over the seeds that both have finished",
    "95 % interval": "confidence interval of that mean by Student's t; one seed has none, and with few seeds it is "
    "wide. It is not corrected for the number of variants",
    "verdict": "ahead or behind if the interval does not contain 0, otherwise undecided within the spread",
    "MB and s to the target": "what all clients sent and received, and the wall time of training, up to the round in "
    "which the target was reached; mean over the seeds that reached it",
}
MAKER = "Made by fedbr report."
FOOTER = (
    f"<footer>{MAKER} Figures, CSV, LaTeX and Markdown lie in the folder beside this page.</footer>"
)


def write_report(folders: Sequence[Path], out: Path | None = None) -> Path:
    """Write the page of one or several result folders; return where it is."""
    return write_page(read(folders), out or folders[0] / "report.html")


def check_place(page: Path) -> None:
    """Refuse a place where something lies that is no earlier report: nobody's file is written over."""
    if page.suffix.lower() != ".html" or page.is_dir():
        raise InputError(f"--out {page}: the page is one file, NAME.html")
    try:
        if page.exists() and MAKER not in page.read_text("utf-8", errors="replace"):
            raise InputError(
                f"--out {page}: this file is no report of fedbr's, and it stays; choose another name"
            )
        folder = beside(page)
        names = {path.name for path in folder.iterdir()} if folder.exists() else set()
    except OSError as error:
        raise InputError(f"--out {page}: {error.filename or page}: {error.strerror}") from error
    if names and ("rounds.csv" not in names or "results.json" in names):
        raise InputError(
            f"--out {page}: figures and tables go into {folder}, which holds something else; choose another name"
        )


def write_page(comparisons: Sequence[Comparison], target: Path, lead: str = "") -> Path:
    """Write the page of folders that have been read, behind what leads it; return where it is."""
    figures: Figures = {"curves": [], "clients": []}
    parts = [lead] if lead else [together(comparisons, figures)] if len(comparisons) > 1 else []
    parts += [
        _section(comparison, figures, f"folder-{i}") for i, comparison in enumerate(comparisons)
    ]
    names = ", ".join(comparison.recipe.name for comparison in comparisons)
    html = page(f"{names} - fedbr", "\n".join([*parts, FOOTER]), figures)
    try:
        write(target, html)
    except OSError as error:
        raise InputError(f"{target}: cannot write there ({error.strerror})") from error
    return target


def curves(folder: ResultFolder) -> dict[str, list[dict[int, float]]]:
    """Return, for every label, the accuracy by round of every seed."""
    return {
        variant.label: [
            {line["round"]: line["accuracy"] for line in lines if line["accuracy"] is not None}
            for seed in folder.recipe.train.seeds
            if (lines := folder.run(variant, seed).lines())
        ]
        for variant in folder.recipe.compare
    }


def _section(comparison: Comparison, figures: Figures, anchor: str) -> str:
    results, recipe = comparison.results, comparison.recipe
    parts = [f"<h1>{escape(recipe.name)} <small>{escape(comparison.name)}</small></h1>"]
    if any(comparison.lines.values()):
        parts += [
            paragraphs(verdicts.headline(results), "lead"),
            paragraphs([tables.about(results)], "about"),
            paragraphs([tables.progress(results), *_diverged(results)], "warn"),
            curves_figure([comparison], figures),
            _tables(comparison),
            clients_figure(comparison, figures),
            _local_models(comparison),
            _diagnosis(comparison),
        ]
    else:
        parts.append(paragraphs(["No round is finished yet."], "lead"))
    variants = table(*settings.of_variants(comparison), _samples(comparison), words=True)
    parts += [f"<h2>Variants</h2>{variants}", _sources(comparison)]
    return f'<section id="{anchor}">' + "\n".join(part for part in parts if part) + "</section>"


def _diverged(results: dict[str, Any]) -> list[str]:
    found = [row for row in tables.rows(results) if row.diverged]
    ends = ["; ".join(end_of(run) for run in row.diverged) for row in found]
    return [
        f"{row.label}: {end}. What diverged has no figure."
        for row, end in zip(found, ends, strict=True)
    ]


def _tables(comparison: Comparison) -> str:
    results, lines = comparison.results, _samples(comparison)
    found = tables.rows(results)
    dagger = paragraphs([tables.dagger(found)], "note")
    parts = [f"<h2>Comparison</h2>{table(*tables.compare(results), lines)}{dagger}"]
    base = tables.base_of(found).label
    if len(found) > 1:
        note = (
            f"Points above or below {base}, paired by seed. Undecided within the spread: the interval contains 0. "
            "The intervals are not corrected for their number."
        )
        pairs = table(*verdicts.paired_table(results), lines)
        rest = paragraphs([note, *verdicts.left_out(results)], "note")
        parts.append(f"<h2>Paired comparison</h2>{pairs}{rest}")
    cost = paragraphs([f"× is relative to {base}. ± is the standard deviation over seeds."], "note")
    parts.append(f"<h2>Cost</h2>{table(*cost_table(comparison), lines)}{cost}")
    return "\n".join(parts)


def _local_models(comparison: Comparison) -> str:
    """Show the clients' models beside the aggregated one, where they were looked at."""
    if not (rounds := local_models.logged(comparison)):
        return ""
    shown = table(*local_models.table(rounds), _samples(comparison))
    return f"<h2>Local models</h2>{shown}{paragraphs([local_models.NOTE], 'note')}"


def _diagnosis(comparison: Comparison) -> str:
    """Show what fedbr diagnose found; its pictures become part of the page."""
    if (found := comparison.diagnosis) is None:
        return ""
    pictures = "".join(
        f'<figure><img alt="{escape(caption)}" src="{embedded(path.read_bytes())}">'
        f"<figcaption>{escape(caption)}.</figcaption></figure>"
        for _, caption, path in found.figures
    )
    words = paragraphs([f"{diagnosis.about(found.numbers)}."], "note") + paragraphs(
        diagnosis.sentences(found.numbers)
    )
    header, cells = diagnosis.table(found.numbers)
    rows = [
        [first.replace("  ", "\u2003"), *rest] for first, *rest in cells
    ]  # HTML would drop what sets rows in
    return f"<h2>Bias of local learning</h2>{words}{table(header, rows)}{pictures}"


def _samples(comparison: Comparison) -> dict[str, str]:
    """Return a piece of every variant's curve, by all that tables call the variant."""
    begun = [label for label in comparison.labels if comparison.runs(label)]
    lines = {label: sample(*look(i)) for i, label in enumerate(begun)}
    found = tables.rows(comparison.results)
    marked = zip(found, tables.compare(comparison.results)[1], strict=True)
    names = {name: row.label for row, cells in marked for name in (row.label, row.title, cells[0])}
    return {name: lines[label] for name, label in names.items() if label in lines}


def _sources(comparison: Comparison) -> str:
    """Write what the figures mean and where they come from."""
    meanings = comparison.results["metrics"] | DEFINITIONS
    words = "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in meanings.items())
    return "".join(
        [
            folded("What the figures mean", f"<dl>{words}</dl>"),
            folded("Recipe", f"<pre>{escape(comparison.recipe.to_toml())}</pre>"),
            folded("Environment", f"<pre>{escape(comparison.environment or 'not known')}</pre>"),
        ]
    )
