"""What is known of a round and of a run, and the JSON of both.

Lines of ``metrics.jsonl`` and files ``run.json`` are read as these classes; their keys stand
nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Self

from ..util.tables import Json

Value = Any  # what JSON can say: a number, a text, None, or a list or table of such


@dataclass(frozen=True)
class Drift:
    """How the clients' updates of a round differ; None where they have no common start."""

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

    def values(self) -> dict[str, float | None]:
        """Return all that is one number, by the names of the result files."""
        own = {name: getattr(self, name) for name in _BIAS}
        return {"accuracy_local": self.accuracy_local, **own, **asdict(self.drift)}

    def to_json(self) -> Json:
        """Return the two entries of a line of ``metrics.jsonl``."""
        bias = self.values()
        local = bias.pop("accuracy_local")
        layers = {name: asdict(drift) for name, drift in self.layers.items()}
        return {"accuracy_local": local, "bias": bias | {"layers": layers}}

    @classmethod
    def from_json(cls, line: Json) -> Self:
        """Read what ``to_json`` wrote."""
        bias = line["bias"]
        layers = {name: _read_drift(values) for name, values in bias["layers"].items()}
        own = {name: bias[name] for name in _BIAS}
        return cls(line["accuracy_local"], **own, drift=_read_drift(bias), layers=layers)


_BIAS = ("accuracy_aggregated", "share_present", "share_present_unseen", "entropy")


def _read_drift(values: Json) -> Drift:
    return Drift(values["length"], values["distance"], values["cosine"])


@dataclass(frozen=True)
class RoundRecord:
    """One round of a run: a line of ``metrics.jsonl``.

    >>> record = RoundRecord(round=1, clients=(0, 2), loss=2.3, accuracy=0.5)
    >>> RoundRecord.from_json(record.to_json()) == record
    True
    """

    round: int
    clients: tuple[int, ...]  # those that trained, and whose reply came
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
    def from_metrics(
        cls,
        round: int,
        clients: tuple[int, ...],
        loss: float,
        values: Mapping[str, Value],
        bias: LocalBias | None = None,
    ) -> Self:
        """Make the record of a round.

        Args:
            round: its number, from 1.
            clients: those that trained, and whose reply came.
            loss: the mean cross-entropy of their batches.
            values: what all metrics give; those without a field of their own become ``extra``.
            bias: the clients' models before they were averaged, if they were tested.
        """
        own: dict[str, Value] = {}
        extra: dict[str, Value] = {}
        for name, value in values.items():
            if name in _ROUND:
                own[name] = value
            else:
                extra[name] = value
        if own.get("accuracy_clients") is not None:
            own["accuracy_clients"] = tuple(own["accuracy_clients"])
        return cls(round, clients, loss, **own, bias=bias, extra=extra)

    def to_json(self) -> Json:
        """Return the line, as it stands in the file."""
        line: Json = {name: getattr(self, name) for name in _ROUND}
        if self.accuracy_clients is not None:
            line["accuracy_clients"] = list(self.accuracy_clients)
        line["clients"] = list(self.clients)
        bias = {} if self.bias is None else self.bias.to_json()
        return line | bias | dict(self.extra)

    @classmethod
    def from_json(cls, line: Json) -> Self:
        """Read a line.

        Raises:
            KeyError: something is missing.
            ValueError: something is no number that should be one.
        """
        own: Json = {name: line[name] for name in _ROUND}
        for name in _NUMBERS:
            if not isinstance(own[name], int | float | None):
                raise ValueError(f"{name} = {own[name]!r}: expected a number")
        own["clients"] = tuple(line["clients"])
        if line["accuracy_clients"] is not None:
            own["accuracy_clients"] = tuple(line["accuracy_clients"])
        bias = LocalBias.from_json(line) if "bias" in line else None
        read = {*_ROUND, "accuracy_local", "bias"}
        extra = {name: value for name, value in line.items() if name not in read}
        return cls(**own, bias=bias, extra=extra)


_NUMBERS = (
    "round",
    "accuracy",
    "accuracy_worst",
    "loss",
    "bytes_up",
    "bytes_down",
    "seconds_train",
    "seconds_evaluate",
)
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
    """How the samples are split over the clients."""

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
    """What is known of a run beside its rounds: ``run.json``. None: the file does not say.

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

    def to_json(self) -> Json:
        """Return what stands in the file."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @classmethod
    def from_json(cls, values: Json) -> Self:
        """Read the file, also one of version 0.1, which says ``cohort`` for ``clients_at_once``."""
        own: Json = {}
        if "cohort" in values:
            own["clients_at_once"] = values["cohort"]
        for entry in fields(cls):
            name, value = entry.name, values.get(entry.name)
            if value is not None:
                own[name] = _NESTED[name](value) if name in _NESTED else value
        return cls(**own)


def _read_split(values: Json) -> Split:
    sizes, effective = values["sizes"], values["effective_classes"]
    return Split(values["hash"], tuple(sizes), tuple(effective))


def _read_classes(values: Json) -> ClassCounts:
    names, clients = values["names"], values["clients"]
    return ClassCounts(
        number=values["number"],
        names=None if names is None else tuple(names),
        clients=None if clients is None else tuple(clients),
        counts=tuple(values["counts"]),
    )


# How fields of RunRecord are read that are classes themselves.
_NESTED: dict[str, Callable[[Json], object]] = {
    "split": _read_split,
    "classes": _read_classes,
    "model": lambda values: ModelFacts(**values),
    "test": lambda values: TestSizes(**values),
    "diverged_at": lambda values: Divergence(**values),
}
