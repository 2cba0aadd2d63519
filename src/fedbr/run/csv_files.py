"""Results as CSV: a line for every run, and a line for every round of every run."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

from ..util.files import write
from .results import Results

Row = dict[str, Any]  # cells by the names of their columns


def write_csv(results: Results) -> None:
    """Write runs.csv and rounds.csv into the folder of the results."""
    assert results.path is not None
    name = results.path.resolve().name
    write(results.path / "runs.csv", as_csv(run_rows(results, name)))
    write(results.path / "rounds.csv", as_csv(round_rows(results, name)))


def as_csv(rows: Iterable[Mapping[str, Any]]) -> str:
    """Write a line for each row under the names of all that any row has; what it lacks stays empty.

    >>> as_csv([{"a": 1}, {"b": 2}])
    'a,b\\n1,\\n,2\\n'
    """
    rows = list(rows)
    names = dict.fromkeys(name for row in rows for name in row)
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def run_rows(results: Results, folder: str) -> Iterator[Row]:
    """Give a line for every run.

    folder: what the folder is called, in a column of its own.
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
        if any(record.bias is not None for record in run.rounds):
            row["accuracy_local"] = run.accuracy_local
        row |= _prefixed("rounds_to", run.rounds_to)
        row |= _prefixed("bytes", asdict(run.bytes))
        row |= _prefixed("seconds", asdict(run.seconds))
        row |= _numbers(run.extra)
        effective = split.effective_classes
        row |= {
            "clients": len(split.sizes),
            "samples": sum(split.sizes),
            "effective_classes": sum(effective) / max(1, len(effective)),
            "split": split.hash,
        }
        yield row | _prefixed("model", asdict(model))


def round_rows(results: Results, folder: str) -> Iterator[Row]:
    """Give a line for every round of every run, with what was spent up to it."""
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
                for name, value in record.bias.figures().items():
                    row[name if name.startswith("accuracy") else f"bias_{name}"] = value
            row |= _numbers(record.extra)
            yield row | {"seconds_so_far": seconds, "megabytes_so_far": megabytes}


def _prefixed(prefix: str, values: Mapping[str, Any]) -> Row:
    return {f"{prefix}_{name}": value for name, value in values.items()}


def _numbers(values: Mapping[str, Any]) -> Row:
    """Return what fits into a cell; a table in a table has its name before those in it."""
    cells: Row = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            cells |= _prefixed(name, _numbers(value))
        elif value is None or isinstance(value, int | float | str):
            cells[name] = value
    return cells
