"""How all pictures look: colours, sizes of letters, labels, and files that are always the same."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import TYPE_CHECKING, Any

from ..util.imports import require

if TYPE_CHECKING:  # matplotlib takes a second to import
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Options = dict[str, Any]  # keyword arguments of matplotlib or plotly

# For the red- and the green-blind too they are 17 or more apart in CIELAB, and all are seen on
# white and on black.
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#6b3fe0", "#7ab85c", "#b8143f", "#4f8df5")
DASHES = ("solid", "dash", "dot", "dashdot")  # when the colours are used up
BANDS = len(COLORS)  # more of them hide each other
COLUMN = 3.3  # inches: a column of a paper
WIDE = 46  # characters of a label that fit on a line of it


def look(i: int) -> tuple[str, str]:
    """Return the colour and the dash of the i-th curve.

    >>> look(0), look(len(COLORS))
    (('#0072b2', 'solid'), ('#0072b2', 'dash'))
    """
    return COLORS[i % len(COLORS)], DASHES[i // len(COLORS) % len(DASHES)]


def escape_label(label: str) -> str:
    """Return a label as matplotlib shows it as it is: neither as a formula nor hidden.

    A long one is broken, so that it does not leave the picture.
    """
    lines = textwrap.wrap(label, WIDE) or [label]
    escaped = "\n".join(lines).replace("$", r"\$")
    if label.startswith("_"):  # which a legend would hide
        escaped = "\u200b" + escaped
    return escaped


def light_grid(axes: Axes) -> None:
    """Draw a light grid, and no frame at the top and on the right."""
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


@contextmanager
def figure_style(**settings: float) -> Iterator[None]:
    """Use sizes that can be read in print, fonts that publishers accept, and always the same bytes.

    Args:
        settings: of matplotlib, the first dot as an underscore.
    """
    require("matplotlib", extra="report", needed_by="figures")
    import matplotlib as mpl

    style: dict[Any, Any] = {
        "font.size": 8,
        "axes.labelsize": 8,
        "xtick.labelsize": 7,
        "ytick.labelsize": 7,
        "legend.fontsize": 7,
        "pdf.fonttype": 42,
        "svg.hashsalt": "fedbr",
        "axes.linewidth": 0.6,
    }
    for name, value in settings.items():
        style[name.replace("_", ".", 1)] = value
    with mpl.rc_context(style):
        yield


def image_bytes(figure: Figure, kind: str, tight: bool = False) -> bytes:
    """Return a picture as a file's bytes, which are the same every time.

    Args:
        figure: the picture.
        kind: png, svg or pdf.
        tight: show just what is drawn, even beyond the edges of the figure.
    """
    without_dates = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    options: Options = {"metadata": without_dates.get(kind)}
    if tight:
        options |= {"bbox_inches": "tight", "pad_inches": 0.15}
    dpi = 300 if figure.get_figwidth() <= COLUMN else figure.dpi
    content = BytesIO()
    figure.savefig(content, format=kind, dpi=dpi, **options)
    return content.getvalue()
