"""The results of an experiment: every run with its rounds, and what they add up to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ..core.records import Divergence, RoundRecord, RunRecord, Value
from ..recipe.schema import Recipe, Variant
from ..util.tables import Json
from .store import Weights


@dataclass(frozen=True)
class Accuracy:
    """Accuracy over the rounds of a run; None while no round is tested."""

    top5: float | None
    final: float | None
    best: float | None
    worst_top5: float | None


@dataclass(frozen=True)
class Traffic:
    """Bytes that all clients of a run sent and received."""

    up: int
    down: int


@dataclass(frozen=True)
class Seconds:
    """Wall time of a run."""

    train: float
    evaluate: float
    total: float


@dataclass(frozen=True)
class RunResult:
    """One variant with one seed, finished or not."""

    variant: Variant
    seed: int
    finished: bool
    record: RunRecord
    rounds: Sequence[RoundRecord] = field(repr=False)
    accuracy: Accuracy
    rounds_to: Mapping[str, int | None]  # first round at each target
    bytes: Traffic
    seconds: Seconds
    extra: Mapping[str, Value] = field(default_factory=dict)  # of metrics beside those above
    weights: Callable[[], Weights | None] = field(default=lambda: None, repr=False, compare=False)

    @property
    def label(self) -> str:
        """The label of its variant."""
        return self.variant.label

    @property
    def diverged_at(self) -> Divergence | None:
        """Where the run diverged; None if it did not."""
        return self.record.diverged_at

    @property
    def diverged(self) -> bool:
        """Whether the run ended because a loss or a weight was no longer finite."""
        return self.record.diverged_at is not None

    @property
    def accuracy_local(self) -> float | None:
        """Accuracy of the clients' own models, in the last round in which they were tested."""
        for record in reversed(self.rounds):
            if record.bias is not None:
                return record.bias.accuracy_local
        return None

    @property
    def has_bias(self) -> bool:
        """Whether the clients' own models were tested in some round."""
        return any(record.bias is not None for record in self.rounds)

    def to_json(self) -> Json:
        """Return the run's entry of ``results.json``."""
        record = self.record.to_json()
        local = {"accuracy_local": self.accuracy_local} if self.has_bias else {}
        return {
            "label": self.label,
            "methods": self.variant.methods,
            **self.variant.model_dump(include={"train", "tuned"}, exclude_none=True),
            "seed": self.seed,
            "rounds": len(self.rounds),
            "finished": self.finished,
            "split": record["split"],
            "model": record["model"],
            "clients_at_once": self.record.clients_at_once,
            "test_samples": record.get("test"),
            "accuracy": asdict(self.accuracy),
            "rounds_to": dict(self.rounds_to),
            **local,
            "bytes": asdict(self.bytes),
            "seconds": asdict(self.seconds),
            **self.extra,
            "diverged": self.diverged,
            "diverged_at": record.get("diverged_at"),
        }


@dataclass(frozen=True)
class Results:
    """All runs of a recipe that have begun, in the order of variants and seeds.

    >>> import fedbr
    >>> short = ["train.rounds=2", "train.local_steps=1", "train.seeds=0,1"]
    >>> results = fedbr.run_recipe("digits", overrides=short, methods=["fedavg", "fedprox"])
    >>> results.labels, results.seeds
    (['FedAvg', 'FedProx'], [0, 1])
    >>> run = results.run("FedProx", seed=1)
    >>> run.finished, len(run.rounds)
    (True, 2)
    """

    recipe: Recipe
    metrics: Mapping[str, str]  # what each value means, by its name
    runs: Sequence[RunResult]
    path: Path | None = None  # the folder; None: they were never written

    @property
    def labels(self) -> list[str]:
        """The labels of all variants, those that have not begun too."""
        return [variant.label for variant in self.recipe.compare]

    @property
    def seeds(self) -> list[int]:
        """The seeds of the recipe, those that have not begun too."""
        return self.recipe.train.seeds

    @property
    def diverged(self) -> bool:
        """Whether some run diverged."""
        return any(run.diverged for run in self.runs)

    def of(self, label: str) -> list[RunResult]:
        """Return the runs of a variant, seed by seed; none if it has not begun."""
        return [run for run in self.runs if run.label == label]

    def run(self, label: str, seed: int) -> RunResult | None:
        """Return one run; None if it has not begun."""
        for run in self.of(label):
            if run.seed == seed:
                return run
        return None

    def to_json(self) -> Json:
        """Return the content of ``results.json``."""
        return {
            "recipe": self.recipe.model_dump(exclude_none=True),
            "metrics": dict(self.metrics),
            "runs": [run.to_json() for run in self.runs],
        }
