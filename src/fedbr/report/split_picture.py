"""The picture of a split: a table of clients and classes, and rows of samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..data import Federation
from ..util.files import write
from .gallery import MADE, MEAN_OF, Counts, Strip, counts, samples
from .style import figure_style, image_bytes

if TYPE_CHECKING:  # matplotlib takes a second to import
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BUBBLES = (40, 20)  # clients and classes up to which counts are bubbles; beyond it is a heat map
LINES = 500  # that a heat map can show
COLOUR = "#d1495b"
FONT = 8
PLAIN: dict[str, Any] = {"parse_math": False}  # a name of the user's is no formula

# Inches.
CELL, THIN = 0.5, 0.24  # height of a row with samples and without
COLUMN = 0.36  # width of a class
LARGE = (4.0, 5.0)  # size of a table that has no room for rows and columns of this size
NUMBERS, BARS = 0.5, 0.6  # width of a column of numbers, and of one of bars
HEADING, BELOW = 0.26, 0.1  # height of the heading, and of the scale below the table
WIDEST = 1.5  # an image that is wider than high by more is drawn smaller


@dataclass(frozen=True)
class Block:
    """Images of one kind, in a row for each client."""

    title: str
    columns: int
    rows: Sequence[Tensor]  # of each client: [images, channels, height, width]


def draw_split(federation: Federation, target: Path, heading: str, clients: Sequence[str]) -> None:
    """Draw the split and samples.

    target: the file; the ending of its name chooses PNG or SVG. clients: their names.
    """
    sizes = {"font_size": FONT, "xtick_labelsize": FONT, "ytick_labelsize": FONT}
    sizes |= {"axes_titlesize": FONT, "legend_fontsize": FONT}
    with figure_style(**sizes):
        figure = split_figure(federation, heading, clients)
        write(target, image_bytes(figure, target.suffix[1:], tight=True))


def split_figure(federation: Federation, heading: str, clients: Sequence[str]) -> Figure:
    """Draw the split and samples: the table, two columns of numbers, and the images beside it."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    split, few = counts(federation, clients), len(clients) <= BUBBLES[0]
    rows = int(LARGE[1] / CELL)  # of samples
    most = max(rows, int(len(clients) * THIN / CELL)) if few else rows
    strips = samples(federation, most)
    aligned = len(clients) <= rows  # samples stand in the row of their client
    height = max(len(clients) * THIN, len(strips) * CELL) if few else LARGE[1]
    width = len(split.classes) * COLUMN
    with_bubbles = few and len(split.classes) <= BUBBLES[1]
    if not with_bubbles:
        width = min(width, LARGE[0])
    blocks, cell = _blocks(strips), _cell_size(strips)
    widths = [width, *[NUMBERS if few else BARS] * 2]
    widths += [block.columns * cell[0] for block in blocks]
    heights = [HEADING, height] if with_bubbles else [HEADING, height, BELOW]

    figure = Figure(figsize=(sum(widths) + 2, sum(heights) + 1), dpi=150)
    figure.set_layout_engine(ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.06))
    size = len(heights), len(widths)
    grid = figure.add_gridspec(*size, width_ratios=widths, height_ratios=heights)
    # No axes span several columns: then the gaps between all columns would be the same.
    _write_heading(figure, figure.add_subplot(grid[0, 0]), heading, split)
    table = figure.add_subplot(grid[1, 0])
    if with_bubbles:
        draw_bubbles(figure, table, split, height / len(clients))
    else:
        draw_heat_map(figure, table, figure.add_subplot(grid[2, 0]), split)
    draw_column = draw_numbers if few else draw_bars
    draw_column(figure.add_subplot(grid[1, 1]), "samples", split.sizes, ",d")
    draw_column(figure.add_subplot(grid[1, 2]), "effective\nclasses", split.effective, ".1f")
    ends = _range(federation) if blocks else None
    for i, block in enumerate(blocks):
        axes = figure.add_subplot(grid[1, 3 + i])
        axes.set_ylim(height / CELL - 0.5, -0.5)
        draw_images(axes, block, cell, ends)
        if i == 0 and not aligned:
            _name_rows(axes, split.clients[: len(strips)], len(clients))
    _fit(figure, table, widths, heights)
    return figure


def _fit(figure: Figure, table: Axes, widths: Sequence[float], heights: Sequence[float]) -> None:
    """Give the figure the size in which rows and columns have theirs, whatever stands beside."""
    figure.draw_without_rendering()
    box = table.get_window_extent().transformed(figure.dpi_scale_trans.inverted())
    more_width = sum(widths) * (1 - box.width / widths[0])
    more_height = sum(heights) * (1 - box.height / heights[1])
    width, height = figure.get_size_inches()
    figure.set_size_inches(width + more_width, height + more_height)


def _write_heading(figure: Figure, axes: Axes, heading: str, split: Counts) -> None:
    """Write the heading at the place of some axes; it may be wider than the figure."""
    axes.axis("off")
    mean = sum(split.effective) / len(split.effective)
    words = f"{mean:.1f} effective classes per client on average"
    place: dict[str, Any] = {"transform": axes.transAxes, "va": "center", **PLAIN}
    figure.text(0, 0.9, heading, fontsize=FONT + 2, **place)
    figure.text(0, 0.2, words, color="0.4", **place)


