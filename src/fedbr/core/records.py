"""What a round and a run say of themselves, and the JSON of both.

Whoever reads ``metrics.jsonl`` or ``run.json`` gets these classes; their keys stand nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Self

Value = Any  # what JSON can say: a number, a text, None, or a list or table of such


@dataclass(frozen=True)
class Drift:
    """How the clients' updates of a round differ; without a common start nothing is known."""

    length: float | None = None
    distance: float | None = None
    cosine: float | None = None


@dataclass(frozen=True)
class LocalBias:
    """The clients' models of one round, before they are averaged (``metrics.bias_every``)."""

    accuracy_local: float | None
    accuracy_aggregated: float | None
    share_present: float | None
    share_present_unseen: float | None
    entropy: float | None
    drift: Drift = Drift()
    layers: Mapping[str, Drift] = field(default_factory=dict)

    def figures(self) -> dict[str, float | None]:
        """Return all that is one number, by the names of the result files."""
        own = {name: getattr(self, name) for name in _BIAS}
        return {"accuracy_local": self.accuracy_local, **own, **asdict(self.drift)}

    def to_json(self) -> dict[str, Any]:
        """Return the two entries of a line of ``metrics.jsonl``."""
        bias = self.figures()
        local = bias.pop("accuracy_local")
        layers = {name: asdict(drift) for name, drift in self.layers.items()}
        return {"accuracy_local": local, "bias": bias | {"layers": layers}}

    @classmethod
    def from_json(cls, line: Mapping[str, Any]) -> Self:
        """Read what ``to_json`` wrote."""
        bias = line["bias"]
        layers = {name: _drift(values) for name, values in bias["layers"].items()}
        own = {name: bias[name] for name in _BIAS}
        return cls(line["accuracy_local"], **own, drift=_drift(bias), layers=layers)


_BIAS = ("accuracy_aggregated", "share_present", "share_present_unseen", "entropy")


def _drift(values: Mapping[str, Any]) -> Drift:
    return Drift(values["length"], values["distance"], values["cosine"])


@dataclass(frozen=True)
class RoundRecord:
    """One round of a run: a line of ``metrics.jsonl``.

    >>> record = RoundRecord(round=1, clients=(0, 2), loss=2.3, accuracy=0.5)
    >>> RoundRecord.from_json(record.to_json()) == record
    True
    """

    round: int
    clients: tuple[int, ...]  # who trained, and whose reply came
    loss: float
    accuracy: float | None = None  # None: this round was not tested
    accuracy_worst: float | None = None
    accuracy_clients: tuple[float | None, ...] | None = None
    bytes_up: int = 0
    bytes_down: int = 0
    seconds_train: float = 0.0
    seconds_evaluate: float = 0.0
    bias: LocalBias | None = None
    extra: Mapping[str, Value] = field(default_factory=dict)  # of metrics beside those above

    @classmethod
    def made(
        cls,
        round: int,
        clients: tuple[int, ...],
        loss: float,
        figures: Mapping[str, Value],
        bias: LocalBias | None = None,
    ) -> Self:
        """Make the record of a round from the figures of all metrics."""
        known = {name: value for name, value in figures.items() if name in _ROUND}
        if known.get("accuracy_clients") is not None:
            known["accuracy_clients"] = tuple(known["accuracy_clients"])
        extra = {name: value for name, value in figures.items() if name not in _ROUND}
        return cls(round, clients, loss, **known, bias=bias, extra=extra)

    def to_json(self) -> dict[str, Any]:
        """Return the line, as it stands in the file."""
        line: dict[str, Any] = {name: getattr(self, name) for name in _ROUND}
        if self.accuracy_clients is not None:
            line["accuracy_clients"] = list(self.accuracy_clients)
        line["clients"] = list(self.clients)
        bias = {} if self.bias is None else self.bias.to_json()
        return line | bias | dict(self.extra)

    @classmethod
    def from_json(cls, line: Mapping[str, Any]) -> Self:
        """Read a line; KeyError if something is missing."""
        known: dict[str, Any] = {name: line[name] for name in _ROUND}
        known["clients"] = tuple(line["clients"])
        if line["accuracy_clients"] is not None:
            known["accuracy_clients"] = tuple(line["accuracy_clients"])
        bias = LocalBias.from_json(line) if "bias" in line else None
        taken = {*_ROUND, "accuracy_local", "bias"}
        extra = {name: value for name, value in line.items() if name not in taken}
        return cls(**known, bias=bias, extra=extra)


_ROUND = (  # in the order of the file
    "round",
    "accuracy",
    "accuracy_worst",
    "accuracy_clients",
    "loss",
    "bytes_up",
    "bytes_down",
    "seconds_train",
    "seconds_evaluate",
    "clients",
)


@dataclass(frozen=True)
class Split:
    """Who has how much of what."""

    hash: str
    sizes: tuple[int, ...]
    effective_classes: tuple[float, ...]


@dataclass(frozen=True)
class ClassCounts:
    """Which client holds which classes, as far as it is written down."""

    number: int
    names: tuple[str, ...] | None
    clients: tuple[str, ...] | None
    counts: tuple[str, ...]  # of each of the first clients a text such as "3:130 7:14"


@dataclass(frozen=True)
class ModelFacts:
    """The model of a run."""

    name: str
    parameters: int
    fingerprint: str


@dataclass(frozen=True)
class TestSizes:
    """How many samples the last round is tested on, and the others."""

    __test__ = False  # it is not one of pytest's

    last: int
    others: int


@dataclass(frozen=True)
class Divergence:
    """Where a run ended before its time."""

    round: int
    client: int
    what: str


@dataclass(frozen=True)
class RunRecord:
    """What is known of a run beside its rounds: ``run.json``. None: it does not say.

    >>> RunRecord.from_json({"cohort": 4, "split": None}).clients_at_once
    4
    """

    content: str | None = None  # a hash of the samples
    split: Split | None = None
    classes: ClassCounts | None = None
    model: ModelFacts | None = None
    clients_at_once: int | None = None
    device: str | None = None
    code: Mapping[str, str] | None = None  # the user's own code, and a hash of each
    joint: bool | None = None
    own_tests: bool | None = None
    test: TestSizes | None = None
    experiment: str | None = None  # on Flower: how nodes call it
    diverged_at: Divergence | None = None
    cleared: bool | None = None  # --fresh was about to remove it

    def to_json(self) -> dict[str, Any]:
        """Return what stands in the file."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Read the file, that of version 0.1 too, which says ``cohort`` for a block."""
        known: dict[str, Any] = {}
        if "cohort" in values:
            known["clients_at_once"] = values["cohort"]
        for name in (f.name for f in fields(cls)):
            value = values.get(name)
            if value is not None:
                known[name] = _NESTED[name](value) if name in _NESTED else value
        return cls(**known)


def _split(values: Mapping[str, Any]) -> Split:
    sizes, effective = values["sizes"], values["effective_classes"]
    return Split(values["hash"], tuple(sizes), tuple(effective))


def _classes(values: Mapping[str, Any]) -> ClassCounts:
    names, clients = (None if v is None else tuple(v) for v in (values["names"], values["clients"]))
    return ClassCounts(values["number"], names, clients, tuple(values["counts"]))


_NESTED: dict[str, Callable[[Any], Any]] = {
    "split": _split,
    "classes": _classes,
    "model": lambda values: ModelFacts(**values),
    "test": lambda values: TestSizes(**values),
    "diverged_at": lambda values: Divergence(**values),
}
