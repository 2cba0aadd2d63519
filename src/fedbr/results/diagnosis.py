"""A diagnosis: its numbers, what its pictures show, and the folder in which both lie."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from ..core.disk import write
from ..core.model import Output
from .store import dump

FOLDER = "diagnosis"  # inside a result folder
FIGURES = {  # file -> what it shows
    "features": "Features of the same samples on one t-SNE map: under the global model, and under a client's model "
    "after local training with FedAvg, of classes that the client has seen (X1) and of others (X2); and of all classes "
    "under the mean of the clients' models",
    "classifier": "What the classifiers say of samples of unseen classes: of one sample, and of all of them",
    "before-after": "The same with each method, from the same global weights, on one t-SNE map",
    "predictions": "What every client's model predicts on balanced test samples; framed: classes that it has seen",
    "drift": "Updates of the clients, weight by weight: cosine between two clients, and distance to their mean",
    "rounds": "Local models round by round, as logged with metrics.bias_every",
}


@dataclass(frozen=True)
class View:
    """What pictures show: one client, some samples, and what models make of them."""

    client: int
    x: Tensor
    y: Tensor
    seen: Sequence[int]
    unseen: Sequence[int]
    classes: Sequence[str]
    before: Output  # the global model's
    after: Mapping[str, Output]  # label -> the client's model's
    averaged: Output  # that of the mean of all clients' models, of the first label
    seed: int


@dataclass(frozen=True)
class Diagnosis:
    """What local training does to a global model: numbers for JSON, and a view of one client for pictures."""

    numbers: dict[str, Any]
    view: View

    def save(self, folder: str | Path, rounds: Mapping[str, Sequence[Mapping[str, Any]]] | None = None) -> Path:
        """Write diagnosis.json and the figures as PNG and SVG into the folder ``diagnosis``; return where that is."""
        from .bias_plots import draw

        target = Path(folder) / FOLDER
        clear(Path(folder))
        target.mkdir(parents=True, exist_ok=True)
        draw(self.numbers, self.view, target, rounds or {})
        write(target / "diagnosis.json", dump(self.numbers))
        return target

    def about(self) -> str:
        """Say in one line what was looked at, and what was left out."""
        return about(self.numbers)

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Return the comparison as header and cells."""
        return table(self.numbers)

    def sentences(self) -> list[str]:
        """Say in words what the numbers say."""
        return sentences(self.numbers)


@dataclass(frozen=True)
class Saved:
    """A diagnosis as it lies in a folder."""

    numbers: dict[str, Any]
    figures: list[tuple[str, str, Path]]  # name, caption, PNG (an SVG of the same name lies beside it)


def read(folder: Path) -> Saved | None:
    """Find the diagnosis in a result folder; None if there is none."""
    file = folder / FOLDER / "diagnosis.json"
    if not file.exists():
        return None
    there = [(name, caption, file.parent / f"{name}.png") for name, caption in FIGURES.items()]
    return Saved(json.loads(file.read_text("utf-8")), [figure for figure in there if figure[2].exists()])


def clear(folder: Path) -> None:
    """Remove the diagnosis from a result folder, and nothing else."""
    for name in ("diagnosis.json", *(f"{figure}.{ending}" for figure in FIGURES for ending in ("png", "svg"))):
        (folder / FOLDER / name).unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # it is not there, or somebody else's file is in it
        (folder / FOLDER).rmdir()


def about(numbers: Mapping[str, Any]) -> str:
    """Say in one line what was looked at, and what was left out."""
    facts = numbers["about"]
    clients, everyone = facts["clients"], facts["clients_in_all"]
    some = f"clients {_listed(clients)} (drawn from {everyone:,})" if len(clients) < everyone else f"{everyone} clients"
    each = " to ".join(map(str, facts["samples_per_class"]))
    samples = f"{facts['samples']:,} of {facts['samples_available']:,} test samples, {each} per class"
    before = f"; trained for {_epochs(facts['pretrain_epochs'])} on all data" if facts["pretrain_epochs"] else ""
    begin = {"model": "", "features": "; classifiers begin fresh", "scratch": "; clients begin with fresh weights"}
    epochs = f" ({_epochs(facts['epochs'])})" if facts["epochs"] else ""
    return (
        f"{facts.get('source', 'The model given')}{before}{begin[facts['start']]}; {some}; "
        f"{facts['local_steps']} local steps{epochs} of {facts['batch_size']}, lr {facts['lr']:g}; {samples}"
    )


