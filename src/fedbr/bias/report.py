"""A diagnosis: its numbers, what its pictures show, and the folder in which both lie."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from ..core.model import Output
from ..run.folder import dump
from ..util.errors import InputError
from ..util.files import write

if TYPE_CHECKING:  # which uses this module
    from ..report.local_models import Rounds

FOLDER = "diagnosis"  # inside a result folder
FIGURES = {  # file -> what it shows
    "features": "Features of the same samples on one t-SNE map: under the global model, and under a client's model "
    "after local training with the first method, of classes that the client has seen (X1) and of others (X2); and of "
    "all classes under the mean of the clients' models",
    "classifier": "What the classifiers say of samples of unseen classes: of one sample, and of all of them",
    "before-after": "The same with each method, from the same global weights, on one t-SNE map",
    "predictions": "What every client's model predicts on balanced test samples; framed: classes that it has seen",
    "drift": "Updates of the clients, weight by weight: cosine between two clients, and distance to their mean",
    "rounds": "Local models round by round, as logged with metrics.bias_every; mean over seeds",
    "layers": "Updates of the clients round by round and weight by weight, as logged; mean over seeds",
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
    averaged: (
        Output | None
    )  # that of the mean of all clients' models, of the first label; None if they train alone
    seed: int


@dataclass(frozen=True)
class Diagnosis:
    """What local training does to a global model: numbers for JSON, and a view of one client for
    pictures.
    """

    numbers: dict[str, Any]
    view: View

    def save(self, folder: str | Path, rounds: Rounds | None = None) -> Path:
        """Write diagnosis.json and the figures as PNG and SVG into the folder ``diagnosis``; return
        where that is.
        """
        target = self.write(folder)
        self.draw(folder, rounds)
        return target

    def write(self, folder: str | Path) -> Path:
        """Write diagnosis.json in place of an earlier diagnosis; return where it is."""
        refuse(Path(folder))
        clear(Path(folder))
        target = Path(folder) / FOLDER
        target.mkdir(parents=True, exist_ok=True)
        write(target / "diagnosis.json", dump(self.numbers))
        return target

    def draw(self, folder: str | Path, rounds: Rounds | None = None) -> None:
        """Write the figures."""
        from .figures import draw

        draw(self.numbers, self.view, Path(folder) / FOLDER, rounds or {})

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
    figures: list[
        tuple[str, str, Path]
    ]  # name, caption, PNG (an SVG of the same name lies beside it)


def read(folder: Path) -> Saved | None:
    """Find the diagnosis in a result folder; None if there is none."""
    file = folder / FOLDER / "diagnosis.json"
    if not file.exists():
        return None
    there = [(name, caption, file.parent / f"{name}.png") for name, caption in FIGURES.items()]
    return Saved(
        json.loads(file.read_text("utf-8")), [figure for figure in there if figure[2].exists()]
    )


def refuse(folder: Path) -> None:
    """Refuse a place where a diagnosis cannot be written; leave it as it is."""
    there = folder / FOLDER
    while not there.exists() and there != there.parent:
        there = there.parent
    if not there.is_dir():
        raise InputError(f"{folder}: cannot write there ({there} is not a folder)")
    if not os.access(there, os.W_OK):
        raise InputError(f"{folder}: cannot write there (no permission for {there})")


def clear(folder: Path) -> None:
    """Remove the diagnosis from a result folder, and nothing else."""
    for name in (
        "diagnosis.json",
        *(f"{figure}.{ending}" for figure in FIGURES for ending in ("png", "svg")),
    ):
        (folder / FOLDER / name).unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # it is not there, or somebody else's file is in it
        (folder / FOLDER).rmdir()


def about(numbers: Mapping[str, Any]) -> str:
    """Say in one line what was looked at, and what was left out."""
    facts = numbers["about"]
    clients, everyone = facts["clients"], facts["clients_in_all"]
    some = (
        f"clients {_listed(clients)} (drawn from {everyone:,})"
        if len(clients) < everyone
        else f"{everyone} clients"
    )
    each = " to ".join(map(str, facts["samples_per_class"]))
    samples = (
        f"{facts['samples']:,} of {facts['samples_available']:,} test samples, {each} per class"
    )
    before = (
        f"; trained for {_epochs(facts['pretrain_epochs'])} on all data"
        if facts["pretrain_epochs"]
        else ""
    )
    begin = {
        "model": "",
        "features": "; classifiers begin fresh",
        "scratch": "; clients begin with fresh weights",
    }
    epochs = f" ({_epochs(facts['epochs'])})" if facts["epochs"] else ""
    return (
        f"{facts.get('source', 'The model given')}{before}{begin[facts['start']]}; {some}; "
        f"{facts['local_steps']} local steps{epochs} of {facts['batch_size']}, lr {facts['lr']:g}; {samples}"
    )


def _epochs(count: int) -> str:
    return "1 epoch" if count == 1 else f"{count} epochs"


def _listed(values: Sequence[int]) -> str:
    return ", ".join(map(str, values))


MEASURES = (  # what a row says, its key, and how to show it
    ("accuracy %", "accuracy", 100, 1),
    ("  on seen classes (X1)", "accuracy_seen", 100, 1),
    ("  on unseen ones (X2)", "accuracy_unseen", 100, 1),
    ("X2 taken for seen %", "share_present_unseen", 100, 1),
    ("  of the probability", "mass_present_unseen", 100, 1),
    ("entropy of predictions", "entropy", 1, 2),
    ("shift of features, X1", "shift_seen", 1, 3),
    ("  X2", "shift_unseen", 1, 3),
    ("CKA with global, X1", "cka_seen", 1, 2),
    ("  X2", "cka_unseen", 1, 2),
    ("silhouette X1 | X2", "silhouette", 1, 2),
    ("X1 | X2 by nearest mean %", "centroid_groups", 100, 1),
    ("classes by nearest mean %", "centroid_classes", 100, 1),
)


def table(numbers: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return the comparison as header and cells: a column for the global model, and one for each
    method's clients.
    """
    sides = numbers["methods"]
    means = [numbers["global"]["mean"], *(side["mean"] for side in sides)]
    rows = [
        [name, *(_shown(mean.get(key), factor, digits) for mean in means)]
        for name, key, factor, digits in MEASURES
    ]
    rows.append(
        ["aggregated %", "-", *(_shown(side["accuracy_aggregated"], 100, 1) for side in sides)]
    )
    for key in ("cosine", "distance"):
        rows.append(
            [f"{key} of updates", "-", *(_shown(side["drift"][key], 1, 2) for side in sides)]
        )
    for i, side in enumerate(sides):
        rows[0][2 + i] = "diverged" if side.get("diverged") else rows[0][2 + i]
    return ["", "global", *(side["label"] for side in sides)], rows


