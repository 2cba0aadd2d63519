"""Figures of updates that disagree: in one round weight by weight, and round by round as logged."""

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

LAYERS = 24  # beyond, the matrices only
SPAN = {"%": 20, "": 0.5}  # an axis shows at least so much, that noise does not look like a trend
PANELS = {  # of the figure by round: title -> the figure that is logged, and its unit
    "accuracy, %: aggregated (line),\nlocal models (dashed)": ("accuracy_aggregated", "%"),
    "unseen classes taken\nfor seen ones, %": ("share_present_unseen", "%"),
    "cosine between the\nupdates of two clients": ("cosine", ""),
    "distance of updates to their\nmean, by their length": ("distance", ""),
}


def drift(record: DiagnosisRecord) -> Figure:
    """Draw cosine and distance of the updates, weight by weight."""
    from matplotlib.figure import Figure

    variants = record.trained
    names = _most_telling(list(variants[0].layers))
    figure = Figure(figsize=(10, 1.8 + min(9, 0.24 * len(names))), layout="constrained")
    cosines, distances = figure.subplots(1, 2, sharey=True)
    places = np.arange(len(names) + 1)
    for i, variant in enumerate(variants):
        rows = [*(variant.layers[name] for name in names), variant.drift]
        beside = places + 0.16 * (i - (len(variants) - 1) / 2)
        style: dict[str, Any] = {
            "color": look(i)[0],
            "label": escape_label(variant.label),
            "markersize": 4,
        }
        cosines.plot([row.cosine for row in rows], beside, "o", **style)
        distances.plot([row.distance for row in rows], beside, "o", **style)
    cosines.set(xlabel="cosine between the updates of two clients", yticks=places)
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
        when = _when(runs)
        style: dict[str, Any] = {"color": look(i)[0], "marker": "o" if len(when) < 2 else ""}
        for axes, (key, unit) in zip(grid, PANELS.values(), strict=True):
            axes.plot(when, _logged(runs, key, unit), label=escape_label(label), **style)
        grid[0].plot(when, _logged(runs, "accuracy_local", "%"), linestyle="--", **style)
    for axes, (title, (_, unit)) in zip(grid, PANELS.items(), strict=True):
        axes.set(title=title, xlabel="round")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        light_grid(axes)
        _widen(axes, unit)
    _legend(figure, grid[0], columns=6)
    title = f"Clients' models round by round, mean over clients; {_seeds(rounds)}"
    return with_title(figure, title)


def by_layer(rounds: Rounds) -> Figure | None:
    """Draw cosine and distance of the updates for every weight and round.

    None if there is nothing to compare.
    """
    from matplotlib.figure import Figure

    compared = {label: runs for label, runs in rounds.items() if _layers(runs)}
    if not compared:
        return None
    names = _most_telling(_layers(next(iter(compared.values()))))
    size = 2.5 + 2.4 * len(compared), 1.6 + 2 * min(9, 0.2 * len(names))
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(2, len(compared), sharey=True, squeeze=False)
    _draw_layers(figure, grid[0], compared, names, "cosine", "cosine")
    _draw_layers(figure, grid[1], compared, names, "distance", "distance to the mean")
    return with_title(figure, f"Updates of the clients by weight and round; {_seeds(rounds)}")


def _draw_layers(
    figure: Figure, row: Sequence[Axes], rounds: Rounds, names: Sequence[str], key: str, title: str
) -> None:
    """Draw one figure of the updates, a panel for every variant, all with the same shades."""
    tables = [_table(runs, names, key) for runs in rounds.values()]
    most = max(SPAN[""], *(float(np.nanmax(np.abs(table))) for table in tables))
    shades: dict[str, Any] = {"cmap": "Greys", "vmin": 0, "vmax": most}
    if key == "cosine":
        shades = {"cmap": "RdBu", "vmin": -most, "vmax": most}
    for axes, (label, runs), table in zip(row, rounds.items(), tables, strict=True):
        image = axes.imshow(table, aspect="auto", interpolation="nearest", **shades)
        axes.set_title(f"{escape_label(label)}: {title}")
        when = _when(runs)
        places = np.unique(np.linspace(0, len(when) - 1, 6).astype(int))
        axes.set_xticks(places, [str(when[place]) for place in places])
        axes.set_xlabel("round")
    row[0].set_yticks(range(len(names)), [escape_label(name) for name in names])
    figure.colorbar(image, ax=list(row), pad=0.01)


def _legend(figure: Figure, axes: Axes, columns: int) -> None:
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False)


def _most_telling(names: Sequence[str]) -> list[str]:
    """Leave out vectors where there are many weights."""
    if len(names) <= LAYERS:
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
    """Return one figure of the updates of every weight, by round: [weights, rounds]."""
    rows = []
    for name in names:
        by_round: dict[int, list[float | None]] = {}
        for record in _records(runs):
            assert record.bias is not None
            layer: Drift = record.bias.layers[name]
            by_round.setdefault(record.round, []).append(getattr(layer, key))
        rows.append(_means(by_round))
    return np.array(rows, dtype=np.float64)


def _logged(runs: Sequence[Sequence[RoundRecord]], key: str, unit: str) -> list[float]:
    """Return what was logged of the clients' models: the mean over seeds of every round."""
    by_round: dict[int, list[float | None]] = {}
    for record in _records(runs):
        assert record.bias is not None
        by_round.setdefault(record.round, []).append(record.bias.figures()[key])
    factor = 100 if unit == "%" else 1
    return [factor * value for value in _means(by_round)]


def _records(runs: Sequence[Sequence[RoundRecord]]) -> list[RoundRecord]:
    """Return the rounds of all seeds."""
    return [record for records in runs for record in records]


def _when(runs: Sequence[Sequence[RoundRecord]]) -> list[int]:
    """Return the rounds that were looked at."""
    return sorted({record.round for record in _records(runs)})


def _means(by_round: Mapping[int, Sequence[float | None]]) -> list[float]:
    """Return the mean of every round, in their order; not a number where nothing is known."""
    means = []
    for round in sorted(by_round):
        value = mean(by_round[round])
        means.append(float("nan") if value is None else value)
    return means


def _seeds(rounds: Rounds) -> str:
    most = max(map(len, rounds.values()))
    return "one seed" if most == 1 else f"mean over {most} seeds"


def _widen(axes: Axes, unit: str) -> None:
    """Let an axis show so much that noise looks like noise, and no share above 100 %."""
    low, high = axes.get_ylim()
    if high - low < SPAN[unit]:
        low, high = (low + high - SPAN[unit]) / 2, (low + high + SPAN[unit]) / 2
    if unit == "%":
        shift = max(0.0, -2 - low) - max(0.0, high - 102)
        low, high = low + shift, high + shift
    axes.set_ylim(low, high)
