"""The curves of a page: plotly figures, one for every choice of axes, and the HTML around them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from ..run.results import RunResult
from . import summary
from .compare import VariantResults
from .curves import MEASURES, UNITS, Curve, curve, measured, spent
from .page import Figures, View, paragraphs, sample, switch
from .read import ReportFolder
from .style import BANDS, Options, look

Trace = Any  # a part of a plotly figure, of which plotly publishes no type

UNIT_BUTTONS = {"round": "rounds", "seconds": "seconds", "megabytes": "megabytes"}
MEASURE_BUTTONS = {"accuracy": "all test sets", "accuracy_worst": "worst client"}
TICKS_FOR_ALL = 10  # rounds that have a tick each
INK, MUTED, GRID = "#1b1f24", "#5b6470", "#e9ecf0"  # of a saved picture; page.css has the page's
AXIS = {
    "gridcolor": GRID,
    "linecolor": GRID,
    "zeroline": False,
    "ticks": "outside",
    "tickcolor": GRID,
    "title": {"standoff": 12},
}
WHERE = "round %{customdata[0]} · %{customdata[1]:.4~r} s · %{customdata[2]:.4~r} MB"
TEMPLATE: Options = {  # what all figures have in common
    "layout": {
        "font": {"family": "system-ui, sans-serif", "size": 13, "color": INK},
        "paper_bgcolor": "#ffffff",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "hoverlabel": {
            "bgcolor": INK,
            "bordercolor": INK,
            "font": {"color": "#ffffff"},
            "align": "left",
        },
        "modebar": {"bgcolor": "rgba(0,0,0,0)"},
        "hovermode": "closest",
        "showlegend": False,
        "xaxis": AXIS,
        "yaxis": AXIS,
    },
    "data": {
        "scatter": [
            {
                "mode": "lines",
                "hovertemplate": "<b>%{fullData.name}</b><br>%{y:.4~r} %%{text}<br>"
                f"{WHERE}<extra></extra>",
            }
        ]
    },
}


@dataclass(frozen=True)
class Line:
    """A variant as it is drawn."""

    label: str
    runs: Sequence[RunResult]
    group: str  # what its button hides and shows
    color: str
    dash: str
    curves: Mapping[str, Curve]  # by measure

    @property
    def style(self) -> Options:
        """What all traces of the variant have in common."""
        return {"legendgroup": self.group, "name": escape_markup(self.label)}

    @property
    def tested_diverged(self) -> list[RunResult]:
        """The runs that diverged after a test."""
        return [run for run in self.runs if run.diverged and measured(run)]


def curves_figure(folders: Sequence[ReportFolder], figures: Figures) -> str:
    """Draw the curves of one or several folders together.

    Args:
        folders: whose variants are drawn.
        figures: those of the page, to which this one is added.

    Returns:
        The HTML in which it is drawn.
    """
    lines = _make_lines(folders)
    if not any(line.curves["accuracy"].band.rounds for line in lines):
        return paragraphs(["No round is tested yet, so there is no curve."])
    target = 100 * folders[0].recipe.metrics.target
    views = {}
    for unit in UNITS:
        for measure in MEASURES:
            views[f"{unit} {measure}"] = _draw_view(lines, unit, measure, target)
    buttons = []
    for line in lines:
        button = f'<button type="button" data-group="{line.group}" aria-pressed="true">'
        buttons.append(f"{button}{sample(line.color, line.dash)}{escape(line.label)}</button>")
    return (
        f'<figure class="curves" data-figure="{figures.add(views)}" data-bands="{BANDS}">'
        '<div class="bar">'
        + switch("unit", "Horizontal axis", UNIT_BUTTONS)
        + switch("measure", "Vertical axis", MEASURE_BUTTONS)
        + '</div><div class="plot" role="img" aria-label="Accuracy while training"></div>'
        + '<div class="legend" role="group" aria-label="Curves: press to hide or show">'
        + f"{''.join(buttons)}</div>"
        + f"<figcaption>{escape(_caption(lines, target))}</figcaption></figure>"
    )


def escape_markup(label: str) -> str:
    """Return a label that plotly shows as it is, and not as markup.

    >>> escape_markup("<b> & 'c'")
    "&lt;b&gt; &amp; 'c'"
    """
    return escape(label, quote=False)


def _make_lines(folders: Sequence[ReportFolder]) -> list[Line]:
    lines: list[Line] = []
    for folder in folders:
        for variant in folder.begun:
            label = variant.label
            if len(folders) > 1:
                label += f" · {folder.name}"
            lines.append(_make_line(variant, label, len(lines)))
    return lines


def _make_line(variant: VariantResults, label: str, i: int) -> Line:
    color, dash = look(i)
    curves = {measure: curve(variant.runs, measure) for measure in MEASURES}
    return Line(label, variant.runs, str(i), color, dash, curves)


def _caption(lines: Sequence[Line], target: float) -> str:
    """Say what the figure shows, of what is there to be seen."""
    several_seeds = some_missing = False
    for line in lines:
        lengths = [len(run.rounds) for run in line.runs if run.rounds]
        several_seeds |= len(lengths) > 1
        some_missing |= len(set(lengths)) > 1
    sentences = ["Press a name to hide its curve, twice to see it alone."]
    if several_seeds:
        when = f", drawn while at most {BANDS} curves are shown" if len(lines) > BANDS else ""
        sentences.append("Line: mean over seeds, of seconds and megabytes too.")
        sentences.append(f"Band: from the lowest to the highest seed{when}.")
    if some_missing:
        sentences.append("Thin: not all seeds have come so far.")
    if any(line.tested_diverged for line in lines):
        sentences.append("Cross: a run diverged.")
    sentences.append(f"Dotted: the target, {target:g} %.")
    return " ".join(sentences)


def _draw_view(lines: Sequence[Line], unit: str, measure: str, target: float) -> View:
    """Draw all curves over one unit."""
    import plotly.graph_objects as go

    traces = []
    last_round = 0
    for line in lines:
        traces += _draw_line(line, unit, measure)
        if measure == "accuracy":
            traces += _draw_crosses(line, unit)
        last_round = max([last_round, *line.curves["accuracy"].band.rounds[-1:]])
    x_axis = _axis(UNITS[unit])
    if unit == "round" and last_round <= TICKS_FOR_ALL:
        x_axis["dtick"] = 1
    layout = {
        "template": TEMPLATE,
        "margin": {"l": 52, "r": 12, "t": 12, "b": 48},
        "uirevision": f"{unit} {measure}",  # what was zoomed stays so while the axes are the same
        "xaxis": x_axis,
        "yaxis": _axis(MEASURES[measure]),
    }
    figure = go.Figure(traces, layout)
    if measure == "accuracy":
        figure.add_hline(target, line={"color": MUTED, "width": 1, "dash": "dot"})
    return figure


def _axis(title: str) -> Options:
    return {"title": {"text": title}, "rangemode": "tozero"}


def _draw_line(line: Line, unit: str, measure: str) -> list[Trace]:
    """Draw a variant: the band, the mean, and thinner what does not rest on all seeds."""
    curve = line.curves[measure]
    whole, count = curve.band.whole, len(curve.band.rounds)
    traces = []
    if curve.band.low != curve.band.high:
        traces += _draw_band(line, curve, unit)
    if whole:
        traces.append(_draw_mean(line, curve, unit, range(whole), width=2.2))
    if whole < count:
        rest = range(max(0, whole - 1), count)
        traces.append(_draw_mean(line, curve, unit, rest, width=1))
    return traces


def _draw_band(line: Line, curve: Curve, unit: str) -> list[Trace]:
    """Draw the lowest and the highest seed without a line, and fill what is between them."""
    import plotly.graph_objects as go

    red, green, blue = (int(line.color[i : i + 2], 16) for i in (1, 3, 5))
    bare = line.style | {"meta": "band", "hoverinfo": "skip", "line": {"width": 0}}
    x = _round_all(curve.places[unit])
    low = go.Scatter(x=x, y=_round_all(curve.band.low), **bare)
    high = go.Scatter(x=x, y=_round_all(curve.band.high), **bare)
    high.update(fill="tonexty", fillcolor=f"rgba({red},{green},{blue},0.16)")
    return [low, high]


def _draw_mean(line: Line, curve: Curve, unit: str, points: range, width: float) -> Trace:
    """Draw some points of the mean; a single one is a dot."""
    import plotly.graph_objects as go

    part = slice(points.start, points.stop)
    x = _round_all(curve.places[unit][part])
    y = _round_all(curve.band.mean[part])
    low = _round_all(curve.band.low[part])
    high = _round_all(curve.band.high[part])
    ranges: str | list[str] = ""
    if low != high:
        bounds = zip(low, high, strict=True)
        ranges = [f" ({lowest:g} to {highest:g})" for lowest, highest in bounds]
    spending = []
    for i in points:
        spending.append(_round_all([curve.places[unit][i] for unit in UNITS]))
    trace = go.Scatter(
        line.style,
        x=x,
        y=y,
        text=ranges,
        customdata=spending,
        line={"color": line.color, "dash": line.dash, "width": width},
    )
    if len(x) == 1:
        trace.update(mode="markers", marker={"color": line.color, "size": 8})
    return trace


def _draw_crosses(line: Line, unit: str) -> list[Trace]:
    """Mark where runs diverged."""
    import plotly.graph_objects as go

    x, y, texts = [], [], []
    for run in line.tested_diverged:
        accuracy = measured(run)
        last = max(accuracy)
        x.append(spent(run)[unit][last])
        y.append(accuracy[last])
        texts.append(escape_markup(summary.divergence(run)))
    if not texts:
        return []
    crosses = go.Scatter(
        line.style,
        x=_round_all(x),
        y=_round_all(y),
        text=texts,
        marker={"symbol": "x", "size": 10, "color": line.color},
        hovertemplate="%{fullData.name}: %{text}<extra></extra>",
    )
    crosses.update(mode="markers")
    return [crosses]


def _round_all(values: Sequence[float]) -> list[float]:
    """Keep as many digits as can be seen."""
    rounded = [float(f"{value:.4g}") for value in values]
    return [int(value) if value.is_integer() else value for value in rounded]
