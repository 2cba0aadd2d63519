"""One self-contained HTML page from result folders: no network, text escaped, finished or not."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path

from ..run.diagnosis import SavedDiagnosis
from ..util.errors import InputError
from ..util.files import write
from . import diagnosis, local_models, settings, summary, tables, words
from .client_figure import clients_figure
from .figures import curves_figure
from .files import beside
from .page import Figures, embedded, folded, folders_mark, page, paragraphs, sample, table
from .read import ReportFolder, read
from .style import look
from .together import together

DEFINITIONS = {
    "±": "sample standard deviation over seeds",
    "paired difference": "the variant's value minus that of FedAvg (or of the first variant), "
    "seed by seed: both have the same split and the same initial weights on a seed; mean over the "
    "seeds on which both have finished",
    "95 % interval": "confidence interval of that mean by Student's t; one seed has none, and with "
    "few seeds it is wide. It is not corrected for the number of variants",
    "verdict": "ahead or behind if the interval does not contain 0, otherwise undecided",
    "MB and s to the target": "what all clients sent and received, and the wall time of training, "
    "up to the round in which the target was reached; mean over the seeds that reached it",
}
MAKER = "Made by fedbr report."
FOOTER = (
    f"<footer>{MAKER} Figures, CSV, LaTeX and Markdown lie in the folder beside this page.</footer>"
)
PAIRED = (
    "Points above or below {base}, paired by seed. Undecided: the interval contains 0. "
    "The intervals are not corrected for their number."
)
COST = "× is relative to {base}. ± is the standard deviation over seeds."
LONGEST = 80  # characters of a page's name


def write_report(paths: Sequence[Path], out: Path | None = None) -> Path:
    """Write the page of one or several result folders.

    Args:
        paths: the folders, finished or not.
        out: the page; None: ``default_place``.

    Returns:
        Where the page is.

    Raises:
        InputError: a folder has no results, or the page cannot be written there.
    """
    return write_page(read(paths), out or default_place(paths))


def default_place(paths: Sequence[Path]) -> Path:
    """Return where the page goes: into its folder or, of several folders, beside the first.

    >>> default_place([Path("runs/a")]).as_posix()
    'runs/a/report.html'
    >>> default_place([Path("runs/a"), Path("runs/b")]).as_posix()
    'runs/a+b.html'
    """
    if len(paths) == 1:
        return paths[0] / "report.html"
    name = "+".join(re.sub(r"[^\w.+-]", "_", path.resolve().name) for path in paths)
    if len(name) > LONGEST:
        name = f"{name[:LONGEST]}+"
    first = paths[0]
    if first.name in ("", ".."):  # of which parent is not the folder above
        first = first.resolve()
    return first.parent / f"{name}.html"


def check_place(page: Path, paths: Sequence[Path] | None = None) -> None:
    """Refuse a place where there is something else than an earlier report.

    Args:
        page: where the page is to go.
        paths: the folders that it shows; an earlier report of others is refused, too.

    Raises:
        InputError: the page, or the folder beside it, would overwrite something.
    """
    if page.suffix.lower() != ".html" or page.is_dir():
        raise InputError(f"--out {page}: expected one file, NAME.html")
    folder = beside(page)
    earlier, names = None, set()
    try:
        if page.exists():
            earlier = page.read_text("utf-8", errors="replace")
        if folder.exists():
            names = {path.name for path in folder.iterdir()}
    except OSError as error:
        raise InputError(f"--out {page}: {error.filename or page}: {error.strerror}") from error
    if earlier is not None and MAKER not in earlier:
        raise InputError(
            f"--out {page}: this file was not created by fedbr report; choose another name"
        )
    if earlier is not None and paths and folders_mark(_relative_to(page, paths)) not in earlier:
        raise InputError(f"{page}: is the report of other folders; choose another name with --out")
    if names and ("rounds.csv" not in names or "results.json" in names):
        raise InputError(
            f"--out {page}: figures and tables go into {folder}, which was not created by fedbr "
            "report; choose another name"
        )


def write_page(
    folders: Sequence[ReportFolder],
    target: Path,
    lead: str = "",
) -> Path:
    """Write the page of folders that have been read.

    Args:
        folders: what the page shows, a section for each.
        target: where the page goes.
        lead: HTML that comes first, instead of the comparison of several folders.

    Returns:
        Where the page is.

    Raises:
        InputError: it cannot be written there.
    """
    figures = Figures()
    parts = []
    if lead:
        parts.append(lead)
    elif len(folders) > 1:
        parts.append(together(folders, figures))
    for i, folder in enumerate(folders):
        parts.append(_write_section(folder, figures, f"folder-{i}"))
    title = ", ".join(folder.recipe.name for folder in folders)
    paths = [folder.results.path for folder in folders if folder.results.path is not None]
    body = "\n".join([*parts, FOOTER])
    html = page(f"{title} - fedbr", body, figures, _relative_to(target, paths))
    try:
        write(target, html)
    except OSError as error:
        raise InputError(f"{target}: cannot write there ({error.strerror})") from error
    return target


def _relative_to(page: Path, folders: Sequence[Path]) -> list[str]:
    """Return the paths of folders relative to the page: they may be moved together."""
    here = page.resolve().parent
    return [Path(os.path.relpath(folder.resolve(), here)).as_posix() for folder in folders]


def _write_section(folder: ReportFolder, figures: Figures, anchor: str) -> str:
    """Write what a page says of one folder."""
    comparison, recipe = folder.comparison, folder.recipe
    parts = [f"<h1>{escape(recipe.name)} <small>{escape(folder.name)}</small></h1>"]
    if folder.begun:
        warnings = [summary.unfinished(folder.results), *summary.divergences(comparison)]
        parts += [
            paragraphs(words.headline(comparison), "lead"),
            paragraphs([summary.about(folder.results)], "about"),
            paragraphs(warnings, "warn"),
            curves_figure([folder], figures),
            _write_tables(folder),
            clients_figure(folder, figures),
            _write_local_models(folder),
            _write_diagnosis(folder.diagnosis),
        ]
    else:
        parts.append(paragraphs(["No round is finished yet."], "lead"))
    variants = table(*settings.list_variants(recipe), _line_samples(folder), words=True)
    parts += [f"<h2>Variants</h2>{variants}", _write_sources(folder)]
    return f'<section id="{anchor}">' + "\n".join(part for part in parts if part) + "</section>"


def _write_tables(folder: ReportFolder) -> str:
    """Write the comparison, the paired differences and the costs."""
    comparison, samples = folder.comparison, _line_samples(folder)
    assert comparison.baseline is not None
    base = comparison.baseline.label
    dagger = words.DAGGER if words.has_dagger(comparison) else ""
    parts = [
        "<h2>Comparison</h2>",
        table(*tables.comparison_table(comparison), samples),
        paragraphs([dagger], "note"),
    ]
    if comparison.pairs:
        parts += [
            "<h2>Paired comparison</h2>",
            table(*tables.paired_table(comparison), samples),
            paragraphs([PAIRED.format(base=base), *words.missing_seeds(comparison)], "note"),
        ]
    parts += [
        "<h2>Cost</h2>",
        table(*tables.cost_table(comparison), samples),
        paragraphs([COST.format(base=base)], "note"),
    ]
    return "".join(parts)


def _write_local_models(folder: ReportFolder) -> str:
    """Show the clients' models beside the aggregated one, where they were looked at."""
    rounds = local_models.rounds_with_bias(folder.results)
    if not rounds:
        return ""
    html = table(*local_models.table(rounds), _line_samples(folder))
    return f"<h2>Local models</h2>{html}{paragraphs([local_models.NOTE], 'note')}"