def _epochs(count: int) -> str:
    return "1 epoch" if count == 1 else f"{count} epochs"


def _listed(values: Sequence[int]) -> str:
    return ", ".join(map(str, values))


MEASURES = {  # what a row says -> its key and how to show it
    "accuracy %": ("accuracy", 100, 1),
    "  on seen classes (X1)": ("accuracy_seen", 100, 1),
    "  on unseen ones (X2)": ("accuracy_unseen", 100, 1),
    "X2 taken for seen %": ("share_present_unseen", 100, 1),
    "  of the probability": ("mass_present_unseen", 100, 1),
    "entropy of predictions": ("entropy", 1, 2),
    "shift of features, X1": ("shift_seen", 1, 3),
    "  X2": ("shift_unseen", 1, 3),
    "CKA with global": ("cka", 1, 2),
    "silhouette X1 | X2": ("silhouette", 1, 2),
    "nearest class mean %": ("centroid_classes", 100, 1),
}


def table(numbers: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return the comparison as header and cells: a column for the global model, and one for each method's clients."""
    sides = numbers["methods"]
    means = [numbers["global"]["mean"], *(side["mean"] for side in sides)]
    rows = [
        [name, *(_shown(mean[key], factor, digits) for mean in means)]
        for name, (key, factor, digits) in MEASURES.items()
    ]
    rows.append(["aggregated %", "-", *(_shown(side["accuracy_aggregated"], 100, 1) for side in sides)])
    rows.append(["cosine of updates", "-", *(_shown(side["drift"]["cosine"], 1, 2) for side in sides)])
    return ["", "global", *(side["label"] for side in sides)], rows


def _shown(value: float | None, factor: int, digits: int) -> str:
    return "-" if value is None else f"{value * factor:.{digits}f}"


def sentences(numbers: Mapping[str, Any]) -> list[str]:
    """Say in words how biased the local models of the first side are, and what the others change."""
    first, *others = numbers["methods"]
    base = first["mean"]
    words = []
    if base["share_present_unseen"] is None:
        words.append("Every client has its share of all classes: there is no unseen data to look at.")
    else:
        kind = "hardly seen" if all(one["scarce"] for one in numbers["clients"]) else "never seen"
        words.append(
            f"{first['label']}: of samples of classes that a client has {kind}, its model takes "
            f"{base['share_present_unseen'] * 100:.1f} % for classes that it has "
            f"({base['mass_present_unseen'] * 100:.1f} % of the probability)."
        )
    for side in others:
        changes = [
            f"{name} {base[key] * factor:.{digits}f} → {side['mean'][key] * factor:.{digits}f}{unit}"
            for name, key, factor, digits, unit in (
                ("share", "share_present_unseen", 100, 1, " %"),
                ("probability", "mass_present_unseen", 100, 1, " %"),
                ("shift of features on X1", "shift_seen", 1, 3, ""),
                ("on X2", "shift_unseen", 1, 3, ""),
            )
            if base[key] is not None and side["mean"][key] is not None
        ]
        words.append(f"{side['label']} against {first['label']}: {', '.join(changes)}.")
    return words


def logged(rounds: Mapping[str, Sequence[Mapping[str, Any]]]) -> tuple[list[str], list[list[str]]]:
    """Return what was logged of local models while they trained, the last of each run: the paper's table."""
    header = ["", "round", "local %", "aggregated %", "unseen to seen %", "entropy", "cosine", "distance"]
    rows = []
    for label, lines in rounds.items():
        line = [line for line in lines if "bias" in line][-1]
        bias = line["bias"]
        rows.append(
            [
                label,
                str(line["round"]),
                _shown(line["accuracy_local"], 100, 1),
                _shown(line["accuracy"], 100, 1),
                _shown(bias["share_present_unseen"], 100, 1),
                *(_shown(bias[key], 1, 2) for key in ("entropy", "cosine", "distance")),
            ]
        )
    return header, rows
