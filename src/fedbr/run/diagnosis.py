"""A diagnosis in a result folder: its facts, its files, and the JSON of both.

``bias`` makes it, and reports show it. Only this file knows the keys of ``diagnosis.json``.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Self

from ..core.records import Drift
from ..util.errors import InputError
from ..util.files import dump, read_json, reading, write
from ..util.tables import Json, Options

FOLDER = "diagnosis"  # inside a result folder
FIGURES = {  # file -> what it shows
    "features": "Features of the same samples on one t-SNE map: under the global model, and under "
    "a client's model after local training with the first method, of classes that the client has "
    "seen (X1) and of others (X2); and of all classes under the mean of the clients' models",
    "classifier": "What the classifiers say of samples of unseen classes: of one sample, and of "
    "all of them",
    "before-after": "The same with each method, from the same global weights, on one t-SNE map",
    "predictions": "What every client's model predicts on balanced test samples; framed: classes "
    "that it has seen",
    "drift": "Updates of the clients, weight by weight: cosine between two clients, and distance "
    "to their mean",
    "rounds": "Local models round by round, as logged with metrics.bias_every; mean over seeds",
    "layers": "Updates of the clients round by round and weight by weight, as logged; mean over "
    "seeds",
}


@dataclass(frozen=True)
class About:
    """Which model, clients and samples were examined, and how the clients trained."""

    clients: tuple[int, ...]
    clients_in_all: int
    samples: int
    samples_per_class: tuple[int, ...]  # the smallest and the largest number, if they differ
    samples_available: int
    round: int
    pretrain_epochs: int
    start: str
    epochs: int | None
    local_steps: int
    batch_size: int
    lr: float
    momentum: float
    weight_decay: float
    dtype: str
    seed: int
    source: str | None = None  # where the global model comes from; None: it was given
    share: float | None = None  # of the other half's samples, in the toy example
    run: str | None = None  # label of the run whose model it is
    rounds_done: int | None = None
    rounds_planned: int | None = None

    def to_json(self) -> Json:
        """Return the entry of the file: first where the model comes from, if that is known."""
        values = asdict(self)
        origin = {}
        for name in _ORIGIN:
            value = values.pop(name)
            if value is not None:
                origin[name] = value
        for name in ("clients", "samples_per_class"):
            values[name] = list(values[name])
        return origin | values

    @classmethod
    def from_json(cls, values: Json) -> Self:
        """Read what ``to_json`` wrote."""
        arguments: Json = {}
        for field_ in fields(cls):
            name = field_.name
            arguments[name] = values.get(name) if name in _ORIGIN else values[name]
        for name in ("clients", "samples_per_class"):
            arguments[name] = tuple(arguments[name])
        return cls(**arguments)


_ORIGIN = ("source", "share", "run", "rounds_done", "rounds_planned")


@dataclass(frozen=True)
class ClientClasses:
    """The classes that a client has seen, and those of which it has few samples or none."""

    client: int
    seen: tuple[int, ...]
    unseen: tuple[int, ...]
    scarce: bool  # whether it has some samples of the latter

    def to_json(self) -> Json:
        """Return the entry of the file."""
        return asdict(self) | {"seen": list(self.seen), "unseen": list(self.unseen)}

    @classmethod
    def from_json(cls, values: Json) -> Self:
        """Read what ``to_json`` wrote."""
        seen, unseen = tuple(values["seen"]), tuple(values["unseen"])
        return cls(values["client"], seen, unseen, values["scarce"])


@dataclass(frozen=True)
class Measures:
    """The measures of one model, or their mean over several; None: it cannot be measured."""

    accuracy: float | None = None
    accuracy_seen: float | None = None
    accuracy_unseen: float | None = None
    share_present: float | None = None
    share_present_unseen: float | None = None
    entropy: float | None = None
    mass_present: float | None = None
    mass_present_unseen: float | None = None
    shift: float | None = None
    shift_seen: float | None = None
    shift_unseen: float | None = None
    cka: float | None = None
    cka_seen: float | None = None
    cka_unseen: float | None = None
    silhouette: float | None = None
    centroid_groups: float | None = None
    centroid_classes: float | None = None

    @classmethod
    def names(cls) -> list[str]:
        """Return the names of all measures, in the order of the file."""
        return [field_.name for field_ in fields(cls)]

    def to_json(self) -> dict[str, float | None]:
        """Return the entry of the file."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Json) -> Self:
        """Read what ``to_json`` wrote; an older version has fewer measures."""
        return cls(**{name: values.get(name) for name in cls.names()})


@dataclass(frozen=True)
class ClientModel:
    """The model of one client: its measures, and the share of each class in its predictions."""

    client: int
    measures: Measures
    predicted: Sequence[float] | None  # on all samples
    predicted_unseen: Sequence[float] | None  # on those of classes that the client has not seen

    def to_json(self) -> Json:
        """Return the entry of the file."""
        predicted = {"predicted": self.predicted, "predicted_unseen": self.predicted_unseen}
        return {"client": self.client, **self.measures.to_json(), **predicted}

    @classmethod
    def from_json(cls, values: Json) -> Self:
        """Read what ``to_json`` wrote."""
        measures = Measures.from_json(values)
        return cls(values["client"], measures, values["predicted"], values["predicted_unseen"])


