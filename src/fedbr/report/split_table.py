"""The table in the picture of a split: samples of each client and class, and columns of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from .gallery import Counts
from .style import Options

if TYPE_CHECKING:  # matplotlib takes a second to import
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BUBBLES = (40, 20)  # clients and classes up to which counts are bubbles; beyond it is a heat map
LINES = 500  # that a heat map can show
COLUMN = 0.36  # width of a class, in inches
COLOUR = "#d1495b"
PLAIN: Options = {"parse_math": False}  # a name of the user's is no formula


def draw_bubbles(figure: Figure, axes: Axes, split: Counts, row: float) -> None:
    """Draw every count as a bubble whose area it is, with a legend at the foot of the figure.

    Args:
        figure: gets the legend.
        axes: gets the bubbles.
        split: the counts.
        row: height of a row, in inches.
    """
    clients, classes, most = len(split.clients), len(split.classes), int(split.table.max())
    largest = 0.9 * 72 * min(row, COLUMN)  # points across
    scale = largest**2 / most  # square points per sample
    y, x = np.nonzero(split.table)
    axes.scatter(x, y, s=scale * split.table[y, x], linewidth=0, color=COLOUR, alpha=0.85)
    axes.set(xlim=(-0.5, classes - 0.5), ylim=(clients - 0.5, -0.5))
    axes.set_yticks(range(clients), split.clients, **PLAIN)
    _name_classes(axes, split.classes)
    axes.grid(color="0.9", linewidth=0.5)
    axes.set_axisbelow(True)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    _draw_legend(figure, most, scale)


def _draw_legend(figure: Figure, most: int, scale: float) -> None:
    """Say how many samples some bubbles stand for.

    Args:
        figure: gets the legend.
        most: samples of the largest bubble.
        scale: square points per sample.
    """
    from matplotlib.lines import Line2D

    handles = []
    for count in legend_counts(most):
        handle = Line2D(
            [],
            [],
            marker="o",
            linestyle="",
            markersize=(scale * count) ** 0.5,
            markeredgewidth=0,
            color=COLOUR,
            alpha=0.85,
            label=f"{count:,}",
        )
        handles.append(handle)
    handles[-1].set_label(f"{handles[-1].get_label()} samples")
    figure.legend(handles=handles, loc="outside lower left", ncols=len(handles), frameon=False)


def draw_heat_map(figure: Figure, axes: Axes, below: Axes, split: Counts) -> None:
    """Draw the counts as shades.

    Args:
        figure: the picture.
        axes: get the shades.
        below: get the scale.
        split: the counts.
    """
    from matplotlib import colormaps
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    clients, classes = len(split.clients), len(split.classes)
    table, each = group_rows(split.table)
    most = max(1, round(table.max()))
    shades: Options = {"cmap": "Reds", "vmin": 0, "vmax": most}
    if most <= 10 and each == 1:  # a shade for every number
        shades = {"cmap": colormaps["Reds"].resampled(most + 1), "vmin": -0.5, "vmax": most + 0.5}
    extent = (-0.5, classes - 0.5, clients - 0.5, -0.5)
    image = axes.imshow(table, extent=extent, aspect="auto", interpolation="nearest", **shades)
    if clients <= BUBBLES[0]:
        axes.set_yticks(range(clients), split.clients, **PLAIN)
    else:
        axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.yaxis.set_major_formatter("{x:,.0f}")
        axes.set_ylabel("client")
    _name_classes(axes, split.classes)
    axes.spines[:].set(color="0.4", linewidth=0.5)
    unit = "samples" if each == 1 else f"samples, averaged over {each} clients"
    scale = figure.colorbar(image, cax=below, orientation="horizontal", label=unit)
    scale.locator = MaxNLocator(5, integer=True)
    scale.formatter = StrMethodFormatter("{x:,.0f}")
    scale.outline.set_visible(False)


def legend_counts(most: int) -> list[int]:
    """Return round numbers up to the largest count, far enough apart to be distinguished.

    >>> legend_counts(5958)
    [200, 1000, 5000]
    """
    top = _round_down(most)
    return sorted({max(1, _round_down(top // 25)), max(1, _round_down(top // 5)), top})


def _round_down(number: int) -> int:
    unit: int = 10 ** (len(str(number)) - 1)
    return number // unit * unit


def group_rows(table: NDArray[np.int64]) -> tuple[NDArray[np.float64], int]:
    """Average neighbours where there are more clients than a picture has lines.

    Returns:
        The means, and over how many clients they are.

    >>> rows, each = group_rows(np.arange(2 * LINES)[:, None])
    >>> rows[:2].tolist(), each
    ([[0.5], [2.5]], 2)
    """
    each = -(-len(table) // LINES)
    starts = np.arange(0, len(table), each)
    sizes = np.diff(np.append(starts, len(table)))
    return np.add.reduceat(table, starts, axis=0) / sizes[:, None], each


def _name_classes(axes: Axes, names: Sequence[str]) -> None:
    """Write the classes below a table: their names, or numbers where there are many."""
    from matplotlib.ticker import MaxNLocator

    short = max(map(len, names)) <= 3
    if len(names) > BUBBLES[1]:
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.set_xlabel("class" if short else f"class, from {names[0]} to {names[-1]}", **PLAIN)
        return
    axes.set_xticks(range(len(names)), names, rotation=0 if short else 90, **PLAIN)
    if short:
        axes.set_xlabel("class")


def draw_numbers(axes: Axes, title: str, values: Sequence[float], form: str) -> None:
    """Write a number beside each row of the table."""
    axes.set_title(title, loc="right")
    axes.set(xlim=(0, 1), ylim=(len(values) - 0.5, -0.5))
    axes.axis("off")
    for row, value in enumerate(values):
        axes.text(1, row, format(value, form), ha="right", va="center")


def draw_bars(axes: Axes, title: str, values: Sequence[float], form: str) -> None:
    """Draw a number as a bar beside each row of the table."""
    axes.set_title(title, loc="left")
    edges = np.arange(len(values) + 1) - 0.5
    axes.stairs(values, edges, orientation="horizontal", fill=True, color=COLOUR)
    most = max(values)
    axes.set(xlim=(0, most), ylim=(len(values) - 0.5, -0.5), yticks=[])
    axes.set_xticks([0, most], ["0", format(most, form)])
    first, last = axes.get_xticklabels()
    first.set_horizontalalignment("left")
    last.set_horizontalalignment("right")
    axes.tick_params(length=0)
    axes.spines[["top", "right", "bottom"]].set_visible(False)
