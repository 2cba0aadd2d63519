"""Figures of how clients' updates differ: in one round by weight, and as logged by round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..core.records import Drift, RoundRecord
from ..metrics.local import mean
from ..report.local_models import Rounds
from ..report.style import escape_label, light_grid, look
from ..run.diagnosis import DiagnosisRecord
from .bar_figures import with_title

if TYPE_CHECKING:  # matplotlib takes a second to import
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_ROWS = 24  # with more weights than these, vectors are left out
# An axis shows at least so much, by its unit: noise should not look like a trend.
SPAN = {"%": 20, "": 0.5}
# The panels of the figure by round: title -> the value that is logged, and its unit.
PANELS = {
    "accuracy, %: aggregated (line),\nlocal models (dashed)": ("accuracy_aggregated", "%"),
    "unseen classes taken\nfor seen ones, %": ("share_present_unseen", "%"),
    "cosine between the\nupdates of two clients": ("cosine", ""),
    "distance of updates to their\nmean, by their length": ("distance", ""),
}


def drift(record: DiagnosisRecord) -> Figure:
    """Draw cosine and distance of the updates, weight by weight."""
    from matplotlib.figure import Figure

    variants = record.trained
    names = _choose_weights(list(variants[0].layers))
    figure = Figure(figsize=(10, 1.8 + min(9, 0.24 * len(names))), layout="constrained")
    cosines, distances = figure.subplots(1, 2, sharey=True)
    positions = np.arange(len(names) + 1)
    for i, variant in enumerate(variants):
        rows = [variant.layers[name] for name in names]
        rows.append(variant.drift)
        shifted = positions + 0.16 * (i - (len(variants) - 1) / 2)
        style: dict[str, Any] = {
            "color": look(i)[0],
            "label": escape_label(variant.label),
            "markersize": 4,
        }
        cosines.plot([row.cosine for row in rows], shifted, "o", **style)
        distances.plot([row.distance for row in rows], shifted, "o", **style)
    cosines.set(xlabel="cosine between the updates of two clients", yticks=positions)
    cosines.set_yticklabels([*map(escape_label, names), "all weights"], fontsize=7)
    cosines.invert_yaxis()
    cosines.axvline(0, color="0.6", linewidth=0.8)
    distances.set(xlabel="distance to the mean update, divided by the updates' length")
    distances.set_xlim(0, None)
    for axes in (cosines, distances):
        light_grid(axes)
    _legend(figure, cosines, columns=8)
    title = "Updates of the clients, weight by weight; if all agreed: cosine 1, distance 0"
    return with_title(figure, title)


def by_round(rounds: Rounds) -> Figure:
    """Draw what was logged of the local models while they trained."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(3.3 * len(PANELS), 3.4), layout="constrained")
    grid = figure.subplots(1, len(PANELS))
    for i, (label, runs) in enumerate(rounds.items()):
        numbers = _round_numbers(runs)
        marker = "o" if len(numbers) < 2 else ""
        style: dict[str, Any] = {"color": look(i)[0], "marker": marker}
        for axes, (key, unit) in zip(grid, PANELS.values(), strict=True):
            axes.plot(numbers, _logged_means(runs, key, unit), label=escape_label(label), **style)
        grid[0].plot(numbers, _logged_means(runs, "accuracy_local", "%"), linestyle="--", **style)
    for axes, (title, (_, unit)) in zip(grid, PANELS.items(), strict=True):
        axes.set(title=title, xlabel="round")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        light_grid(axes)
        _widen_axis(axes, unit)
    _legend(figure, grid[0], columns=6)
    title = f"Clients' models round by round, mean over clients; {_seeds(rounds)}"
    return with_title(figure, title)


def by_layer(rounds: Rounds) -> Figure | None:
    """Draw cosine and distance of the updates for every weight and round.

    None if there is nothing to compare.
    """
    from matplotlib.figure import Figure

    compared = {}
    for label, runs in rounds.items():
        if _layers(runs):
            compared[label] = runs
    if not compared:
        return None
    names = _choose_weights(_layers(next(iter(compared.values()))))
    width, height = 2.5 + 2.4 * len(compared), 1.6 + 2 * min(9, 0.2 * len(names))
    figure = Figure(figsize=(width, height), layout="constrained")
    grid = figure.subplots(2, len(compared), sharey=True, squeeze=False)
    _draw_layers(figure, grid[0], compared, names, "cosine", "cosine")
    _draw_layers(figure, grid[1], compared, names, "distance", "distance to the mean")
    return with_title(figure, f"Updates of the clients by weight and round; {_seeds(rounds)}")