@dataclass(frozen=True)
class Models:
    """The models of all clients, and the mean over them."""

    mean: Measures
    clients: Sequence[ClientModel]

    def of(self, client: int) -> ClientModel:
        """Return the model of one client."""
        return next(model for model in self.clients if model.client == client)

    def to_json(self) -> Json:
        """Return the entries of the file."""
        clients = [model.to_json() for model in self.clients]
        return {"mean": self.mean.to_json(), "clients": clients}

    @classmethod
    def from_json(cls, values: Json) -> Self:
        """Read what ``to_json`` wrote."""
        clients = [ClientModel.from_json(model) for model in values["clients"]]
        return cls(Measures.from_json(values["mean"]), clients)


@dataclass(frozen=True)
class VariantBias:
    """What one round of local training with some methods does."""

    label: str
    methods: Sequence[Options]  # as in a recipe
    diverged: str | None  # why there are no measures; None: there are
    models: Models
    accuracy_aggregated: float | None  # of what the server makes of the clients' models
    drift: Drift = field(default_factory=Drift)
    layers: Mapping[str, Drift] = field(default_factory=dict)

    def to_json(self) -> Json:
        """Return the entry of the file."""
        models = self.models.to_json()
        if self.diverged is not None:
            models["mean"] = {}
        layers = {name: asdict(drift) for name, drift in self.layers.items()}
        return {
            "label": self.label,
            "methods": [dict(method) for method in self.methods],
            "diverged": self.diverged,
            **models,
            "accuracy_aggregated": self.accuracy_aggregated,
            "drift": asdict(self.drift) | {"layers": layers},
        }

    @classmethod
    def from_json(cls, values: Json) -> Self:
        """Read what ``to_json`` wrote."""
        drift = dict(values["drift"])
        layers = {name: Drift(**layer) for name, layer in drift.pop("layers").items()}
        return cls(
            label=values["label"],
            methods=values["methods"],
            diverged=values.get("diverged"),
            models=Models.from_json(values),
            accuracy_aggregated=values["accuracy_aggregated"],
            drift=Drift(**drift),
            layers=layers,
        )


@dataclass(frozen=True)
class DiagnosisRecord:
    """What local training does to a global model: ``diagnosis.json``."""

    about: About
    metrics: Mapping[str, str]  # what each measure means
    clients: Sequence[ClientClasses]
    global_model: Models  # the one global model, seen with the classes of each client
    variants: Sequence[VariantBias]
    seconds: float

    @property
    def trained(self) -> list[VariantBias]:
        """The variants that did not diverge."""
        return [variant for variant in self.variants if not variant.diverged]

    def variant(self, label: str) -> VariantBias:
        """Return one variant."""
        return next(variant for variant in self.variants if variant.label == label)

    def to_json(self) -> Json:
        """Return the content of the file."""
        return {
            "about": self.about.to_json(),
            "metrics": dict(self.metrics),
            "clients": [client.to_json() for client in self.clients],
            "global": self.global_model.to_json(),
            "methods": [variant.to_json() for variant in self.variants],
            "seconds": self.seconds,
        }

    @classmethod
    def from_json(cls, values: Json) -> Self:
        """Read what ``to_json`` wrote; KeyError if something is missing."""
        return cls(
            about=About.from_json(values["about"]),
            metrics=values["metrics"],
            clients=[ClientClasses.from_json(client) for client in values["clients"]],
            global_model=Models.from_json(values["global"]),
            variants=[VariantBias.from_json(variant) for variant in values["methods"]],
            seconds=values["seconds"],
        )


@dataclass(frozen=True)
class Picture:
    """A figure of a diagnosis."""

    name: str
    caption: str
    path: Path  # a PNG; an SVG of the same name lies beside it


@dataclass(frozen=True)
class SavedDiagnosis:
    """A diagnosis that was read from a folder."""

    record: DiagnosisRecord
    pictures: Sequence[Picture]


def read(folder: Path) -> SavedDiagnosis | None:
    """Read the diagnosis in a result folder; None if there is none.

    Raises:
        RunError: the file is damaged.
    """
    file = folder / FOLDER / "diagnosis.json"
    if not file.exists():
        return None
    with reading(file):
        record = DiagnosisRecord.from_json(read_json(file, {}))
    pictures = []
    for name, caption in FIGURES.items():
        path = file.parent / f"{name}.png"
        if path.exists():
            pictures.append(Picture(name, caption, path))
    return SavedDiagnosis(record, pictures)


def save(record: DiagnosisRecord, folder: Path) -> Path:
    """Write diagnosis.json in place of an earlier diagnosis, and return its folder.

    Raises:
        InputError: nothing can be written there.
    """
    check_place(folder)
    clear(folder)
    target = folder / FOLDER
    target.mkdir(parents=True, exist_ok=True)
    write(target / "diagnosis.json", dump(record.to_json()))
    return target


def check_place(folder: Path) -> None:
    """Refuse a folder in which a diagnosis cannot be written; leave it as it is.

    Raises:
        InputError: the line says why.
    """
    existing = folder / FOLDER
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    if not existing.is_dir():
        raise InputError(f"{folder}: cannot write there ({existing} is not a folder)")
    if not os.access(existing, os.W_OK):
        raise InputError(f"{folder}: cannot write there (no permission for {existing})")


def clear(folder: Path) -> None:
    """Remove the diagnosis from a result folder, and nothing else."""
    names = ["diagnosis.json"]
    for figure in FIGURES:
        names += [f"{figure}.png", f"{figure}.svg"]
    for name in names:
        (folder / FOLDER / name).unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # it is not there, or somebody else's file is in it
        (folder / FOLDER).rmdir()
