"""Results as CSV: a line for every run, and a line for every round of every run."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

from ..util.files import write
from .results import Results

Row = dict[str, Any]  # the cells of a row, by the names of their columns


def write_csv(results: Results) -> None:
    """Write runs.csv and rounds.csv to the folder of the results."""
    assert results.path is not None
    name = results.path.resolve().name
    write(results.path / "runs.csv", format_csv(run_rows(results, name)))
    write(results.path / "rounds.csv", format_csv(round_rows(results, name)))


def format_csv(rows: Iterable[Mapping[str, Any]]) -> str:
    """Format rows as CSV; the columns are those of all rows, and a missing cell stays empty.

    >>> format_csv([{"a": 1}, {"b": 2}])
    'a,b\\n1,\\n,2\\n'
    """
    rows = list(rows)
    names: dict[str, None] = {}  # each of them once, in order
    for row in rows:
        names |= dict.fromkeys(row)
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def run_rows(results: Results, folder: str) -> Iterator[Row]:
    """Yield a row for every run.

    Args:
        folder: the name of the folder, which has a column of its own.
    """
    for run in results.runs:
        split, model = run.record.split, run.record.model
        assert split is not None
        assert model is not None
        row: Row = {
            "folder": folder,
            "label": run.label,
            "seed": run.seed,
            "rounds": len(run.rounds),
            "finished": run.finished,
            "diverged": run.diverged,
            "tuned": run.variant.tuned,
        }
        row |= _prefixed("accuracy", asdict(run.accuracy))
        if run.has_bias:
            row["accuracy_local"] = run.accuracy_local
        row |= _prefixed("rounds_to", run.rounds_to)
        row |= _prefixed("bytes", asdict(run.bytes))
        row |= _prefixed("seconds", asdict(run.seconds))
        row |= _flatten(run.extra)
        effective = split.effective_classes
        row |= {
            "clients": len(split.sizes),
            "samples": sum(split.sizes),
            "effective_classes": sum(effective) / max(1, len(effective)),
            "split": split.hash,
        }
        yield row | _prefixed("model", asdict(model))


def round_rows(results: Results, folder: str) -> Iterator[Row]:
    """Yield a row for every round of every run, with the seconds and bytes up to it."""
    for run in results.runs:
        seconds = megabytes = 0.0
        for record in run.rounds:
            seconds += record.seconds_train
            megabytes += (record.bytes_up + record.bytes_down) / 1e6
            row: Row = {
                "folder": folder,
                "label": run.label,
                "seed": run.seed,
                "round": record.round,
                "accuracy": record.accuracy,
                "accuracy_worst": record.accuracy_worst,
                "loss": record.loss,
                "bytes_up": record.bytes_up,
                "bytes_down": record.bytes_down,
                "seconds_train": record.seconds_train,
                "seconds_evaluate": record.seconds_evaluate,
            }
            if record.bias is not None:
                for name, value in record.bias.values().items():
                    column = name if name.startswith("accuracy") else f"bias_{name}"
                    row[column] = value
            row |= _flatten(record.extra)
            yield row | {"seconds_so_far": seconds, "megabytes_so_far": megabytes}


def _prefixed(prefix: str, values: Mapping[str, Any]) -> Row:
    return {f"{prefix}_{name}": value for name, value in values.items()}


def _flatten(values: Mapping[str, Any]) -> Row:
    """Return the values that fit into a cell; the name of an inner table becomes a prefix."""
    cells: Row = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            cells |= _prefixed(name, _flatten(value))
        elif value is None or isinstance(value, int | float | str):
            cells[name] = value
    return cells
