"""Measure docs/results.md anew: python -m benchmarks.results [NAME ...] (make results; resumes when
interrupted).
"""

from __future__ import annotations

import re
import statistics
import sys
from pathlib import Path
from typing import Any

from fedbr.data import DATASETS
from fedbr.methods import METHODS
from fedbr.recipe import load as config
from fedbr.recipe.schema import Recipe
from fedbr.report import plots, tables
from fedbr.report.write import curves
from fedbr.run import loop as experiment
from fedbr.run.folder import ResultFolder
from fedbr.util.errors import InputError

PAGE = Path("docs/results.md")
PICTURES = Path("docs/img")
THREE = "train.seeds=0,1,2"
FIVE, TEN = "train.seeds=0,1,2,3,4", "train.seeds=0,1,2,3,4,5,6,7,8,9"
EXPERIMENTS: dict[str, tuple[str, list[str]]] = {
    "digits": ("digits", [TEN]),
    "digits-lr-0.05": ("digits", ["train.lr=0.05", "fedbr.lazy=1", "metrics.target=0.9", FIVE]),
    "rotated-digits": ("rotated-digits", [FIVE]),
    "tuning": ("tuning", []),
    "methods": ("methods", []),
    # Those below need files: $FEDBR_DATA says where.
    "rotated-mnist": ("rotated-mnist", [THREE]),
    "clean-cifar10": ("clean-cifar10", []),
    "rotated-cifar10": ("rotated-cifar10", []),
    "cifar100": ("cifar100", []),
    "pacs": ("pacs", [THREE]),
}


def main(names: list[str]) -> None:
    for name in names or EXPERIMENTS:
        recipe, overrides = EXPERIMENTS[name]
        chosen = config.load(recipe, overrides)
        folder = Path("runs/results") / name
        try:
            results = experiment.run(chosen, folder, workers=None, watch=progress)
        except InputError as error:
            if not DATASETS[chosen.data.name].files:
                raise
            print(f"{name} stays as it is: {error}", file=sys.stderr)
            continue
        command = " ".join([f"fedbr run {recipe}", *(f"--set {o}" for o in overrides)])
        head = f"`{command}`\n\n{tables.about(results)}.\n\n"
        if name == "tuning":
            insert(name, head + grids(results))
            continue
        PICTURES.mkdir(parents=True, exist_ok=True)
        seeds = len(chosen.train.seeds)
        band = "" if len(chosen.compare) > len(plots.COLORS) else "; lowest to highest"
        title = (
            f"{name}: {seeds} seeds (mean{band})"
            if seeds > 1
            else f"{name}: seed {chosen.train.seeds[0]}"
        )
        plots.convergence_picture(
            curves(ResultFolder.read(folder)), PICTURES / f"{name}.png", title
        )
        text = f"{head}![accuracy by round](img/{name}.png)\n\n{comparison(results)}"
        insert(name, text + (losses(folder, chosen) if DATASETS[chosen.data.name].files else ""))


def progress(label: str, seed: int, line: dict[str, Any] | None) -> None:
    if line and line["round"] % 10 == 0:
        print(f"{label} seed {seed} round {line['round']}: {line['accuracy']:.3f}", flush=True)


def comparison(results: dict[str, Any]) -> str:
    """Write the comparison, in a table and in words, and every seed."""
    header, cells = tables.compare(results)
    target = results["recipe"]["metrics"]["target"]
    words = "\n".join(f"- {s}" for s in tables.sentences(results))
    seeds = results["recipe"]["train"]["seeds"]
    splits = {run["seed"]: run["split"]["effective_classes"] for run in results["runs"]}
    rows = [
        [f"5 best rounds % (round of {target * 100:g} %)", *(f"seed {s}" for s in seeds)],
        ["effective classes", *(f"{statistics.fmean(splits[s]):.2f}" for s in seeds)],
    ]
    for row in tables.rows(results):
        by_seed = {run["seed"]: run for run in row.runs}
        rows.append([row.label, *(_seed(by_seed.get(s), str(target)) for s in seeds)])
    return f"{markdown([header, *cells])}\n\n{words}\n\n{markdown(rows)}"


def losses(folder: Path, recipe: Recipe) -> str:
    """Write how the training loss falls, of the first seed."""
    seed, results = recipe.train.seeds[0], ResultFolder(folder, recipe)
    found = []
    for variant in recipe.compare:
        lines = results.run(variant, seed).lines()
        found.append(f"{variant.label} {lines[0]['loss']:.2f} to {lines[-1]['loss']:.2f}")
    return f"\n\nTraining loss from the first to the last round, seed {seed}: {', '.join(found)}."


def _seed(run: dict[str, Any] | None, target: str) -> str:
    if run is None or run["accuracy"]["top5"] is None:
        return "-"
    reached = run["rounds_to"][target]
    return f"{run['accuracy']['top5'] * 100:.1f}" + (f" ({reached})" if reached else "")


def grids(results: dict[str, Any]) -> str:
    """Write what every value of a grid gave; the best mean is in bold and must be what the recipe
    methods uses.
    """
    used = {
        m["name"]: m
        for variant in config.load("methods").compare
        for m in variant.methods
        if len(variant.methods) == 1
    }
    tried: dict[tuple[str, str], dict[float, list[float]]] = {}
    for run in results["runs"]:
        (method,) = run["methods"]
        key = run["label"].split()[1].partition("=")[0]
        score = float("-inf") if run["diverged"] else 100 * run["accuracy"]["top5"]
        tried.setdefault((method["name"], key), {}).setdefault(method[key], []).append(score)
    rows = [
        ["method", "parameter", "5 best rounds % on held-out training samples, mean over seeds"]
    ]
    for (name, key), scores in tried.items():
        means = {value: statistics.fmean(found) for value, found in scores.items()}
        best = max(means, key=lambda value: means[value])
        if used[name][key] != best:
            raise SystemExit(
                f"recipes/methods.toml: {name}.{key} is {used[name][key]}, but {best} won"
            )
        cells = (
            f"**{v:g}: {mean:.1f}**" if v == best else f"{v:g}: {mean:.1f}"
            for v, mean in means.items()
        )
        rows.append([METHODS[name].__name__, f"`{key}`", ", ".join(cells)])
    return markdown(rows)


def markdown(rows: list[list[str]]) -> str:
    head, *body = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([head, "|" + "---|" * len(rows[0]), *body])


def insert(name: str, text: str, file: Path = PAGE) -> None:
    """Put a section between its two marks in a page."""
    begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
    page = file.read_text("utf-8") if file.exists() else ""
    if begin not in page:
        page += f"\n## {name}\n\n{begin}\n{end}\n"
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    file.write_text(pattern.sub(lambda _: f"{begin}\n{text}\n{end}", page), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
