"""Figures of updates that disagree: in one round weight by weight, and round by round as logged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..metrics.local import mean
from ..report.comparison import Line
from ..report.local_models import Rounds, flat
from ..report.plots import look, shown
from .bar_figures import Numbers, alive, headed

if TYPE_CHECKING:  # matplotlib takes a second to import
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LAYERS = 24  # beyond, the matrices only
SPAN = {"%": 20, "": 0.5}  # an axis shows at least so much, that noise does not look like a trend


def drift(numbers: Numbers) -> Figure:
    """Draw cosine and distance of the updates, weight by weight."""
    from matplotlib.figure import Figure

    sides = alive(numbers)
    names = _few(sides[0]["drift"]["layers"])
    figure = Figure(figsize=(10, 1.8 + min(9, 0.24 * len(names))), layout="constrained")
    grid = figure.subplots(1, 2, sharey=True)
    places = np.arange(len(names) + 1)
    for i, side in enumerate(sides):
        rows = [*(side["drift"]["layers"][name] for name in names), side["drift"]]
        for axes, key in zip(grid, ("cosine", "distance"), strict=True):
            beside = places + 0.16 * (i - (len(sides) - 1) / 2)
            label = shown(side["label"])
            axes.plot(
                [row[key] for row in rows], beside, "o", color=look(i)[0], label=label, markersize=4
            )
    grid[0].set(xlabel="cosine between the updates of two clients", yticks=places)
    grid[0].set_yticklabels([*map(shown, names), "all weights"], fontsize=7)
    grid[0].invert_yaxis()
    grid[0].axvline(0, color="0.6", linewidth=0.8)
    grid[1].set(
        xlabel="distance to the mean update, divided by the updates' length", xlim=(0, None)
    )
    for axes in grid:
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    figure.legend(
        *grid[0].get_legend_handles_labels(), loc="outside lower center", ncols=8, frameon=False
    )
    return headed(
        figure, "Updates of the clients, weight by weight; if all agreed: cosine 1, distance 0"
    )


def by_round(rounds: Rounds) -> Figure:
    """Draw what was logged of the local models while they trained."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    panels = {
        "accuracy, %: aggregated (line),\nlocal models (dashed)": ("accuracy_aggregated", "%"),
        "unseen classes taken\nfor seen ones, %": ("share_present_unseen", "%"),
        "cosine between the\nupdates of two clients": ("cosine", ""),
        "distance of updates to their\nmean, by their length": ("distance", ""),
    }
    figure = Figure(figsize=(3.3 * len(panels), 3.4), layout="constrained")
    grid = figure.subplots(1, len(panels))
    for i, (label, runs) in enumerate(rounds.items()):
        when = _when(runs)
        style: dict[str, Any] = {"color": look(i)[0], "marker": "o" if len(when) < 2 else ""}
        for axes, (key, unit) in zip(grid, panels.values(), strict=True):
            axes.plot(
                when,
                _means(runs, lambda line, k=key: flat(line).get(k), unit),
                label=shown(label),
                **style,
            )
        local = _means(runs, lambda line: line["accuracy_local"], "%")
        grid[0].plot(when, local, linestyle="--", **style)
    for axes, (title, (_, unit)) in zip(grid, panels.items(), strict=True):
        axes.set(title=title, xlabel="round")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        _widen(axes, SPAN[unit])
    figure.legend(
        *grid[0].get_legend_handles_labels(), loc="outside lower center", ncols=6, frameon=False
    )
    return headed(figure, f"Clients' models round by round, mean over clients; {_seeds(rounds)}")


def by_layer(rounds: Rounds) -> Figure | None:
    """Draw cosine and distance of the updates for every weight and round; None if there is nothing
    to compare.
    """
    from matplotlib.figure import Figure

    sides = {label: runs for label, runs in rounds.items() if _layers(runs)}
    if not sides:
        return None
    names = _few(_layers(next(iter(sides.values()))))
    figure = Figure(
        figsize=(2.5 + 2.4 * len(sides), 1.6 + 2 * min(9, 0.2 * len(names))), layout="constrained"
    )
    grid = figure.subplots(2, len(sides), sharey=True, squeeze=False)
    for row, key, title in zip(
        grid, ("cosine", "distance"), ("cosine", "distance to the mean"), strict=True
    ):
        tables = [_table(runs, names, key) for runs in sides.values()]
        most = max(SPAN[""], *(float(np.nanmax(np.abs(table))) for table in tables))
        how: dict[str, Any] = (
            {"cmap": "RdBu", "vmin": -most} if key == "cosine" else {"cmap": "Greys", "vmin": 0}
        )
        for axes, (label, runs), table in zip(row, sides.items(), tables, strict=True):
            shades = axes.imshow(table, vmax=most, aspect="auto", interpolation="nearest", **how)
            axes.set_title(f"{shown(label)}: {title}")
            when = _when(runs)
            places = np.unique(np.linspace(0, len(when) - 1, 6).astype(int))
            axes.set_xticks(places, [str(when[p]) for p in places])
            axes.set_xlabel("round")
        row[0].set_yticks(range(len(names)), list(map(shown, names)))
        figure.colorbar(shades, ax=list(row), pad=0.01)
    return headed(figure, f"Updates of the clients by weight and round; {_seeds(rounds)}")


def _few(names: Any) -> list[str]:
    """Leave out vectors where there are many weights."""
    every = list(names)
    return (
        every
        if len(every) <= LAYERS
        else [name for name in every if name.endswith("weight")] or every
    )


def _layers(runs: Sequence[Sequence[Line]]) -> dict[str, Any]:
    """Return the weights of which two clients' updates were compared."""
    found: dict[str, Any] = runs[0][0]["bias"]["layers"]
    return {name: row for name, row in found.items() if row["cosine"] is not None}


def _table(runs: Sequence[Sequence[Line]], names: Sequence[str], key: str) -> Any:
    rows = [_means(runs, lambda line, n=name: line["bias"]["layers"][n][key], "") for name in names]
    return np.array(rows, dtype=np.float64)


def _when(runs: Sequence[Sequence[Line]]) -> list[int]:
    return sorted({line["round"] for lines in runs for line in lines})


def _means(
    runs: Sequence[Sequence[Line]], get: Callable[..., float | None], unit: str
) -> list[float]:
    """Return the mean over seeds of every round; not a number where none is known."""
    factor = 100 if unit == "%" else 1
    found = [
        mean([get(line) for lines in runs for line in lines if line["round"] == r])
        for r in _when(runs)
    ]
    return [float("nan") if value is None else factor * value for value in found]


def _seeds(rounds: Rounds) -> str:
    most = max(map(len, rounds.values()))
    return "one seed" if most == 1 else f"mean over {most} seeds"


def _widen(axes: Axes, least: float) -> None:
    low, high = axes.get_ylim()
    if high - low < least:
        axes.set_ylim((low + high - least) / 2, (low + high + least) / 2)
