"""Put tables of the paper, at the size for two cores, into docs/results.md: python -m
benchmarks.tables [NAME ...].

Resumes. The first are trained on digits, those of FILES on the paper's data, which $FEDBR_DATA says
where to find.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from fedbr.paper import text
from fedbr.paper.outcome import Outcome, outcome
from fedbr.paper.scale import recipes
from fedbr.paper.table import load
from fedbr.report import formats
from fedbr.run import runner as campaign

from .results import insert

DIGITS = ("ablation", "main")
FILES = ("error-bars",)


def main(names: list[str]) -> None:
    place = os.environ.pop("FEDBR_DATA", None)
    for name in names or (*DIGITS, *FILES):
        if name in FILES and place:
            os.environ["FEDBR_DATA"] = place
        table, folder = load(name), Path("runs/results") / f"reproduce-{name}"
        parts = recipes(table, "cpu")
        if name in FILES and (missing := next((scaled.why for scaled in parts if scaled.why), "")):
            print(f"{name} stays as it is: {missing}", file=sys.stderr)
            continue
        plan = [(scaled.recipe, folder / scaled.part.slug) for scaled in parts]
        with campaign.Crew() as crew:
            campaign.conduct(plan, crew)
        found = [
            outcome(table, i, s, path)
            for i, (s, (_, path)) in enumerate(zip(parts, plan, strict=True))
        ]
        head = f"`fedbr reproduce {name}`: {table.place}, {table.title}."
        sections = [section(each, table.base) for each in found]
        insert(f"reproduce-{name}", "\n\n".join([head, *sections, text.note(table.base, found)]))


def section(found: Outcome, base: str) -> str:
    """Write one data set of a table: what was scaled, the figures, and the orders that the text
    claims.
    """
    scaled = found.scaled
    about = f"**{scaled.part.name}**, {len(scaled.recipe.train.seeds)} seeds. Scaled: {'; '.join(scaled.changes)}."
    orders = "\n".join(f"- {formats.plain(order)}" for order in found.orders)
    return "\n\n".join(
        [about, formats.markdown(text.cells(found, base)).strip(), *([orders] if orders else [])]
    )


if __name__ == "__main__":
    main(sys.argv[1:])
