"""One self-contained HTML page from result folders: no network, text escaped, finished or not."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from ..core.disk import write
from ..core.errors import InputError
from . import plots, tables
from .store import ResultFolder

STYLE = """
:root { color-scheme: light dark; --line: #8884; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.5rem; } small { font-weight: normal; opacity: .7; } h2 { font-size: 1.15rem; margin-top: 2rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; }
th, td { padding: .3rem .7rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; } dt { font-weight: 600; } dd { margin: 0 0 .5rem 1rem; }
pre { overflow-x: auto; padding: .7rem; border: 1px solid var(--line); border-radius: .4rem; font-size: .85rem; }
.lead { font-size: 1.1rem; } .plot { background: #fff; border-radius: .4rem; }
"""


def write_report(folders: Sequence[Path], out: Path | None = None) -> Path:
    """Write the page of one or several result folders; return where it is."""
    found = [ResultFolder.read(path) for path in folders]
    target = out or folders[0] / "report.html"
    body = "".join(_section(folder, first=i == 0) for i, folder in enumerate(found))
    title = escape(", ".join(folder.recipe.name for folder in found))
    page = (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title} - fedbr</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{STYLE}</style></head>'
        f"<body>{body}</body></html>\n"
    )
    try:
        write(target, page)
    except OSError as error:
        raise InputError(f"{target}: cannot write there ({error.strerror})") from error
    return target


def _section(folder: ResultFolder, first: bool) -> str:
    results = folder.results()
    if not results["runs"]:
        return f"<h1>{escape(folder.recipe.name)}</h1><p>No round is finished yet.</p>"
    header, cells = tables.compare(results)
    several = any(len(row.runs) > 1 for row in tables.rows(results))
    lead = "".join(f'<p class="lead">{escape(s)}</p>' for s in tables.sentences(results))
    environment = folder.path / "environment.json"
    return "\n".join(
        [
            f"<h1>{escape(folder.recipe.name)} <small>{escape(folder.path.name)}</small></h1>",
            lead,
            f"<p>{escape(tables.about(results))}</p>",
            f"<p><strong>{escape(tables.progress(results))}</strong></p>" if tables.progress(results) else "",
            f'<div class="plot">{plots.convergence_html(curves(folder), with_script=first)}</div>',
            "<p>Line: mean over seeds. Band: from the lowest to the highest seed.</p>" if several else "",
            "<h2>Comparison</h2>",
            f'<div class="wide">{_table(header, cells)}</div>',
            f"<h2>What the figures mean</h2>{_definitions(results['metrics'])}",
            f"<h2>Recipe</h2><pre>{escape(folder.recipe.to_toml())}</pre>",
            f"<h2>Environment</h2><pre>{escape(environment.read_text('utf-8') if environment.exists() else '')}</pre>",
        ]
    )


def curves(folder: ResultFolder) -> dict[str, list[dict[int, float]]]:
    """Return, for every label, the accuracy by round of every seed."""
    return {
        stack.label: [
            {line["round"]: line["accuracy"] for line in lines if line["accuracy"] is not None}
            for seed in folder.recipe.train.seeds
            if (lines := folder.run(stack, seed).lines())
        ]
        for stack in folder.recipe.compare
    }


def _table(header: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col">{escape(h)}</th>' for h in header)
    rows = "".join("<tr>" + "".join(f"<td>{escape(c)}</td>" for c in row) + "</tr>" for row in cells)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _definitions(metrics: dict[str, Any]) -> str:
    return "<dl>" + "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in metrics.items()) + "</dl>"
