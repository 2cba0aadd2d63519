"""The curves of a page: plotly figures, one for every choice of axes, and the HTML around them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from ..run.results import RunResult
from . import words
from .compare import VariantResults
from .curves import MEASURES, UNITS, Curve, curve, measured, spent
from .page import Figures, View, paragraphs, sample, switch
from .read import ReportFolder
from .style import BANDS, look

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
TEMPLATE: dict[str, Any] = {  # what all figures have in common
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
    def style(self) -> dict[str, Any]:
        """What all traces of the variant have in common."""
        return {"legendgroup": self.group, "name": text(self.label)}


def curves_figure(folders: Sequence[ReportFolder], figures: Figures) -> str:
    """Draw the curves of one or several folders together.

    figures: those of the page, to which this one is added. Returns the HTML in which it is drawn.
    """
    lines = _lines(folders)
    if not any(line.curves["accuracy"].band.rounds for line in lines):
        return paragraphs(["No round is tested yet, so there is no curve."])
    target = 100 * folders[0].recipe.metrics.target
    views = {}
    for unit in UNITS:
        for measure in MEASURES:
            views[f"{unit} {measure}"] = _view(lines, unit, measure, target)
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


def text(label: str) -> str:
    """Return a label that plotly shows as it is, and not as markup."""
    return escape(label, quote=False)


def _lines(folders: Sequence[ReportFolder]) -> list[Line]:
    lines: list[Line] = []
    for folder in folders:
        for variant in folder.begun:
            label = variant.label
            if len(folders) > 1:
                label += f" · {folder.name}"
            lines.append(_line(variant, label, len(lines)))
    return lines


def _line(variant: VariantResults, label: str, i: int) -> Line:
    color, dash = look(i)
    curves = {measure: curve(variant.runs, measure) for measure in MEASURES}
    return Line(label, variant.runs, str(i), color, dash, curves)


def _caption(lines: Sequence[Line], target: float) -> str:
    """Say what the figure shows."""
    rounds = [[len(run.rounds) for run in line.runs if run.rounds] for line in lines]
    said = ["Press a name to hide its curve, twice to see it alone."]
    if any(len(seeds) > 1 for seeds in rounds):
        when = f", drawn while at most {BANDS} curves are shown" if len(lines) > BANDS else ""
        said.append("Line: mean over seeds, of seconds and megabytes too.")
        said.append(f"Band: from the lowest to the highest seed{when}.")
    if any(len(set(seeds)) > 1 for seeds in rounds):
        said.append("Thin: not all seeds have come so far.")
    if any(_diverged(line) for line in lines):
        said.append("Cross: a run diverged.")
    return " ".join([*said, f"Dotted: the target, {target:g} %."])


def _view(lines: Sequence[Line], unit: str, measure: str, target: float) -> View:
    """Draw all curves over one unit."""
    import plotly.graph_objects as go

    traces = []
    for line in lines:
        traces += _traces(line, unit, measure)
        if measure == "accuracy":
            traces += _crosses(line, unit)
    rounds = [round for line in lines for round in line.curves["accuracy"].band.rounds[-1:]]
    every_round = unit == "round" and max(rounds, default=0) <= TICKS_FOR_ALL
    layout = {
        "template": TEMPLATE,
        "margin": {"l": 52, "r": 12, "t": 12, "b": 48},
        "uirevision": f"{unit} {measure}",  # what was zoomed stays so while the axes are the same
        "xaxis": _axis(UNITS[unit]) | ({"dtick": 1} if every_round else {}),
        "yaxis": _axis(MEASURES[measure]),
    }
    figure = go.Figure(traces, layout)
    if measure == "accuracy":
        figure.add_hline(target, line={"color": MUTED, "width": 1, "dash": "dot"})
    return figure


def _axis(title: str) -> dict[str, Any]:
    return {"title": {"text": title}, "rangemode": "tozero"}


def _traces(line: Line, unit: str, measure: str) -> list[Any]:
    """Draw a variant: the band, the mean, and thinner what does not rest on all seeds."""
    curve = line.curves[measure]
    band, whole, count = curve.band, curve.band.whole, len(curve.band.rounds)
    traces = []
    if band.low != band.high:
        traces += _band(line, curve, unit)
    if whole:
        traces.append(_mean(line, curve, unit, slice(0, whole), width=2.2))
    if whole < count:
        traces.append(_mean(line, curve, unit, slice(max(0, whole - 1), count), width=1))
    return traces


def _band(line: Line, curve: Curve, unit: str) -> list[Any]:
    """Draw the lowest and the highest seed without a line, and fill what is between them."""
    import plotly.graph_objects as go

    red, green, blue = (int(line.color[i : i + 2], 16) for i in (1, 3, 5))
    bare = line.style | {"meta": "band", "hoverinfo": "skip", "line": {"width": 0}}
    x = _short(curve.places[unit])
    low = go.Scatter(x=x, y=_short(curve.band.low), **bare)
    high = go.Scatter(x=x, y=_short(curve.band.high), **bare)
    high.update(fill="tonexty", fillcolor=f"rgba({red},{green},{blue},0.16)")
    return [low, high]


def _mean(line: Line, curve: Curve, unit: str, part: slice, width: float) -> Any:
    """Draw a part of the mean; a single point is a dot."""
    import plotly.graph_objects as go

    band = curve.band
    x, y, low, high = (
        _short(values[part]) for values in (curve.places[unit], band.mean, band.low, band.high)
    )
    said: str | list[str] = ""
    if low != high:
        bounds = zip(low, high, strict=True)
        said = [f" ({lowest:g} to {highest:g})" for lowest, highest in bounds]
    trace = go.Scatter(
        line.style,
        x=x,
        y=y,
        text=said,
        customdata=[_short([curve.places[unit][i] for unit in UNITS]) for i in _positions(part)],
        line={"color": line.color, "dash": line.dash, "width": width},
    )
    if len(x) == 1:
        trace.update(mode="markers", marker={"color": line.color, "size": 8})
    return trace


def _diverged(line: Line) -> list[RunResult]:
    """Return the runs that diverged after a test."""
    return [run for run in line.runs if run.diverged and measured(run)]


def _crosses(line: Line, unit: str) -> list[Any]:
    """Mark where runs diverged."""
    import plotly.graph_objects as go

    diverged = _diverged(line)
    if not diverged:
        return []
    last = [max(measured(run)) for run in diverged]
    ends = list(zip(diverged, last, strict=True))
    crosses = go.Scatter(
        line.style,
        x=_short([spent(run)[unit][round] for run, round in ends]),
        y=_short([measured(run)[round] for run, round in ends]),
        text=[text(words.divergence(run)) for run in diverged],
        marker={"symbol": "x", "size": 10, "color": line.color},
        hovertemplate="%{fullData.name}: %{text}<extra></extra>",
    )
    crosses.update(mode="markers")
    return [crosses]


def _positions(part: slice) -> range:
    return range(part.start, part.stop)


def _short(values: Sequence[float]) -> list[float]:
    """Keep as many digits as can be seen."""
    shown = [float(f"{value:.4g}") for value in values]
    return [int(value) if value.is_integer() else value for value in shown]
