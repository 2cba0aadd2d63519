"""What clients have and get: accuracy of each under every variant, and who holds which classes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from .comparison import Comparison

MANY = 200  # clients that have a column each; of more, the accuracies are sorted and thinned
COLUMNS = 100  # that are left then


def clients(comparison: Comparison) -> dict[str, Any] | None:
    """Return what the picture of the clients shows, seed by seed: splits differ, so that a mean
    says nothing.
    """
    splits = {run["seed"]: run["split"] for run in comparison.results["runs"]}
    seeds = [seed for seed in comparison.seeds if seed in splits]
    if not seeds:
        return None
    many = len(splits[seeds[0]]["sizes"]) > MANY
    names = comparison.classes.get(seeds[0], {})
    return {
        "labels": comparison.labels,
        "sorted": many,
        "names": names.get("clients"),
        "classes": names.get("names"),
        "seeds": [
            {
                "seed": seed,
                "accuracy": [_thinned(row) if many else row for row in _accuracy(comparison, seed)],
                "counts": _table(comparison.classes.get(seed)),
                "effective": splits[seed]["effective_classes"][:MANY],
                "sizes": splits[seed]["sizes"][:MANY],
            }
            for seed in seeds
        ],
    }


def _accuracy(comparison: Comparison, seed: int) -> list[list[float | None]]:
    """Return every client's accuracy in the last round that was tested, a row for each variant."""
    rows: list[list[float | None]] = []
    for label in comparison.labels:
        tested = [
            line["accuracy_clients"]
            for line in comparison.lines[label, seed]
            if line["accuracy_clients"]
        ]
        rows.append([_percent(value) for value in tested[-1]] if tested else [])
    return rows


def _percent(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else round(100 * value, 1)


def _thinned(row: Sequence[float | None]) -> list[float | None]:
    """Sort clients from the worst to the best and keep some."""
    known = sorted(value for value in row if value is not None)
    return (
        [known[round(i * (len(known) - 1) / (COLUMNS - 1))] for i in range(COLUMNS)]
        if known
        else []
    )


def _table(classes: Mapping[str, Any] | None) -> list[list[int]] | None:
    """Read counts such as "3:130 7:14", a text for each client, into [classes][clients]."""
    if classes is None:
        return None
    sparse = [dict(pair.split(":") for pair in text.split()) for text in classes["counts"]]
    return [[int(client.get(str(k), 0)) for client in sparse] for k in range(classes["number"])]
