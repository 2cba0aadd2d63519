"""Curves of a comparison as pictures: for papers, and for the README."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..util.files import write
from ..util.imports import require
from .curves import UNITS, Curve, band

if TYPE_CHECKING:  # matplotlib takes a second to import
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# For the red- and the green-blind too they are 17 or more apart in CIELAB, and all are seen on
# white and on black.
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#6b3fe0", "#7ab85c", "#b8143f", "#4f8df5")
DASHES = ("solid", "dash", "dot", "dashdot")  # when the colours are used up
STYLES = {"solid": "-", "dash": "--", "dot": ":", "dashdot": "-."}
BANDS = len(COLORS)  # more of them hide each other
COLUMN = 3.3  # inches: a column of a paper
BESIDE, WIDE = 22, 46  # characters of labels that fit beside each other in it, and on a line
Curves = Mapping[str, Sequence[Mapping[int, float]]]  # label -> for every seed, round -> accuracy


def look(i: int) -> tuple[str, str]:
    """Return the colour and the dash of the i-th curve."""
    return COLORS[i % len(COLORS)], DASHES[i // len(COLORS) % len(DASHES)]


def convergence_picture(curves: Curves, target: Path, title: str = "") -> None:
    """Draw accuracy by round for a page; the ending of the name chooses PNG or SVG."""
    from matplotlib.figure import Figure

    many = len(curves) > BANDS
    figure = Figure(figsize=(9, 5.4) if many else (7, 3.6), dpi=150, layout="constrained")
    axes = figure.subplots()
    bands = {
        label: band([{r: 100 * v for r, v in s.items()} for s in seeds])
        for label, seeds in curves.items()
    }
    _draw(
        axes,
        {label: Curve(b, {"round": list(map(float, b.rounds))}) for label, b in bands.items()},
        "round",
        2,
    )
    axes.set_title(title, fontsize="medium")
    axes.legend(
        frameon=False,
        **{"loc": "center left", "bbox_to_anchor": (1, 0.5)} if many else {"loc": "lower right"},
    )
    write(target, saved(figure, target.suffix[1:]))


def column_pictures(
    curves: Mapping[str, Curve], unit: str, kinds: Sequence[str]
) -> Iterator[tuple[str, bytes]]:
    """Draw accuracy by round, seconds or megabytes, as wide as a column of a paper; return each
    kind of file.
    """
    with small_print():
        from matplotlib.figure import Figure

        columns = 2 if max(map(len, curves), default=0) <= BESIDE else 1
        lines = -(-sum(shown(label).count("\n") + 1 for label in curves) // columns)
        figure = Figure(figsize=(COLUMN, 2.2 + 0.16 * lines), layout="constrained")
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
            yield kind, saved(figure, kind)


def shown(label: str) -> str:
    """Keep a label from being read as a formula, or as one that is not to be shown, or from leaving
    the picture.
    """
    lines = textwrap.wrap(label, WIDE) or [label]
    return ("\u200b" if label[:1] == "_" else "") + "\n".join(lines).replace("$", r"\$")


def _draw(axes: Axes, curves: Mapping[str, Curve], unit: str, width: float) -> None:
    from matplotlib.ticker import MaxNLocator

    for i, (label, curve) in enumerate(curves.items()):
        color, dash = look(i)
        x, found, whole = curve.places[unit], curve.band, curve.band.whole
        style: dict[str, Any] = {"color": color, "linestyle": STYLES[dash], "linewidth": width}
        dots = {"marker": "o", "markersize": 4} if whole == 1 else {}
        axes.plot(x[:whole], found.mean[:whole], label=shown(label), **style | dots)
        if (start := max(0, whole - 1)) < len(x) - 1:  # behind it, seeds are unfinished or diverged
            axes.plot(x[start:], found.mean[start:], **style | {"linewidth": width / 2})
        if found.low != found.high and len(curves) <= BANDS:
            axes.fill_between(x, found.low, found.high, color=color, alpha=0.15, linewidth=0)
    highest = max((max(curve.band.high, default=0.0) for curve in curves.values()), default=0.0)
    axes.set(
        xlabel=UNITS[unit],
        ylabel="accuracy of the global model, %",
        ylim=(0, 50 if highest < 45 else 100),
    )
    axes.xaxis.set_major_locator(MaxNLocator(nbins="auto", integer=unit == "round"))
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


@contextmanager
def small_print(**other: float) -> Iterator[None]:
    """Use sizes that can be read in print, fonts that publishers accept, and the same bytes every
    time.

    ``other``: settings of matplotlib, the first dot as an underscore.
    """
    require("matplotlib", extra="report", wanted_by="figures")
    import matplotlib as mpl

    sizes: dict[Any, Any] = {
        "font.size": 8,
        "axes.labelsize": 8,
        "xtick.labelsize": 7,
        "ytick.labelsize": 7,
        "legend.fontsize": 7,
    }
    sizes |= {key.replace("_", ".", 1): value for key, value in other.items()}
    with mpl.rc_context(
        {**sizes, "pdf.fonttype": 42, "svg.hashsalt": "fedbr", "axes.linewidth": 0.6}
    ):
        yield


def saved(figure: Figure, kind: str) -> bytes:
    """Return a picture as bytes, which are the same every time."""
    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    content = BytesIO()
    dpi = 300 if figure.get_figwidth() <= COLUMN else figure.dpi
    figure.savefig(content, format=kind, dpi=dpi, metadata=undated.get(kind))
    return content.getvalue()