def _draw_layers(
    figure: Figure, row: Sequence[Axes], rounds: Rounds, names: Sequence[str], key: str, title: str
) -> None:
    """Draw one measure of the updates, a panel for every variant, all with the same shades."""
    tables = [_table(runs, names, key) for runs in rounds.values()]
    largest = max([SPAN[""], *(float(np.nanmax(np.abs(table))) for table in tables)])
    shades: dict[str, Any] = {"cmap": "Greys", "vmin": 0, "vmax": largest}
    if key == "cosine":
        shades = {"cmap": "RdBu", "vmin": -largest, "vmax": largest}
    for axes, (label, runs), table in zip(row, rounds.items(), tables, strict=True):
        image = axes.imshow(table, aspect="auto", interpolation="nearest", **shades)
        axes.set_title(f"{escape_label(label)}: {title}")
        numbers = _round_numbers(runs)
        ticks = np.unique(np.linspace(0, len(numbers) - 1, 6).astype(int))
        axes.set_xticks(ticks, [str(numbers[tick]) for tick in ticks])
        axes.set_xlabel("round")
    row[0].set_yticks(range(len(names)), [escape_label(name) for name in names])
    figure.colorbar(image, ax=list(row), pad=0.01)


def _legend(figure: Figure, axes: Axes, columns: int) -> None:
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False)


def _choose_weights(names: Sequence[str]) -> list[str]:
    """Leave out vectors where there are many weights."""
    if len(names) <= MAX_ROWS:
        return list(names)
    return [name for name in names if name.endswith("weight")] or list(names)


def _layers(runs: Sequence[Sequence[RoundRecord]]) -> list[str]:
    """Return the weights of which two clients' updates were compared."""
    first = runs[0][0].bias
    assert first is not None
    return [name for name, layer in first.layers.items() if layer.cosine is not None]


def _table(
    runs: Sequence[Sequence[RoundRecord]], names: Sequence[str], key: str
) -> NDArray[np.float64]:
    """Return one measure of the updates of every weight, by round: [weights, rounds]."""
    rows = []
    for name in names:
        by_round: dict[int, list[float | None]] = {}
        for record in _records(runs):
            assert record.bias is not None
            layer: Drift = record.bias.layers[name]
            by_round.setdefault(record.round, []).append(getattr(layer, key))
        rows.append(_means(by_round))
    return np.array(rows, dtype=np.float64)


def _logged_means(runs: Sequence[Sequence[RoundRecord]], key: str, unit: str) -> list[float]:
    """Return the mean over seeds of a value that was logged, round by round."""
    by_round: dict[int, list[float | None]] = {}
    for record in _records(runs):
        assert record.bias is not None
        by_round.setdefault(record.round, []).append(record.bias.values()[key])
    factor = 100 if unit == "%" else 1
    return [factor * value for value in _means(by_round)]


def _records(runs: Sequence[Sequence[RoundRecord]]) -> list[RoundRecord]:
    """Return the rounds of all seeds."""
    return [record for records in runs for record in records]


def _round_numbers(runs: Sequence[Sequence[RoundRecord]]) -> list[int]:
    """Return the numbers of the rounds in which models were measured."""
    return sorted({record.round for record in _records(runs)})


def _means(by_round: Mapping[int, Sequence[float | None]]) -> list[float]:
    """Return the mean of every round, in their order; NaN where there is no value."""
    means = []
    for round in sorted(by_round):
        value = mean(by_round[round])
        means.append(float("nan") if value is None else value)
    return means


def _seeds(rounds: Rounds) -> str:
    count = max(map(len, rounds.values()))
    return "one seed" if count == 1 else f"mean over {count} seeds"


def _widen_axis(axes: Axes, unit: str) -> None:
    """Let an axis show so much that noise looks like noise, and no share above 100 %."""
    low, high = axes.get_ylim()
    if high - low < SPAN[unit]:
        low, high = (low + high - SPAN[unit]) / 2, (low + high + SPAN[unit]) / 2
    if unit == "%":
        shift = max(0.0, -2 - low) - max(0.0, high - 102)
        low, high = low + shift, high + shift
    axes.set_ylim(low, high)
