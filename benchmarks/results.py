"""Measure docs/results.md anew: python -m benchmarks.results [NAME ...] (make results).

It goes on where it was interrupted. What is said of the results comes from ``fedbr.report.words``.
"""

from __future__ import annotations

import contextlib
import io
import re
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedbr.cli.progress import Progress
from fedbr.cli.tables import show
from fedbr.data import DATASETS
from fedbr.methods import METHODS
from fedbr.recipe.load import load
from fedbr.recipe.schema import Recipe
from fedbr.report import summary, words
from fedbr.report.compare import Comparison, VariantResults, compare
from fedbr.report.curves import accuracies
from fedbr.report.plots import convergence_picture
from fedbr.report.style import BANDS
from fedbr.report.tables import comparison_table
from fedbr.run.engines import OneByOne
from fedbr.run.plan import Experiment
from fedbr.run.results import Results, RunResult
from fedbr.run.runner import execute
from fedbr.util.errors import InputError

PAGE = Path("docs/results.md")
README = Path("README.md")
PICTURES = Path("docs/img")
RESULTS = Path("runs/results")


@dataclass(frozen=True)
class Section:
    """A section of the page: a shipped recipe, and what is set in it."""

    recipe: str
    overrides: Sequence[str] = ()

    def load(self) -> Recipe:
        """Load the recipe with what is set in it."""
        return load(self.recipe, self.overrides)

    @property
    def command(self) -> str:
        """The command line that trains the same."""
        return " ".join([f"fedbr run {self.recipe}", *(f"--set {o}" for o in self.overrides)])


THREE = "train.seeds=0,1,2"
FIVE, TEN = "train.seeds=0,1,2,3,4", "train.seeds=0,1,2,3,4,5,6,7,8,9"
SECTIONS = {
    "demo": Section("digits"),  # what README shows
    "digits": Section("digits", [TEN]),
    "digits-lr-0.05": Section(
        "digits", ["train.lr=0.05", "fedbr.lazy=1", "metrics.target=0.9", FIVE]
    ),
    "rotated-digits": Section("rotated-digits", [FIVE]),
    "tuning": Section("tuning"),
    "methods": Section("methods"),
    # Those below need files: $FEDBR_DATA says where.
    "rotated-mnist": Section("rotated-mnist", [THREE]),
    "clean-cifar10": Section("clean-cifar10"),
    "rotated-cifar10": Section("rotated-cifar10"),
    "cifar100": Section("cifar100"),
    "pacs": Section("pacs", [THREE]),
}


def main(names: Sequence[str]) -> None:
    """Train and write the named sections, or all."""
    for name in names or SECTIONS:
        section = SECTIONS[name]
        results = train(name, section.load())
        if results is None:
            continue
        if name == "demo":
            insert(name, f"```\n{terminal(results)}```", README)
        else:
            insert(name, write_section(name, section, results))


def train(name: str, recipe: Recipe) -> Results | None:
    """Train what is not trained yet; None if the data set's files are not there."""
    experiment = Experiment(recipe, RESULTS / name)
    try:
        with Progress() as watch:
            (results,) = execute([experiment], OneByOne(workers=None), watch=watch)
    except InputError as error:
        if not DATASETS[recipe.data.name].files:
            raise
        print(f"{name} stays as it is: {error}", file=sys.stderr)
        return None
    return results


def write_section(name: str, section: Section, results: Results) -> str:
    """Write a section, and draw its picture."""
    head = f"`{section.command}`\n\n{summary.about(results)}."
    if name == "tuning":
        return f"{head}\n\n{tuning_table(results)}"
    draw(name, results)
    comparison = compare(results)
    parts = [
        head,
        f"![accuracy by round](img/{name}.png)",
        variants_table(comparison),
        "\n".join(f"- {sentence}" for sentence in words.closing_sentences(comparison)),
        seeds_table(comparison),
    ]
    if DATASETS[results.recipe.data.name].files:
        parts.append(losses(results))
    return "\n\n".join(part for part in parts if part)