def _shown(value: float | None, factor: int, digits: int) -> str:
    return "-" if value is None else f"{value * factor:.{digits}f}"


def kind(clients: Sequence[Mapping[str, Any]]) -> str:
    """Say how little clients have seen of X2: never, hardly, or some the one and some the other;
    empty: no X2.
    """
    scarce = {one["scarce"] for one in clients if one["unseen"]}
    return " or ".join(
        word for word, is_so in (("never", False), ("hardly", True)) if is_so in scarce
    )


def sentences(numbers: Mapping[str, Any]) -> list[str]:
    """Say in words how biased the local models of the first side are, and what the others change."""
    words = [
        f"{side['label']}: diverged ({side['diverged']})."
        for side in numbers["methods"]
        if side.get("diverged")
    ]
    first, *others = [side for side in numbers["methods"] if not side.get("diverged")]
    base, clients = first["mean"], numbers["clients"]
    some = [one for one in clients if one["unseen"]]
    if base["share_present_unseen"] is None:
        why = (
            "No test sample is of an unseen class"
            if some
            else "Every client has its share of all classes"
        )
        words.append(f"{why}: there is no unseen data to look at.")
    else:
        few = (
            ""
            if len(some) == len(clients)
            else f", of which {len(some)} of {len(clients)} clients have some"
        )
        words.append(
            f"{first['label']}: of samples of classes that a client has {kind(clients)} seen{few}, its model takes "
            f"{base['share_present_unseen'] * 100:.1f} % for classes that it has seen "
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
                ("X1 | X2 by nearest mean", "centroid_groups", 100, 1, " %"),
            )
            if base.get(key) is not None and side["mean"].get(key) is not None
        ]
        words.append(f"{side['label']} against {first['label']}: {', '.join(changes)}.")
    return words
