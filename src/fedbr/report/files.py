"""What a paper needs, beside the page: figures, and tables as CSV, LaTeX and Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from ..util.errors import InputError
from ..util.files import write
from . import local_models, tables, verdicts
from .comparison import Comparison, read
from .costs import cost_table
from .curves import UNITS, curve, spent
from .formats import Table, as_csv, latex, markdown, plain
from .plots import column_pictures

KINDS = ("png", "svg", "pdf")


def beside(page: Path) -> Path:
    """Return the folder that goes with a page: its name without the ending."""
    return page.with_suffix("") if page.suffix else page.with_name(f"{page.name}-files")


def export(comparisons: Sequence[Comparison], folder: Path) -> list[Path]:
    """Write all files into a folder, those of several comparisons into one each below it; return
    what was written.
    """
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, content in _files(comparisons, folder):
            path.parent.mkdir(exist_ok=True)
            write(path, content)
            written.append(path)
    except OSError as error:
        raise InputError(f"{folder}: cannot write there ({error.strerror})") from error
    return written


def write_csv(folder: Path) -> None:
    """Write the runs and the rounds of a result folder as CSV into it."""
    (comparison,) = read([folder])
    write(folder / "runs.csv", as_csv(_runs(comparison)))
    write(folder / "rounds.csv", as_csv(_rounds(comparison)))


def _files(comparisons: Sequence[Comparison], folder: Path) -> Iterator[tuple[Path, str | bytes]]:
    yield (
        folder / "runs.csv",
        as_csv(row for comparison in comparisons for row in _runs(comparison)),
    )
    yield (
        folder / "rounds.csv",
        as_csv(row for comparison in comparisons for row in _rounds(comparison)),
    )
    for i, comparison in enumerate(comparisons):
        name = re.sub(r"[^\w.+-]", "_", comparison.name)
        own = folder if len(comparisons) == 1 else folder / f"{i + 1}-{name}"
        mark = "" if len(comparisons) == 1 else f"{name}-"
        for file, content in chain[tuple[str, str | bytes]](
            _tables(comparison, mark), _pictures(comparison)
        ):
            yield own / file, content


def _pictures(comparison: Comparison) -> Iterator[tuple[str, bytes]]:
    found = {label: curve(runs) for label in comparison.labels if (runs := comparison.runs(label))}
    drawn = {label: points for label, points in found.items() if points.band.rounds}
    for unit in UNITS if drawn else ():
        for kind, content in column_pictures(drawn, unit, KINDS):
            yield f"accuracy-by-{unit}.{kind}", content


def _tables(comparison: Comparison, mark: str = "") -> Iterator[tuple[str, str]]:
    results = comparison.results
    found = tables.rows(results)
    if not found:
        return
    about, base = tables.about(results), tables.base_of(found).label
    notes = " ".join(text for text in (tables.progress(results), tables.dagger(found)) if text)
    paired = f"Points above or below {base}, paired by seed, with 95 % confidence intervals (Student's t); "
    paired += "undecided: the interval contains 0."
    written: dict[str, tuple[Table, str]] = {
        "comparison": (tables.compare(results), f"{about}. {notes}".strip())
    }
    if len(found) > 1:
        written["paired"] = (
            verdicts.paired_table(results),
            " ".join([paired, *verdicts.left_out(results)]),
        )
    written["cost"] = cost_table(comparison), f"Cost; × is relative to {base}."
    for name, (table, caption) in written.items():
        yield f"{name}.tex", latex(table, caption, mark + name)
    words = "\n".join(f"{plain(text)}\n" for text in verdicts.headline(results))
    captioned = (f"\n{plain(caption)}\n\n{markdown(table)}" for table, caption in written.values())
    yield "tables.md", words + "".join(captioned)


def _runs(comparison: Comparison) -> Iterator[dict[str, Any]]:
    """Give a line for every run."""
    for run in comparison.results["runs"]:
        split = run["split"]
        yield {
            "folder": comparison.name,
            **{
                key: run.get(key)
                for key in ("label", "seed", "rounds", "finished", "diverged", "tuned")
            },
            **{f"accuracy_{key}": value for key, value in run["accuracy"].items()},
            **{key: run[key] for key in ("accuracy_local",) if key in run},
            **{f"rounds_to_{key}": value for key, value in run["rounds_to"].items()},
            **{f"bytes_{key}": value for key, value in run["bytes"].items()},
            **{f"seconds_{key}": value for key, value in run["seconds"].items()},
            "clients": len(split["sizes"]),
            "samples": sum(split["sizes"]),
            "effective_classes": sum(split["effective_classes"])
            / max(1, len(split["effective_classes"])),
            "split": split["hash"],
            **{f"model_{key}": value for key, value in run["model"].items()},
        }


def _rounds(comparison: Comparison) -> Iterator[dict[str, Any]]:
    """Give a line for every round of every run, with what was spent up to it."""
    kept = (
        "accuracy",
        "accuracy_worst",
        "loss",
        "bytes_up",
        "bytes_down",
        "seconds_train",
        "seconds_evaluate",
    )
    for (label, seed), lines in comparison.lines.items():
        so_far = spent(lines)
        for line in lines:
            yield {
                "folder": comparison.name,
                "label": label,
                "seed": seed,
                "round": line["round"],
                **{key: line[key] for key in kept},
                **{
                    key if key[:9] == "accuracy_" else f"bias_{key}": v
                    for key, v in local_models.flat(line).items()
                },
                "seconds_so_far": so_far["seconds"][line["round"]],
                "megabytes_so_far": so_far["megabytes"][line["round"]],
            }