def terminal(results: Results) -> str:
    """Return what ``fedbr run`` prints in the end."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        show(compare(results))
    lines = [line.rstrip() for line in printed.getvalue().splitlines()]
    return "\n".join(lines) + "\n"


def draw(name: str, results: Results) -> None:
    """Draw accuracy by round."""
    seeds = results.seeds
    title = f"{name}: seed {seeds[0]}"
    if len(seeds) > 1:
        band = "" if len(results.labels) > BANDS else "; lowest to highest"
        title = f"{name}: {len(seeds)} seeds (mean{band})"
    PICTURES.mkdir(parents=True, exist_ok=True)
    convergence_picture(accuracies(results), PICTURES / f"{name}.png", title)


def variants_table(comparison: Comparison) -> str:
    """Write the table that the terminal shows."""
    header, rows = comparison_table(comparison)
    return markdown([header, *rows])


def seeds_table(comparison: Comparison) -> str:
    """Write the accuracy in the 5 best rounds, and the round of the target, of every seed."""
    results = comparison.results
    target = f"{results.recipe.metrics.target * 100:g} %"
    header = [f"5 best rounds % (round of {target})"]
    effective = ["effective classes"]
    for seed in results.seeds:
        header.append(f"seed {seed}")
        effective.append(_effective_classes(results, seed))
    rows = [header, effective]
    for variant in comparison.variants:
        row = [variant.label]
        for seed in results.seeds:
            row.append(_seed_cell(variant, results.run(variant.label, seed)))
        rows.append(row)
    return markdown(rows)


def _effective_classes(results: Results, seed: int) -> str:
    for run in results.runs:
        if run.seed == seed and run.record.split is not None:
            return f"{statistics.fmean(run.record.split.effective_classes):.2f}"
    return "-"


def _seed_cell(variant: VariantResults, run: RunResult | None) -> str:
    if run is None or run.accuracy.top5 is None:
        return "-"
    if run.diverged:
        return "diverged"
    reached = variant.round_of(run)
    return f"{100 * run.accuracy.top5:.1f}" + (f" ({reached})" if reached else "")


def losses(results: Results) -> str:
    """Say how the training loss falls, of the first seed."""
    seed = results.seeds[0]
    falls = []
    for label in results.labels:
        run = results.run(label, seed)
        if run is not None and run.rounds:
            falls.append(f"{label} {run.rounds[0].loss:.2f} to {run.rounds[-1].loss:.2f}")
    if not falls:
        return ""
    return f"Training loss from the first to the last round, seed {seed}: {', '.join(falls)}."


def tuning_table(results: Results) -> str:
    """Write what every value of a grid gave, the best mean in bold.

    The recipe methods must use that value; SystemExit if it does not.
    """
    used = {}  # by the recipe methods
    for variant in load("methods").compare:
        if len(variant.methods) == 1:
            used[variant.methods[0]["name"]] = variant.methods[0]
    header = ["method", "parameter"]
    header.append("5 best rounds % on held-out training samples, mean over seeds")
    rows = [header]
    for (name, key), scores in _scores(results).items():
        means = {value: statistics.fmean(of_seeds) for value, of_seeds in scores.items()}
        best = max(means, key=lambda value: means[value])
        if used[name][key] != best:
            raise SystemExit(
                f"recipe methods: {name}.{key} is {used[name][key]}, but {best} was better"
            )
        cells = []
        for value, mean in means.items():
            cell = f"{value:g}: {mean:.1f}"
            cells.append(f"**{cell}**" if value == best else cell)
        rows.append([METHODS[name].__name__, f"`{key}`", ", ".join(cells)])
    return markdown(rows)


Scores = dict[float, list[float]]  # of each value of a parameter, the score of every seed


def _scores(results: Results) -> Mapping[tuple[str, str], Scores]:
    """Collect scores by method and parameter, which a label such as "FedProx mu=0.1" names."""
    tried: dict[tuple[str, str], Scores] = {}
    for run in results.runs:
        (method,) = run.variant.methods
        key = run.label.split()[1].partition("=")[0]
        score = float("-inf")
        if not run.diverged and run.accuracy.top5 is not None:
            score = 100 * run.accuracy.top5
        tried.setdefault((method["name"], key), {}).setdefault(method[key], []).append(score)
    return tried


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """Write a table, the first row as its header."""
    head, *body = [f"| {' | '.join(row)} |" for row in rows]
    rule = "|" + "---|" * len(rows[0])
    return "\n".join([head, rule, *body])


def insert(name: str, text: str, file: Path = PAGE) -> None:
    """Put a section between its two marks in a page; without marks, at the end."""
    begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
    page = file.read_text("utf-8") if file.exists() else ""
    if begin not in page:
        page += f"\n## {name}\n\n{begin}\n{end}\n"
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    file.write_text(pattern.sub(lambda _: f"{begin}\n{text}\n{end}", page), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
