"""Curves of a comparison as pictures: for papers, and for the README."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..util.files import write
from .curves import UNITS, Curve, band
from .style import (
    BANDS,
    COLUMN,
    Options,
    escape_label,
    figure_style,
    image_bytes,
    light_grid,
    look,
)

if TYPE_CHECKING:  # matplotlib takes a second to import
    from matplotlib.axes import Axes

STYLES = {"solid": "-", "dash": "--", "dot": ":", "dashdot": "-."}
BESIDE = 22  # characters of labels that fit beside each other in a column
Curves = Mapping[str, Sequence[Mapping[int, float]]]  # label -> for every seed, round -> accuracy


def convergence_picture(curves: Curves, target: Path, title: str = "") -> None:
    """Draw accuracy by round for a page.

    Args:
        curves: what to draw.
        target: the file; the ending of its name chooses PNG or SVG.
        title: of the picture.
    """
    from matplotlib.figure import Figure

    many = len(curves) > BANDS
    figure = Figure(figsize=(9, 5.4) if many else (7, 3.6), dpi=150, layout="constrained")
    axes = figure.subplots()
    drawn = {}
    for label, seeds in curves.items():
        percent = []
        for accuracies in seeds:
            percent.append({round: 100 * value for round, value in accuracies.items()})
        over_seeds = band(percent)
        drawn[label] = Curve(over_seeds, {"round": [float(round) for round in over_seeds.rounds]})
    _draw(axes, drawn, "round", width=2)
    axes.set_title(title, fontsize="medium")
    if many:
        axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    else:
        axes.legend(frameon=False, loc="lower right")
    write(target, image_bytes(figure, target.suffix[1:]))


def column_pictures(
    curves: Mapping[str, Curve], unit: str, kinds: Sequence[str]
) -> Iterator[tuple[str, bytes]]:
    """Draw accuracy by round, seconds or megabytes, as wide as a column of a paper.

    Args:
        curves: what to draw, by label.
        unit: of the horizontal axis, one of UNITS.
        kinds: of files, such as png.

    Yields:
        Each kind of file and its bytes.
    """
    with figure_style():
        from matplotlib.figure import Figure

        longest = max((len(label) for label in curves), default=0)
        columns = 2 if longest <= BESIDE else 1
        lines = sum(escape_label(label).count("\n") + 1 for label in curves)
        rows = -(-lines // columns)  # rounded up
        figure = Figure(figsize=(COLUMN, 2.2 + 0.16 * rows), layout="constrained")
        axes = figure.subplots()
        _draw(axes, curves, unit, width=1.2)
        figure.legend(
            loc="outside lower center",
            ncols=columns,
            frameon=False,
            handlelength=2.6,
            columnspacing=1.2,
        )
        for kind in kinds:
            yield kind, image_bytes(figure, kind)


def _draw(axes: Axes, curves: Mapping[str, Curve], unit: str, width: float) -> None:
    """Draw all curves; with a band each, unless there are so many that these hide each other."""
    from matplotlib.ticker import MaxNLocator

    highest = 0.0
    for i, (label, curve) in enumerate(curves.items()):
        _draw_mean(axes, i, label, curve, unit, width)
        if len(curves) <= BANDS:
            _draw_band(axes, i, curve, unit)
        highest = max([highest, *curve.band.high])
    axes.set(
        xlabel=UNITS[unit],
        ylabel="accuracy of the global model, %",
        ylim=(0, 50 if highest < 45 else 100),
    )
    axes.xaxis.set_major_locator(MaxNLocator(nbins="auto", integer=unit == "round"))
    light_grid(axes)


def _draw_mean(axes: Axes, i: int, label: str, curve: Curve, unit: str, width: float) -> None:
    """Draw the mean over seeds, thin where seeds are missing."""
    color, dash = look(i)
    x, mean, whole = curve.places[unit], curve.band.mean, curve.band.whole
    style: Options = {"color": color, "linestyle": STYLES[dash]}
    dot: Options = {"marker": "o", "markersize": 4} if whole == 1 else {}
    axes.plot(x[:whole], mean[:whole], label=escape_label(label), linewidth=width, **style, **dot)
    start = max(0, whole - 1)
    if start < len(x) - 1:  # behind it, seeds are unfinished or diverged
        axes.plot(x[start:], mean[start:], linewidth=width / 2, **style)


def _draw_band(axes: Axes, i: int, curve: Curve, unit: str) -> None:
    """Fill what is between the lowest and the highest seed."""
    band = curve.band
    if band.low != band.high:
        color, _ = look(i)
        axes.fill_between(
            curve.places[unit], band.low, band.high, color=color, alpha=0.15, linewidth=0
        )
