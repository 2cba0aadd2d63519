"""Local models beside the aggregated one, as logged with metrics.bias_every: the paper's table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .comparison import Comparison, Line
from .tables import Figure

Rounds = Mapping[
    str, Sequence[Sequence[Line]]
]  # label -> for every seed, the rounds that were looked at

COLUMNS = {  # name -> factor and digits
    "accuracy_local": ("local %", 100, 1),
    "accuracy_aggregated": ("aggregated %", 100, 1),
    "share_present_unseen": ("unseen to seen %", 100, 1),
    "entropy": ("entropy", 1, 2),
    "cosine": ("cosine of updates", 1, 2),
    "distance": ("distance of updates", 1, 2),
}
NOTE = (
    "In the last round that was looked at; mean over clients, and over the seeds that have not diverged. Both "
    "accuracies are on all test data, every class counting the same."
)


def logged(comparison: Comparison) -> Rounds:
    """Return the rounds in which clients' models were looked at, of the runs that have not
    diverged.
    """
    alive = [
        (run["label"], run["seed"]) for run in comparison.results["runs"] if not run["diverged"]
    ]
    found = {key: [line for line in comparison.lines[key] if "bias" in line] for key in alive}
    labels = dict.fromkeys(label for (label, _), lines in found.items() if lines)
    return {
        name: [lines for (label, _), lines in found.items() if lines and label == name]
        for name in labels
    }


def flat(line: Line) -> dict[str, Any]:
    """Return what a line says of clients' models: all but the single weights; nothing if they were
    not looked at.
    """
    if "bias" not in line:
        return {}
    return {
        "accuracy_local": line["accuracy_local"],
        **{k: v for k, v in line["bias"].items() if k != "layers"},
    }


def table(rounds: Rounds) -> tuple[list[str], list[list[str]]]:
    """Return the last of what was logged of every variant as header and cells."""
    rows = []
    for label, runs in rounds.items():
        last = [flat(lines[-1]) for lines in runs]
        when = sorted({lines[-1]["round"] for lines in runs})
        found = [Figure.of(values.get(key) for values in last) for key in COLUMNS]
        cells = [
            f.show(d, by) if f else "-"
            for f, (_, by, d) in zip(found, COLUMNS.values(), strict=True)
        ]
        rows.append([label, " to ".join(map(str, [when[0], *when[1:][-1:]])), *cells])
    return ["", "round", *(name for name, *_ in COLUMNS.values())], rows