def _write_diagnosis(saved: SavedDiagnosis | None) -> str:
    """Show what fedbr diagnose measured; its pictures become part of the page."""
    if saved is None:
        return ""
    header, cells = diagnosis.table(saved.record)
    rows = []
    for first, *rest in cells:  # HTML would drop the spaces that set rows in
        rows.append([first.replace("  ", "\N{EM SPACE}"), *rest])
    pictures = []
    for picture in saved.pictures:
        caption = escape(picture.caption)
        image = f'<img alt="{caption}" src="{embedded(picture.path.read_bytes())}">'
        pictures.append(f"<figure>{image}<figcaption>{caption}.</figcaption></figure>")
    parts = [
        "<h2>Bias of local learning</h2>",
        paragraphs([f"{diagnosis.about(saved.record)}."], "note"),
        paragraphs(diagnosis.sentences(saved.record)),
        table(header, rows),
        *pictures,
    ]
    return "".join(parts)


def _line_samples(folder: ReportFolder) -> dict[str, str]:
    """Return a piece of every variant's curve, by all that tables call the variant."""
    samples = {}
    for i, variant in enumerate(folder.begun):
        line = sample(*look(i))
        for name in (variant.label, variant.title, tables.name_in_table(variant)):
            samples[name] = line
    return samples


def _write_sources(folder: ReportFolder) -> str:
    """Write what the values mean and where they come from."""
    meanings = []
    for name, meaning in {**folder.results.metrics, **DEFINITIONS}.items():
        meanings.append(f"<dt>{escape(name)}</dt><dd>{escape(meaning)}</dd>")
    recipe = folder.recipe.to_toml()
    environment = folder.environment or "not known"
    return (
        folded("What the values mean", f"<dl>{''.join(meanings)}</dl>")
        + folded("Recipe", f"<pre>{escape(recipe)}</pre>")
        + folded("Environment", f"<pre>{escape(environment)}</pre>")
    )
