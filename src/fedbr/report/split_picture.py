"""The picture of a split: a table of clients and classes (split_table.py), and rows of samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..data import Federation
from ..util.files import write
from .gallery import MADE, MEAN_OF, Counts, Strip, choose_samples, count_samples
from .split_table import (
    BUBBLES,
    COLUMN,
    PLAIN,
    draw_bars,
    draw_bubbles,
    draw_heat_map,
    draw_numbers,
)
from .style import figure_style, image_bytes

if TYPE_CHECKING:  # matplotlib takes a second to import
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FONT = 8

# Inches.
CELL, THIN = 0.5, 0.24  # height of a row with samples and without
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

    Args:
        federation: what is drawn.
        target: the file; the ending of its name chooses PNG or SVG.
        heading: of the picture.
        clients: their names.
    """
    style = figure_style(
        font_size=FONT,
        xtick_labelsize=FONT,
        ytick_labelsize=FONT,
        axes_titlesize=FONT,
        legend_fontsize=FONT,
    )
    with style:
        figure = split_figure(federation, heading, clients)
        write(target, image_bytes(figure, target.suffix[1:], tight=True))


def split_figure(federation: Federation, heading: str, clients: Sequence[str]) -> Figure:
    """Draw the split and samples: the table, two columns of numbers, and the images beside it."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    split = count_samples(federation, clients)
    few_clients = len(clients) <= BUBBLES[0]
    with_bubbles = few_clients and len(split.classes) <= BUBBLES[1]

    rows = int(LARGE[1] / CELL)  # of samples
    is_aligned = len(clients) <= rows  # samples stand in the row of their client
    if few_clients:
        rows = max(rows, int(len(clients) * THIN / CELL))
    strips = choose_samples(federation, rows)
    blocks, cell = _make_blocks(strips), _cell_size(strips)

    height, number_width = LARGE[1], BARS
    if few_clients:
        height, number_width = max(len(clients) * THIN, len(strips) * CELL), NUMBERS
    width = len(split.classes) * COLUMN
    if not with_bubbles:
        width = min(width, LARGE[0])
    widths = [width, number_width, number_width]
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
    draw_column = draw_numbers if few_clients else draw_bars
    draw_column(figure.add_subplot(grid[1, 1]), "samples", split.sizes, ",d")
    draw_column(figure.add_subplot(grid[1, 2]), "effective\nclasses", split.effective, ".1f")
    ends = _black_and_white(federation) if blocks else None
    for i, block in enumerate(blocks):
        axes = figure.add_subplot(grid[1, 3 + i])
        axes.set_ylim(height / CELL - 0.5, -0.5)
        draw_images(axes, block, cell, ends)
        if i == 0 and not is_aligned:
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
    line = f"{mean:.1f} effective classes per client on average"
    place = axes.transAxes
    figure.text(0, 0.9, heading, fontsize=FONT + 2, transform=place, va="center", **PLAIN)
    figure.text(0, 0.2, line, color="0.4", transform=place, va="center", **PLAIN)


def _make_blocks(strips: Sequence[Strip]) -> list[Block]:
    """Put what is shown of the clients beside each other: samples, their means, mixtures."""
    if not strips:
        return []
    columns = max(4, *(len(strip.samples) for strip in strips))
    blocks = [
        Block("samples as the model sees them", columns, [strip.samples for strip in strips]),
        Block(f"RSM of {MEAN_OF}", MADE, [strip.means for strip in strips]),
    ]
    if any(len(strip.mixtures) for strip in strips):
        blocks.append(Block("Mixture", MADE, [strip.mixtures for strip in strips]))
    return blocks


def _cell_size(strips: Sequence[Strip]) -> tuple[float, float]:
    """Return width and height of an image, in inches."""
    if not strips:
        return CELL, CELL
    height, width = strips[0].samples.shape[-2:]
    ratio = width / height
    return CELL * min(ratio, WIDEST), CELL * min(1, WIDEST / ratio)


def _black_and_white(federation: Federation) -> tuple[Tensor, Tensor]:
    """Return the values of black and white, for each channel, as the model sees them."""
    places = torch.linspace(0, len(federation.train.samples) - 1, 500).long()
    some = federation.train.samples.see(places, torch.float32)
    return some.amin(dim=(0, 2, 3)).view(-1, 1, 1), some.amax(dim=(0, 2, 3)).view(-1, 1, 1)


def draw_images(
    axes: Axes, block: Block, cell: tuple[float, float], ends: tuple[Tensor, Tensor] | None
) -> None:
    """Draw the images of each client in a row.

    Args:
        axes: get the images.
        block: the images.
        cell: width and height of an image, in inches.
        ends: the values of black and white, for each channel; None: there is no image.
    """
    axes.set_title(block.title)
    axes.set(xlim=(0, block.columns), xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    margin, half = 0.01 / cell[0], cell[1] / CELL / 2 - 0.01 / CELL
    for row, images in enumerate(block.rows):
        if not len(images):
            axes.text(
                block.columns / 2,
                row,
                f"fewer than {MEAN_OF}\ndifferent samples",
                ha="center",
                va="center",
                fontsize=FONT - 2,
                color="0.5",
            )
        for column, image in enumerate(images):
            assert ends is not None
            low, high = ends
            scaled = ((image - low) / (high - low).clamp(min=1e-6)).clamp(0, 1)
            pixels = scaled.permute(1, 2, 0).expand(-1, -1, 3).numpy()
            extent = (column + margin, column + 1 - margin, row + half, row - half)
            axes.imshow(pixels, extent=extent, aspect="auto", interpolation="nearest")
    axes.set_autoscale_on(False)


def _name_rows(axes: Axes, names: Sequence[str], clients: int) -> None:
    """Write whose samples a row shows, where the rows are not those of the table."""
    axes.set_yticks(range(len(names)), names, **PLAIN)
    axes.tick_params(length=0)
    axes.annotate(
        f"clients 0 to {len(names) - 1}\nof {clients:,}",
        (0, 1),
        xycoords="axes fraction",
        xytext=(-4, 5),
        textcoords="offset points",
        ha="right",
        va="bottom",
    )
