"""What page.js draws: the curves of variants and the picture of the clients, as plain data and the
HTML around it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from .clients import MANY, clients
from .comparison import Comparison
from .curves import MEASURES, UNITS, Curve, curve, measured, spent
from .page import paragraphs, sample, switch
from .plots import BANDS, look

Figures = dict[str, list[Any]]


def curves_figure(comparisons: Sequence[Comparison], figures: Figures) -> str:
    """Put the curves of one or several folders into a figure."""
    several = len(comparisons) > 1
    chosen = [(c, label) for c in comparisons for label in c.labels if c.runs(label)]
    variants = [
        _stack(c, label, f"{label} · {c.name}" if several else label, look(i))
        for i, (c, label) in enumerate(chosen)
    ]
    if not any(variant["curves"]["accuracy"]["mean"] for variant in variants):
        return paragraphs(["No round is tested yet, so there is no curve."])
    target, crosses = (
        100 * comparisons[0].recipe.metrics.target,
        any(variant["ends"] for variant in variants),
    )
    figures["curves"].append(
        {"variants": variants, "target": target, "units": UNITS, "measures": MEASURES}
    )
    return (
        f'<figure class="curves" data-curves="{len(figures["curves"]) - 1}"><div class="bar">'
        + switch(
            "unit",
            "Horizontal axis",
            {"round": "rounds", "seconds": "seconds", "megabytes": "megabytes"},
        )
        + switch(
            "measure",
            "Vertical axis",
            {"accuracy": "all test sets", "accuracy_worst": "worst client"},
        )
        + '</div><div class="plot" role="img" aria-label="Accuracy while training"></div>'
        + '<div class="legend" role="group" aria-label="Curves: press to hide or show"></div>'
        + f"<figcaption>{escape(_caption(comparisons, target, crosses))}</figcaption></figure>"
    )


def _caption(comparisons: Sequence[Comparison], target: float, crosses: bool) -> str:
    said = ["Press a name to hide its curve, twice to see it alone."]
    if any(
        len(comparison.runs(label)) > 1 for comparison in comparisons for label in comparison.labels
    ):
        many = sum(len(comparison.labels) for comparison in comparisons) > BANDS
        when = f", drawn while at most {BANDS} curves are shown" if many else ""
        said.append(
            f"Line: mean over seeds, of seconds and megabytes too. Band: from the lowest to the highest seed{when}."
        )
    if any(_ragged(comparison, label) for comparison in comparisons for label in comparison.labels):
        said.append("Thin: not all seeds have come so far.")
    if crosses:
        said.append("Cross: a run diverged.")
    return " ".join([*said, f"Dotted: the target, {target:g} %."])


def _ragged(comparison: Comparison, label: str) -> bool:
    return len({len(lines) for lines in comparison.runs(label)}) > 1


def _stack(
    comparison: Comparison, label: str, shown: str, style: tuple[str, str]
) -> dict[str, Any]:
    """Return what the figure knows of a variant."""
    ends = []
    for run in comparison.results["runs"]:
        lines = comparison.lines[label, run["seed"]]
        if run["label"] == label and run["diverged"] and (tested := measured(lines)):
            last = max(tested)
            where = {unit: _short(by[last]) for unit, by in spent(lines).items()}
            ends.append({**where, "accuracy": _short(tested[last]), "text": end_of(run)})
    return {
        "label": shown,
        "color": style[0],
        "dash": style[1],
        "sample": sample(*style),
        "curves": {key: _columns(curve(comparison.runs(label), key)) for key in MEASURES},
        "ends": ends,
    }


def _columns(found: Curve) -> dict[str, Any]:
    band = found.band
    columns = {**found.places, "mean": band.mean, "low": band.low, "high": band.high}
    return {key: [_short(value) for value in values] for key, values in columns.items()} | {
        "whole": band.whole
    }


def _short(value: float) -> float:
    return float(f"{value:.5g}")


def end_of(run: Mapping[str, Any]) -> str:
    """Say how a run diverged."""
    at = run["diverged_at"]
    return (
        f"seed {run['seed']} diverged in round {at['round']} (client {at['client']}: {at['what']})"
    )


def clients_figure(comparison: Comparison, figures: Figures) -> str:
    """Put the clients' accuracies and classes into a figure."""
    found = clients(comparison)
    if found is None:
        return ""
    figures["clients"].append(found)
    seeds = {str(i): f"seed {seed['seed']}" for i, seed in enumerate(found["seeds"])}
    below = '<span class="scale">samples of a class: few <i class="counts"></i> many</span>'
    if any(seed["counts"] is None for seed in found["seeds"]):
        below = "Below: how many classes a client has in effect."
    many = (
        f" There are more than {MANY}: above they are sorted, below are the first."
        if found["sorted"]
        else ""
    )
    return (
        f'<h2>Clients</h2><figure data-clients="{len(figures["clients"]) - 1}"><div class="bar">'
        + switch("seed", "Seed", seeds)
        + '</div><div class="plot" role="img" aria-label="Accuracy and classes of every client"></div>'
        + '<figcaption><span class="scale">accuracy: 0 % <i class="accuracy"></i> 100 %</span>'
        + f'<span class="scale"><i class="one"></i> not tested</span>{below}<br>Every client in the last round that '
        + f"was tested, on what its own data are like.{many}</figcaption></figure>"
    )
