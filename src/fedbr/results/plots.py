"""Curves of a comparison: interactive for the page, and as a picture for papers and the README."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

COLORS = ("#4c6a92", "#d1495b", "#66a182", "#edae49", "#8d6a9f", "#00798c", "#9c6644", "#6c757d")
DASHES = ("solid", "dash", "dot", "dashdot")  # when the colours are used up
Curves = Mapping[str, Sequence[Mapping[int, float]]]  # label -> for every seed, round -> accuracy


def band(seeds: Sequence[Mapping[int, float]]) -> tuple[list[int], list[float], list[float], list[float]]:
    """Return rounds, and the mean, lowest and highest accuracy in percent, where all seeds have been tested."""
    rounds = sorted(set.intersection(*(set(s) for s in seeds))) if seeds else []
    columns = [[100 * s[r] for s in seeds] for r in rounds]
    return (
        rounds,
        [statistics.fmean(c) for c in columns],
        [min(c) for c in columns],
        [max(c) for c in columns],
    )


def _look(i: int) -> tuple[str, str]:
    """Return the colour and the dash of the i-th curve."""
    return COLORS[i % len(COLORS)], DASHES[i // len(COLORS) % len(DASHES)]


def convergence_html(curves: Curves, with_script: bool) -> str:
    """Draw accuracy by round with plotly; the script goes into the page once."""
    import plotly.graph_objects as go

    figure = go.Figure()
    for i, (label, seeds) in enumerate(curves.items()):
        rounds, mean, low, high = band(seeds)
        name, color, dash = escape(label), *_look(i)
        if len(seeds) > 1 and len(curves) <= len(COLORS):  # more bands than that hide each other
            figure.add_scatter(
                x=rounds + rounds[::-1], y=high + low[::-1], fill="toself", fillcolor=color, opacity=0.15,
                line_width=0, legendgroup=name, showlegend=False, hoverinfo="skip",
            )  # fmt: skip
        figure.add_scatter(
            x=rounds, y=mean, name=name, legendgroup=name, line_color=color, line_dash=dash, mode="lines"
        )
    figure.update_layout(
        template="plotly_white", xaxis_title="round", xaxis_tickformat=",d", showlegend=True, legend_orientation="h",
        yaxis_title="accuracy of the global model, %", margin={"l": 60, "r": 20, "t": 30, "b": 50}, height=420,
    )  # fmt: skip
    html: str = figure.to_html(full_html=False, include_plotlyjs=with_script, config={"displaylogo": False})
    return html


def convergence_picture(curves: Curves, target: Path, title: str = "") -> None:
    """Draw the same with matplotlib; the ending of the name chooses PNG or SVG."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    many = len(curves) > len(COLORS)
    figure = Figure(figsize=(9, 5.4) if many else (7, 3.6), dpi=150, layout="constrained")
    axes = figure.subplots()
    for i, (label, seeds) in enumerate(curves.items()):
        rounds, mean, low, high = band(seeds)
        color, dash = _look(i)
        style = {"solid": "-", "dash": "--", "dot": ":", "dashdot": "-."}[dash]
        axes.plot(rounds, mean, style, color=color, label=label.replace("$", r"\$"), linewidth=2)
        if len(seeds) > 1 and not many:
            axes.fill_between(rounds, low, high, color=color, alpha=0.15, linewidth=0)
    highest = max((max(band(seeds)[3], default=0.0) for seeds in curves.values()), default=0.0)
    axes.set(xlabel="round", ylabel="accuracy of the global model, %", ylim=(0, 50 if highest < 45 else 100))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_title(title, fontsize="medium")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, **{"loc": "center left", "bbox_to_anchor": (1, 0.5)} if many else {"loc": "lower right"})
    figure.savefig(target)
