"""Write docs/lazy-fedbr.md anew: python -m benchmarks.lazy (trains what is missing; resumes when
interrupted).

Rounds come from the recipes lazy-digits and lazy-rotated-mnist; the price of a round is measured
apart from them, all variants in turn, so that a machine that slows down for a while slows down all of
them.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from fedbr import bench
from fedbr.recipe import load as config
from fedbr.recipe.schema import Recipe, Variant
from fedbr.report.tables import Figure
from fedbr.run import loop as experiment
from fedbr.run.folder import ResultFolder
from fedbr.util.errors import InputError

from .results import insert, markdown, progress

PAGE = Path("docs/lazy-fedbr.md")
PICTURES = Path("docs/img")
RESULTS = Path("runs/results")
MNIST = replace(bench.DIGITS_CNN, shape=(1, 9, 9))
LARGE = ["train.lr=0.1", "train.rounds=40", "train.seeds=0,1", "metrics.target=0.4"]


class Study(NamedTuple):
    """A recipe, what is set in it, and the work whose price is measured."""

    recipe: str
    overrides: list[str]
    work: bench.Workload


STUDIES = {
    "lazy-digits": Study("lazy-digits", [], bench.DIGITS_CNN),
    "lazy-rotated-mnist": Study("lazy-rotated-mnist", [], MNIST),
    "lazy-rotated-mnist-lr-0.1": Study("lazy-rotated-mnist", LARGE, MNIST),
}
REPEATS = 5
Curve = dict[int, float]  # round -> accuracy


def main(names: list[str]) -> None:
    prices: dict[tuple[int, ...], dict[str, Price]] = {}
    for name in names or STUDIES:
        shipped, overrides, work = STUDIES[name]
        recipe, folder = config.load(shipped, overrides), RESULTS / name
        try:
            results = experiment.run(recipe, folder, workers=None, watch=progress)
        except InputError as error:
            print(f"{name} stays as it is: {error}", file=sys.stderr)
            continue
        if work.shape not in prices:
            prices[work.shape] = price_list(work, recipe)
        found = prices[work.shape]
        curves = {
            s.label: [_curve(folder, recipe, s, seed) for seed in recipe.train.seeds]
            for s in recipe.compare
        }
        picture(name, curves, found)
        command = " ".join([f"fedbr run {shipped}", *(f"--set {o}" for o in overrides)])
        about = f"{len(recipe.train.seeds)} seeds, {recipe.train.rounds} rounds, lr {recipe.train.lr:g} (`{command}`)"
        insert(
            name,
            f"{about}.\n\n![accuracy by cost](img/{name}.png)\n\n{table(results, curves, found)}",
            PAGE,
        )


class Price(NamedTuple):
    """What a round costs."""

    ratio: float  # FedAvg = 1
    seconds: float  # of one core


def price_list(work: bench.Workload, recipe: Recipe) -> dict[str, Price]:
    """Measure the CPU time of a round of every variant."""
    variants = [(variant.label, variant.build()) for variant in recipe.compare]
    _, ratios = bench.measure(replace(work, whole=True, rounds=2), REPEATS, variants)
    return {ratio.name: Price(ratio.beside(ratios[0]), ratio.seconds) for ratio in ratios}


def _curve(folder: Path, recipe: Recipe, variant: Variant, seed: int) -> Curve:
    lines = ResultFolder(folder, recipe).run(variant, seed).lines()
    return {line["round"]: line["accuracy"] for line in lines if line["accuracy"] is not None}


def reached(curve: Curve, goal: float) -> int | None:
    """Return the first round at or above a goal."""
    return next((round for round, accuracy in curve.items() if accuracy >= goal), None)


def table(
    results: dict[str, Any], curves: Mapping[str, list[Curve]], prices: Mapping[str, Price]
) -> str:
    goals = [list(curve.values())[-1] for curve in curves["FedAvg"]]
    base = [reached(curve, goal) for curve, goal in zip(curves["FedAvg"], goals, strict=True)]
    target = results["recipe"]["metrics"]["target"]
    rows = [
        [
            "",
            "5 best rounds %",
            "price of a round",
            "rounds to FedAvg's last accuracy",
            "time to it (FedAvg = 1)",
        ]
    ]
    rows[0] += [f"rounds to {100 * target:g} %", "CPU seconds to it"]
    for label, seeds in curves.items():
        top5 = Figure.of(
            run["accuracy"]["top5"] for run in results["runs"] if run["label"] == label
        )
        found = [reached(curve, goal) for curve, goal in zip(seeds, goals, strict=True)]
        times = [
            prices[label].ratio * r / b
            for r, b in zip(found, base, strict=True)
            if r is not None and b is not None
        ]
        arrived = [reached(curve, target) for curve in seeds]
        there = [r for r in arrived if r is not None]
        spread = f" ({min(times):.2f} to {max(times):.2f})" if len(times) > 1 else ""
        rows.append(
            [
                label,
                top5.show(1, 100) if top5 else "-",
                f"{prices[label].ratio:.2f}",
                _mean_round(found),
                f"{statistics.fmean(times):.2f}{spread}" if times else "-",
                _mean_round(arrived),
                f"{statistics.fmean(there) * prices[label].seconds:.0f}" if there else "-",
            ]
        )
    return markdown(rows)


def _mean_round(found: list[int | None]) -> str:
    there = [r for r in found if r is not None]
    missed = "" if len(there) == len(found) else f" ({len(there)} of {len(found)} seeds)"
    return f"{statistics.fmean(there):.1f}{missed}" if there else "-"


def picture(name: str, curves: Mapping[str, list[Curve]], prices: Mapping[str, Price]) -> None:
    """Draw accuracy by what it cost, in rounds of FedAvg."""
    from matplotlib.figure import Figure as Picture

    figure = Picture(figsize=(8, 4), dpi=150, layout="constrained")
    axes = figure.subplots()
    colors = (
        "#000000",
        "#0072b2",
        "#009e73",
        "#b8860b",
        "#d55e00",
        "#cc79a7",
        "#56b4e9",
        "#8c564b",
    )
    for color, (label, seeds) in zip(colors, curves.items(), strict=True):
        rounds = list(seeds[0])
        mean = [100 * statistics.fmean(seed[r] for seed in seeds) for r in rounds]
        axes.plot(
            [r * prices[label].ratio for r in rounds], mean, color=color, label=label, linewidth=2
        )
    last = max(curves["FedAvg"][0])
    axes.set(
        xlabel="cost, in rounds of FedAvg",
        ylabel="accuracy, %, mean over seeds",
        xlim=(0, last),
        ylim=(0, None),
    )
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    figure.savefig(PICTURES / f"{name}.png")


if __name__ == "__main__":
    main(sys.argv[1:])