def draw_bubbles(figure: Figure, axes: Axes, split: Counts, row: float) -> None:
    """Draw every count as a bubble whose area it is, with a legend at the foot of the figure.

    row: height of a row, in inches.
    """
    from matplotlib.lines import Line2D

    clients, classes, most = len(split.clients), len(split.classes), int(split.table.max())
    scale = (0.9 * 72 * min(row, COLUMN)) ** 2 / most  # square points per sample
    look: dict[str, Any] = {"color": COLOUR, "alpha": 0.85}
    y, x = np.nonzero(split.table)
    axes.scatter(x, y, s=scale * split.table[y, x], linewidth=0, **look)
    axes.set(xlim=(-0.5, classes - 0.5), ylim=(clients - 0.5, -0.5))
    axes.set_yticks(range(clients), split.clients, **PLAIN)
    _name_classes(axes, split.classes)
    axes.grid(color="0.9", linewidth=0.5)
    axes.set_axisbelow(True)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    handles = []
    for count in legend_counts(most):
        size = (scale * count) ** 0.5
        style: dict[str, Any] = {"marker": "o", "linestyle": "", "markeredgewidth": 0}
        handles.append(Line2D([], [], markersize=size, label=f"{count:,}", **style, **look))
    handles[-1].set_label(f"{handles[-1].get_label()} samples")
    figure.legend(handles=handles, loc="outside lower left", ncols=len(handles), frameon=False)


def draw_heat_map(figure: Figure, axes: Axes, below: Axes, split: Counts) -> None:
    """Draw the counts as shades.

    below: where the scale goes.
    """
    from matplotlib import colormaps
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    clients, classes = len(split.clients), len(split.classes)
    table, each = group_rows(split.table)
    most = max(1, round(table.max()))
    shades: dict[str, Any] = {"cmap": "Reds", "vmin": 0, "vmax": most}
    if most <= 10 and each == 1:  # a shade for every number
        steps = colormaps["Reds"].resampled(most + 1)
        shades = {"cmap": steps, "vmin": -0.5, "vmax": most + 0.5}
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
    """Return round numbers up to the largest count, far enough apart to be told from each other.

    >>> legend_counts(5958)
    [200, 1000, 5000]
    """
    top = _round_down(most)
    return sorted({max(1, _round_down(top // 25)), max(1, _round_down(top // 5)), top})


def _round_down(number: int) -> int:
    unit: int = 10 ** (len(str(number)) - 1)
    return number // unit * unit


def group_rows(table: NDArray[np.int64]) -> tuple[NDArray[np.float64], int]:
    """Return means over neighbours where there are more clients than a picture has lines.

    Returns the means, and over how many clients they are.
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


def _blocks(strips: Sequence[Strip]) -> list[Block]:
    """Put what is shown of the clients beside each other: samples, their means, mixtures."""
    if not strips:
        return []
    most = max(4, *(len(strip.seen) for strip in strips))
    blocks = [
        Block("samples as the model sees them", most, [strip.seen for strip in strips]),
        Block(f"RSM of {MEAN_OF}", MADE, [strip.means for strip in strips]),
    ]
    if any(len(strip.mixtures) for strip in strips):
        blocks.append(Block("Mixture", MADE, [strip.mixtures for strip in strips]))
    return blocks


def _cell_size(strips: Sequence[Strip]) -> tuple[float, float]:
    """Return width and height of an image, in inches."""
    if not strips:
        return CELL, CELL
    height, width = strips[0].seen.shape[-2:]
    ratio = width / height
    return CELL * min(ratio, WIDEST), CELL * min(1, WIDEST / ratio)


def _range(federation: Federation) -> tuple[Tensor, Tensor]:
    """Return what is black and what is white, for each channel, as the model sees it."""
    every = torch.linspace(0, len(federation.train.samples) - 1, 500).long()
    some = federation.train.samples.see(every, torch.float32)
    return some.amin(dim=(0, 2, 3)).view(-1, 1, 1), some.amax(dim=(0, 2, 3)).view(-1, 1, 1)


def draw_images(
    axes: Axes, block: Block, cell: tuple[float, float], ends: tuple[Tensor, Tensor] | None
) -> None:
    """Draw the images of each client in a row.

    cell: width and height of an image. ends: what is black, and what is white.
    """
    axes.set_title(block.title)
    axes.set(xlim=(0, block.columns), xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    margin, half = 0.01 / cell[0], cell[1] / CELL / 2 - 0.01 / CELL
    for row, images in enumerate(block.rows):
        if not len(images):
            words = f"fewer than {MEAN_OF}\ndifferent samples"
            place: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": FONT - 2}
            axes.text(block.columns / 2, row, words, color="0.5", **place)
        for column, image in enumerate(images):
            assert ends is not None
            low, high = ends
            scaled = ((image - low) / (high - low).clamp(min=1e-6)).clamp(0, 1)
            pixels = scaled.permute(1, 2, 0).expand(-1, -1, 3).numpy()
            extent = (column + margin, column + 1 - margin, row + half, row - half)
            axes.imshow(pixels, extent=extent, aspect="auto", interpolation="nearest")
    axes.set_autoscale_on(False)


def _name_rows(axes: Axes, names: Sequence[str], everybody: int) -> None:
    """Write whose samples a row shows, where the rows are not those of the table."""
    axes.set_yticks(range(len(names)), names, **PLAIN)
    axes.tick_params(length=0)
    words = f"clients 0 to {len(names) - 1}\nof {everybody:,}"
    axes.annotate(
        words,
        (0, 1),
        xycoords="axes fraction",
        xytext=(-4, 5),
        textcoords="offset points",
        ha="right",
        va="bottom",
    )
