"""Measure docs/results.md anew: python -m benchmarks.results [NAME ...] (make results; resumes when interrupted)."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from fedbr import config, experiment
from fedbr.results import plots, tables
from fedbr.results.report import curves
from fedbr.results.store import ResultFolder

PAGE = Path("docs/results.md")
PICTURES = Path("docs/img")
FIVE, TEN = "train.seeds=0,1,2,3,4", "train.seeds=0,1,2,3,4,5,6,7,8,9"
EXPERIMENTS = {
    "digits": ("digits", [TEN]),
    "digits-lr-0.05": ("digits", ["train.lr=0.05", "metrics.target=0.9", FIVE]),
    "rotated-digits": ("rotated-digits", [FIVE]),
}


def main(names: list[str]) -> None:
    for name in names or EXPERIMENTS:
        recipe, overrides = EXPERIMENTS[name]
        chosen = config.load(recipe, overrides)
        folder = Path("runs/results") / name
        results = experiment.run(chosen, folder, workers=None, watch=progress)
        PICTURES.mkdir(parents=True, exist_ok=True)
        seeds = len(chosen.train.seeds)
        title = f"{name}: {chosen.data.clients} clients, {seeds} seeds (mean; lowest to highest)"
        plots.convergence_picture(curves(ResultFolder.read(folder)), PICTURES / f"{name}.png", title)
        insert(name, section(name, recipe, overrides, results))


def progress(label: str, seed: int, line: dict[str, Any] | None) -> None:
    if line and line["round"] % 10 == 0:
        print(f"{label} seed {seed} round {line['round']}: {line['accuracy']:.3f}", flush=True)


def section(name: str, recipe: str, overrides: list[str], results: dict[str, Any]) -> str:
    """Write one experiment as Markdown: command, picture, comparison, and every seed."""
    command = f"fedbr run {recipe} " + " ".join(f"--set {o}" for o in overrides)
    header, cells = tables.compare(results)
    seeds = results["recipe"]["train"]["seeds"]
    target = str(results["recipe"]["metrics"]["target"])
    by_seed = [["seed", "effective classes"]]
    for label in dict.fromkeys(run["label"] for run in results["runs"]):
        by_seed[0] += [f"{label} top-5 %", f"{label} rounds to {float(target) * 100:g} %"]
    for seed in seeds:
        runs = [run for run in results["runs"] if run["seed"] == seed]
        effective = runs[0]["split"]["effective_classes"]
        row = [str(seed), f"{sum(effective) / len(effective):.2f}"]
        for run in runs:
            row += [f"{run['accuracy']['top5'] * 100:.1f}", str(run["rounds_to"][target] or "-")]
        by_seed.append(row)
    words = "\n".join(f"- {s}" for s in tables.sentences(results))
    return (
        f"`{command}`\n\n{tables.about(results)}.\n\n![accuracy by round](img/{name}.png)\n\n"
        f"{markdown([header, *cells])}\n\n{words}\n\n{markdown(by_seed)}"
    )


def markdown(rows: list[list[str]]) -> str:
    head, *body = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([head, "|" + "---|" * len(rows[0]), *body])


def insert(name: str, text: str) -> None:
    """Put a section between its two marks in the page."""
    begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
    page = PAGE.read_text("utf-8") if PAGE.exists() else ""
    if begin not in page:
        page += f"\n## {name}\n\n{begin}\n{end}\n"
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    PAGE.write_text(pattern.sub(lambda _: f"{begin}\n{text}\n{end}", page), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
