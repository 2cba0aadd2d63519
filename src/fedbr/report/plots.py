"""Curves of a comparison as pictures: for papers, and for the README."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..util.files import write
from .curves import UNITS, Curve, band
from .style import BANDS, COLUMN, escape_label, figure_style, image_bytes, light_grid, look

if TYPE_CHECKING:  # matplotlib takes a second to import
    from matplotlib.axes import Axes

STYLES = {"solid": "-", "dash": "--", "dot": ":", "dashdot": "-."}
BESIDE = 22  # characters of labels that fit beside each other in a column
Curves = Mapping[str, Sequence[Mapping[int, float]]]  # label -> for every seed, round -> accuracy


def convergence_picture(curves: Curves, target: Path, title: str = "") -> None:
    """Draw accuracy by round for a page; the ending of the name chooses PNG or SVG."""
    from matplotlib.figure import Figure

    many = len(curves) > BANDS
    figure = Figure(figsize=(9, 5.4) if many else (7, 3.6), dpi=150, layout="constrained")
    axes = figure.subplots()
    drawn = {}
    for label, seeds in curves.items():
        percent = [{r: 100 * value for r, value in seed.items()} for seed in seeds]
        over_seeds = band(percent)
        drawn[label] = Curve(over_seeds, {"round": list(map(float, over_seeds.rounds))})
    _draw(axes, drawn, "round", 2)
    axes.set_title(title, fontsize="medium")
    place: dict[str, Any] = {"loc": "lower right"}
    if many:
        place = {"loc": "center left", "bbox_to_anchor": (1, 0.5)}
    axes.legend(frameon=False, **place)
    write(target, image_bytes(figure, target.suffix[1:]))


def column_pictures(
    curves: Mapping[str, Curve], unit: str, kinds: Sequence[str]
) -> Iterator[tuple[str, bytes]]:
    """Draw accuracy by round, seconds or megabytes, as wide as a column of a paper.

    Yields each kind of file and its bytes.
    """
    with figure_style():
        from matplotlib.figure import Figure

        columns = 2 if max(map(len, curves), default=0) <= BESIDE else 1
        lines = sum(escape_label(label).count("\n") + 1 for label in curves)
        height = 2.2 + 0.16 * -(-lines // columns)
        figure = Figure(figsize=(COLUMN, height), layout="constrained")
        axes = figure.subplots()
        _draw(axes, curves, unit, 1.2)
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
    from matplotlib.ticker import MaxNLocator

    for i, (label, curve) in enumerate(curves.items()):
        _draw_curve(axes, i, label, curve.places[unit], curve, width, bands=len(curves) <= BANDS)
    highest = max((max(curve.band.high, default=0.0) for curve in curves.values()), default=0.0)
    axes.set(
        xlabel=UNITS[unit],
        ylabel="accuracy of the global model, %",
        ylim=(0, 50 if highest < 45 else 100),
    )
    axes.xaxis.set_major_locator(MaxNLocator(nbins="auto", integer=unit == "round"))
    light_grid(axes)


def _draw_curve(
    axes: Axes, i: int, label: str, x: Sequence[float], curve: Curve, width: float, bands: bool
) -> None:
    """Draw the mean, thin where seeds are missing, and the band around it."""
    color, dash = look(i)
    mean, whole = curve.band.mean, curve.band.whole
    style: dict[str, Any] = {"color": color, "linestyle": STYLES[dash], "linewidth": width}
    dots = {"marker": "o", "markersize": 4} if whole == 1 else {}
    axes.plot(x[:whole], mean[:whole], label=escape_label(label), **style | dots)
    start = max(0, whole - 1)
    if start < len(x) - 1:  # behind it, seeds are unfinished or diverged
        axes.plot(x[start:], mean[start:], **style | {"linewidth": width / 2})
    if bands and curve.band.low != curve.band.high:
        axes.fill_between(x, curve.band.low, curve.band.high, color=color, alpha=0.15, linewidth=0)
