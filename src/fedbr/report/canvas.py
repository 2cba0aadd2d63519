"""Draw a federation: a table of clients and classes, and rows of samples."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..data import Federation
from .gallery import MADE, MEAN_OF, Counts, Strip, counts, samples

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.transforms import Bbox

BUBBLES = (40, 20)  # clients and classes up to which counts are bubbles; beyond it is a heat map
COLOUR = "#d1495b"

# The canvas is one pair of axes, in inches from the upper left corner of the table; letters are in
# points.
CELL, THIN, COLUMN = 0.5, 0.24, 0.36  # height of a row with samples and without, width of a class
LARGE = (4.0, 5.0)  # size of a table that has no room for rows and columns of this size
LINES = 500  # that such a table can show
WIDEST = 1.5  # an image that is wider than high by more is drawn smaller
FONT, LETTER = 8, 0.065  # size of letters, and their width in inches


def picture(federation: Federation, target: Path, heading: str, clients: Sequence[str]) -> None:
    """Draw the split and samples; the ending of the name chooses PNG or SVG."""
    from matplotlib.figure import Figure

    split = counts(federation, clients)
    few, rows = len(clients) <= BUBBLES[0], int(LARGE[1] / CELL)
    strips = samples(federation, max(rows, int(len(clients) * THIN / CELL)) if few else rows)
    aligned = len(clients) <= rows  # samples stand in the row of their client
    figure = Figure(figsize=(20, 20), dpi=150)
    axes = figure.add_axes((0, 0, 1, 1), xlim=(-4, 16), ylim=(17, -3), autoscale_on=False)
    axes.axis("off")
    row = CELL if strips and aligned else THIN
    right = (_bubbles if few and len(split.classes) <= BUBBLES[1] else _heat)(axes, split, row)
    right = (_columns if few else _bars)(axes, split, right, row)
    if strips:
        left = right + 0.3
        if not aligned:
            shown = split.clients[: len(strips)]
            left += LETTER * max(14, *map(len, shown))
            _names(axes, shown, left, CELL)
            words = f"clients 0 to {len(shown) - 1}\nof {len(clients):,}"
            _write(axes, left - 0.08, -0.06, words, ha="right", va="bottom")
        _strips(axes, strips, left, _range(federation))
    mean = sum(split.effective) / len(split.effective)
    edge = -LETTER * (max(map(len, split.clients)) if few else 6)
    _write(axes, edge, -0.6, heading, fontsize=FONT + 2)
    _write(
        axes,
        edge,
        -0.43,
        f"{mean:.1f} effective classes per client on average",
        fontsize=FONT,
        color="0.4",
    )
    figure.savefig(target, bbox_inches=_drawn(figure, axes))


def _drawn(figure: Figure, axes: Axes) -> Bbox:
    """Return the part of the canvas on which there is something."""
    from matplotlib.transforms import Bbox

    figure.draw_without_rendering()
    box = Bbox.union(
        [artist.get_window_extent() for artist in (*axes.texts, *axes.images)]
    )  # all else lies between
    return box.transformed(figure.dpi_scale_trans.inverted()).padded(0.15)


def _write(axes: Axes, x: float, y: float, text: str, **how: Any) -> None:
    axes.text(x, y, text, **{"fontsize": FONT, "parse_math": False, **how})


def _bubbles(axes: Axes, split: Counts, row: float) -> float:
    """Draw every count as a bubble whose area it is; return the right edge."""
    clients, classes, most = len(split.clients), len(split.classes), int(split.table.max())
    scale = (0.9 * 72 * min(row, COLUMN)) ** 2 / most  # points squared
    look: dict[str, Any] = {"color": COLOUR, "alpha": 0.85, "linewidth": 0}
    axes.hlines(
        (np.arange(clients) + 0.5) * row, 0, classes * COLUMN, color="0.9", linewidth=0.5, zorder=0
    )
    axes.vlines(
        (np.arange(classes) + 0.5) * COLUMN, 0, clients * row, color="0.9", linewidth=0.5, zorder=0
    )
    y, x = np.nonzero(split.table)
    axes.scatter((x + 0.5) * COLUMN, (y + 0.5) * row, s=scale * split.table[y, x], **look)
    _names(axes, split.clients, 0, row)
    bottom = _classes(axes, split.classes, COLUMN, clients * row) + 0.25
    left = 0.2
    for count in legend(most):
        axes.scatter([left], [bottom], s=scale * count, **look)
        _write(axes, left + 0.22, bottom, f"{count:,}", va="center")
        left += 0.6 + LETTER * len(f"{count:,}")
    _write(axes, left - 0.25, bottom, "samples", va="center")
    return classes * COLUMN


def _heat(axes: Axes, split: Counts, row: float) -> float:
    """Draw the counts as shades, with their scale below; return the right edge."""
    from matplotlib import colormaps

    clients, classes = len(split.clients), len(split.classes)
    few = clients <= BUBBLES[0]
    table, each = grouped(split.table)
    most = max(1, round(table.max()))
    width, height = min(classes * COLUMN, LARGE[0]), clients * row if few else LARGE[1]
    shades = colormaps["Reds"].resampled(most + 1 if most <= 10 and each == 1 else 256)
    how: dict[str, Any] = {"cmap": shades, "vmin": 0, "vmax": most, "aspect": "auto"}
    axes.imshow(table, extent=(0, width, height, 0), interpolation="nearest", **how)
    axes.plot([0, width, width, 0, 0], [0, 0, height, height, 0], color="0.4", linewidth=0.5)
    if few:
        _names(axes, split.clients, 0, row)
    else:
        for tick in ticks(clients - 1):
            _write(
                axes, -0.08, (tick + 0.5) * height / clients, f"{tick:,}", ha="right", va="center"
            )
        _write(axes, -0.5, height / 2, "client", rotation=90, ha="right", va="center")
    bottom = _classes(axes, split.classes, width / classes, height) + 0.15
    axes.imshow(
        np.linspace(0, most, shades.N)[None], extent=(0, width, bottom + 0.1, bottom), **how
    )
    for tick in ticks(most):
        place = (tick + 0.5) / (most + 1) if most + 1 == shades.N else tick / most
        _write(axes, place * width, bottom + 0.14, f"{tick:,}", ha="center", va="top")
    unit = "samples" if each == 1 else f"samples, averaged over {each} clients"
    _write(axes, width / 2, bottom + 0.3, unit, ha="center", va="top")
    return width


def legend(most: int) -> list[int]:
    """Return round numbers up to the largest count, far enough apart to be told from each other."""
    top = _rounded(most)
    return sorted({max(1, _rounded(top // 25)), max(1, _rounded(top // 5)), top})


def _rounded(number: int) -> int:
    unit: int = 10 ** (len(str(number)) - 1)
    return number // unit * unit


def grouped(table: NDArray[np.int64]) -> tuple[NDArray[np.float64], int]:
    """Return means over neighbours where there are more clients than a picture has lines, and over
    how many.
    """
    each = -(-len(table) // LINES)
    starts = np.arange(0, len(table), each)
    sizes = np.diff(np.append(starts, len(table)))
    return np.add.reduceat(table, starts, axis=0) / sizes[:, None], each


def ticks(last: int) -> list[int]:
    """Return whole numbers from 0, at most so large."""
    from matplotlib.ticker import MaxNLocator

    return [int(t) for t in MaxNLocator(5, integer=True).tick_values(0, last) if 0 <= t <= last]


def _names(axes: Axes, names: Sequence[str], left: float, row: float) -> None:
    for i, name in enumerate(names):
        _write(axes, left - 0.08, (i + 0.5) * row, name, ha="right", va="center")


def _classes(axes: Axes, names: Sequence[str], column: float, top: float) -> float:
    """Write the classes below the table; return where they end."""
    longest = max(map(len, names))
    shown = ticks(len(names) - 1) if len(names) > BUBBLES[1] else range(len(names))
    if len(names) > BUBBLES[1] or longest <= 3:
        for i in shown:
            text = str(i) if len(names) > BUBBLES[1] else names[i]
            _write(axes, (i + 0.5) * column, top + 0.06, text, ha="center", va="top")
        text = "class" if longest <= 3 else f"class, from {names[0]} to {names[-1]}"
        _write(axes, len(names) * column / 2, top + 0.22, text, ha="center", va="top")
        return top + 0.38
    for i in shown:
        _write(axes, (i + 0.5) * column, top + 0.06, names[i], rotation=90, ha="center", va="top")
    return top + 0.1 + LETTER * longest


def _columns(axes: Axes, split: Counts, left: float, row: float) -> float:
    """Write sizes and effective classes beside the rows; return the right edge."""
    shown = [(f"{n:,}", f"{e:.1f}") for n, e in zip(split.sizes, split.effective, strict=True)]
    for i, pair in enumerate(shown):
        for text, x in zip(pair, (left + 0.6, left + 1.15), strict=True):
            _write(axes, x, (i + 0.5) * row, text, ha="right", va="center")
    for text, x in (("samples", left + 0.6), ("effective\nclasses", left + 1.15)):
        _write(axes, x, -0.06, text, ha="right", va="bottom")
    return left + 1.15


def _bars(axes: Axes, split: Counts, left: float, row: float) -> float:
    """Draw sizes and effective classes as bars beside the rows; return the right edge."""
    step, wide = LARGE[1] / len(split.clients), 0.6
    for name, values, form in (
        ("samples", split.sizes, ",d"),
        ("effective\nclasses", split.effective, ".1f"),
    ):
        left += 0.15
        most = max(values)
        edges = np.arange(len(values) + 1) * step
        bars = left + np.array(values) / most * wide
        axes.stairs(bars, edges, baseline=left, orientation="horizontal", fill=True, color=COLOUR)
        _write(axes, left, -0.06, name, va="bottom")
        axes.vlines(left, 0, LARGE[1], color="0.4", linewidth=0.5)
        _write(axes, left, LARGE[1] + 0.06, "0", va="top")
        _write(axes, left + wide, LARGE[1] + 0.06, format(most, form), ha="right", va="top")
        left += wide
    return left


def _range(federation: Federation) -> tuple[Tensor, Tensor]:
    """Return what is black and what is white, for each channel, as the model sees it."""
    every = torch.linspace(0, len(federation.train.samples) - 1, 500).long()
    some = federation.train.samples.see(every, torch.float32)
    return some.amin(dim=(0, 2, 3)).view(-1, 1, 1), some.amax(dim=(0, 2, 3)).view(-1, 1, 1)


def _strips(axes: Axes, strips: Sequence[Strip], left: float, ends: tuple[Tensor, Tensor]) -> None:
    """Draw the samples and pseudo-samples of each client in a row."""
    low, high = ends
    ratio = strips[0].seen.shape[-1] / strips[0].seen.shape[-2]
    wide, tall = CELL * min(ratio, WIDEST), CELL * min(1, WIDEST / ratio)
    most = max(4, *(len(s.seen) for s in strips))
    blocks = [
        ("samples as the model sees them", most, [s.seen for s in strips]),
        (f"RSM of {MEAN_OF}", MADE, [s.means for s in strips]),
        ("Mixture", MADE, [s.mixtures for s in strips]),
    ]
    for name, columns, rows in blocks:
        if name == "Mixture" and not any(map(len, rows)):
            continue
        _write(axes, left + columns * wide / 2, -0.06, name, ha="center", va="bottom")
        for i, x in enumerate(rows):
            middle = (i + 0.5) * CELL
            for j, image in enumerate(((x - low) / (high - low).clamp(min=1e-6)).clamp(0, 1)):
                edge = left + j * wide
                extent = (
                    edge + 0.01,
                    edge + wide - 0.01,
                    middle + tall / 2 - 0.01,
                    middle - tall / 2 + 0.01,
                )
                shown = image.permute(1, 2, 0).expand(-1, -1, 3).numpy()
                axes.imshow(shown, extent=extent, aspect="auto", interpolation="nearest")
            if not len(x):
                why = f"fewer than {MEAN_OF}\ndifferent samples"
                centre = left + columns * wide / 2
                _write(
                    axes,
                    centre,
                    middle,
                    why,
                    ha="center",
                    va="center",
                    fontsize=FONT - 2,
                    color="0.5",
                )
        left += columns * wide + 0.12
