"""Write docs/lazy-fedbr.md anew: python -m benchmarks.lazy [NAME ...].

It trains what is missing, and goes on where it was interrupted. Rounds come from the recipes
lazy-digits and lazy-rotated-mnist; the price of a round is measured apart from them, all variants
in turn, so that a machine that slows down for a while slows down all of them.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fedbr import bench
from fedbr.recipe.schema import Recipe
from fedbr.report.curves import accuracies
from fedbr.run.results import Results
from fedbr.util.estimate import Estimate

from .results import PICTURES, Section, insert, markdown, train

PAGE = Path("docs/lazy-fedbr.md")
MNIST = replace(bench.DIGITS_CNN, shape=(1, 9, 9))
LARGE = ["train.lr=0.1", "train.rounds=40", "train.seeds=0,1", "metrics.target=0.4"]


@dataclass(frozen=True)
class Study:
    """A section of the page, and the work whose price is measured for it."""

    section: Section
    work: bench.Workload


STUDIES = {
    "lazy-digits": Study(Section("lazy-digits"), bench.DIGITS_CNN),
    "lazy-rotated-mnist": Study(Section("lazy-rotated-mnist"), MNIST),
    "lazy-rotated-mnist-lr-0.1": Study(Section("lazy-rotated-mnist", LARGE), MNIST),
}
REPEATS = 5
BASE = "FedAvg"  # whose rounds are the unit of cost
COLORS = (
    "#000000",
    "#0072b2",
    "#009e73",
    "#b8860b",
    "#d55e00",
    "#cc79a7",
    "#56b4e9",
    "#8c564b",
)

Curve = Mapping[int, float]  # round -> accuracy
Curves = Mapping[str, Sequence[Curve]]  # label -> the curve of every seed


@dataclass(frozen=True)
class Price:
    """What a round costs."""

    ratio: float  # FedAvg = 1
    seconds: float  # of one core


def main(names: Sequence[str]) -> None:
    """Train, measure and write the named studies, or all."""
    measured: dict[tuple[int, ...], Mapping[str, Price]] = {}  # by the shape of a sample
    for name in names or STUDIES:
        section, work = STUDIES[name].section, STUDIES[name].work
        recipe = section.load()
        results = train(name, recipe)
        if results is None:
            continue
        if work.shape not in measured:
            measured[work.shape] = measure_prices(work, recipe)
        prices, curves = measured[work.shape], accuracies(results)
        draw(name, curves, prices)
        count, settings = len(results.seeds), recipe.train
        about = f"{count} seeds, {settings.rounds} rounds, lr {settings.lr:g} (`{section.command}`)"
        picture = f"![accuracy by cost](img/{name}.png)"
        insert(name, f"{about}.\n\n{picture}\n\n{table(results, curves, prices)}", PAGE)


def measure_prices(work: bench.Workload, recipe: Recipe) -> Mapping[str, Price]:
    """Measure the CPU time of a round of every variant."""
    variants = [(variant.label, variant.build()) for variant in recipe.compare]
    _, ratios = bench.measure(replace(work, whole=True, rounds=2), REPEATS, variants)
    return {ratio.name: Price(ratio.beside(ratios[0]), ratio.seconds) for ratio in ratios}


def first_round(curve: Curve, goal: float) -> int | None:
    """Return the first round at or above a goal; None if there is none."""
    return next((round for round, accuracy in curve.items() if accuracy >= goal), None)


def table(results: Results, curves: Curves, prices: Mapping[str, Price]) -> str:
    """Write what each variant needs to come where FedAvg ends, and to the target."""
    target = results.recipe.metrics.target
    header = [
        "",
        "5 best rounds %",
        "price of a round",
        "rounds to FedAvg's last accuracy",
        "time to it (FedAvg = 1)",
        f"rounds to {100 * target:g} %",
        "CPU seconds to it",
    ]
    rows = [header]
    for label, seeds in curves.items():
        top5 = Estimate.of(run.accuracy.top5 for run in results.of(label))
        level = rounds_to_last_of_base(seeds, curves[BASE])
        base_level = rounds_to_last_of_base(curves[BASE], curves[BASE])
        to_target = [first_round(curve, target) for curve in seeds]
        price = prices[label]
        rows.append(
            [
                label,
                top5.show(1, 100) if top5 else "-",
                f"{price.ratio:.2f}",
                _mean_round(level),
                _times(level, base_level, price.ratio),
                _mean_round(to_target),
                _seconds(to_target, price.seconds),
            ]
        )
    return markdown(rows)


def rounds_to_last_of_base(seeds: Sequence[Curve], base: Sequence[Curve]) -> list[int | None]:
    """Return in which round each seed comes to FedAvg's last accuracy on that seed."""
    rounds = []
    for curve, other in zip(seeds, base, strict=True):
        rounds.append(first_round(curve, list(other.values())[-1]))
    return rounds


def _times(rounds: Sequence[int | None], base: Sequence[int | None], ratio: float) -> str:
    """Say how long it takes to FedAvg's last accuracy: the mean over seeds, and the range."""
    times = []
    for round, base_round in zip(rounds, base, strict=True):
        if round is not None and base_round is not None:
            times.append(ratio * round / base_round)
    if not times:
        return "-"
    mean = f"{statistics.fmean(times):.2f}"
    return f"{mean} ({min(times):.2f} to {max(times):.2f})" if len(times) > 1 else mean


def _seconds(rounds: Sequence[int | None], seconds: float) -> str:
    reached = [round for round in rounds if round is not None]
    return f"{statistics.fmean(reached) * seconds:.0f}" if reached else "-"


def _mean_round(rounds: Sequence[int | None]) -> str:
    reached = [round for round in rounds if round is not None]
    if not reached:
        return "-"
    mean = f"{statistics.fmean(reached):.1f}"
    if len(reached) == len(rounds):
        return mean
    return f"{mean} ({len(reached)} of {len(rounds)} seeds)"


def draw(name: str, curves: Curves, prices: Mapping[str, Price]) -> None:
    """Draw accuracy by what it cost, in rounds of FedAvg."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4), dpi=150, layout="constrained")
    axes = figure.subplots()
    for color, (label, seeds) in zip(COLORS, curves.items(), strict=True):
        rounds = list(seeds[0])
        costs = [round * prices[label].ratio for round in rounds]
        means = [100 * statistics.fmean(curve[round] for curve in seeds) for round in rounds]
        axes.plot(costs, means, color=color, label=label, linewidth=2)
    last = max(curves[BASE][0])
    axes.set(
        xlabel="cost, in rounds of FedAvg",
        ylabel="accuracy, %, mean over seeds",
        xlim=(0, last),
        ylim=(0, None),
    )
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    PICTURES.mkdir(parents=True, exist_ok=True)
    figure.savefig(PICTURES / f"{name}.png")


if __name__ == "__main__":
    main(sys.argv[1:])
