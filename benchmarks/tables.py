"""Put tables of the paper, at the size for two cores, into docs/results.md.

python -m benchmarks.tables [NAME ...] goes on where it was interrupted. The first are trained on
digits, those of FILES on the paper's data, which $FEDBR_DATA says where to find.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from fedbr.cli.progress import Progress
from fedbr.paper import text
from fedbr.paper.outcome import Outcome, make_outcome
from fedbr.paper.scale import Scaled, recipes
from fedbr.paper.table import PaperTable, load
from fedbr.report import formats
from fedbr.run.engines import WholeRuns
from fedbr.run.plan import Experiment
from fedbr.run.processes import Processes
from fedbr.run.runner import execute

from .results import RESULTS, insert

DIGITS = ("ablation", "main")
FILES = ("error-bars",)


def main(names: Sequence[str]) -> None:
    """Train and write the named tables, or all."""
    files = os.environ.pop("FEDBR_DATA", None)
    for name in names or (*DIGITS, *FILES):
        if name in FILES and files:
            os.environ["FEDBR_DATA"] = files
        table = load(name)
        parts = recipes(table, "cpu")
        missing = [scaled.why for scaled in parts if scaled.why]
        if name in FILES and missing:
            print(f"{name} stays as it is: {missing[0]}", file=sys.stderr)
            continue
        outcomes = train(table, parts)
        head = f"`fedbr reproduce {name}`: {table.place}, {table.title}."
        sections = [write_section(part, table.base) for part in outcomes]
        note = text.note(table.base, outcomes)
        insert(f"reproduce-{name}", "\n\n".join([head, *sections, note]))


def train(table: PaperTable, parts: Sequence[Scaled]) -> list[Outcome]:
    """Train what is not trained yet, and put it beside the paper's figures."""
    folder = RESULTS / f"reproduce-{table.name}"
    plan = [Experiment(scaled.recipe, folder / scaled.part.slug) for scaled in parts]
    with Progress() as watch, Processes() as processes:
        results = execute(plan, WholeRuns(processes), watch=watch)
    outcomes = []
    for i, (scaled, part) in enumerate(zip(parts, results, strict=True)):
        outcomes.append(make_outcome(table, i, scaled, part))
    return outcomes


def write_section(part: Outcome, baseline: str) -> str:
    """Write one data set of a table: what was scaled, the figures, and the text's claims."""
    scaled = part.scaled
    seeds, changes = len(scaled.recipe.train.seeds), "; ".join(scaled.changes)
    paragraphs = [
        f"**{scaled.part.name}**, {seeds} seeds. Scaled: {changes}.",
        formats.markdown(text.cells(part, baseline)).strip(),
    ]
    if part.claims:
        paragraphs.append("\n".join(f"- {formats.plain(str(claim))}" for claim in part.claims))
    return "\n\n".join(paragraphs)


if __name__ == "__main__":
    main(sys.argv[1:])
