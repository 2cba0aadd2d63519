"""Loggers send the rounds of runs to TensorBoard, Weights & Biases or MLflow."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Self

from ..core.records import RoundRecord
from ..recipe.schema import Recipe
from ..util.errors import unknown
from ..util.imports import require
from ..util.tables import Options
from .folder import ResultFolder
from .plan import PlannedRun
from .watch import Watcher


class Logger(ABC):
    """Takes the numbers of one run, round by round.

    Args:
        recipe: the recipe of the run.
        label: the label of its variant.
        seed: its seed.
        folder: the result folder of the recipe.
    """

    package: ClassVar[str]  # which it needs

    @abstractmethod
    def __init__(self, recipe: Recipe, label: str, seed: int, folder: Path) -> None: ...

    @abstractmethod
    def log(self, round: int, numbers: Mapping[str, float]) -> None:
        """Send the numbers of a round, by their names."""

    @abstractmethod
    def close(self) -> None:
        """End the run."""


class TensorBoard(Logger):
    """Writes event files to the result folder: tensorboard --logdir DIR/tensorboard."""

    package = "tensorboard"

    def __init__(self, recipe: Recipe, label: str, seed: int, folder: Path) -> None:
        place = folder / "tensorboard" / ResultFolder(folder, recipe).name(label, seed)
        self.writer = import_module("torch.utils.tensorboard").SummaryWriter(str(place))

    def log(self, round: int, numbers: Mapping[str, float]) -> None:
        for name, value in numbers.items():
            self.writer.add_scalar(name, value, round)
        self.writer.flush()

    def close(self) -> None:
        self.writer.close()


class WandB(Logger):
    """Makes a W&B run for every variant and seed, in the project fedbr.

    WANDB_MODE=offline keeps it on this machine.
    """

    package = "wandb"

    def __init__(self, recipe: Recipe, label: str, seed: int, folder: Path) -> None:
        place = f"{folder.resolve()}/{label}/{seed}"
        facts = {"label": label, "seed": seed, "methods": _find_methods(recipe, label)}
        self.run = import_module("wandb").init(
            project="fedbr",
            group=recipe.name,
            name=f"{label}-{seed}",
            id=blake2b(place.encode(), digest_size=8).hexdigest(),
            dir=str(folder),
            resume="allow",
            config=recipe.model_dump(exclude={"compare"}) | facts,
        )

    def log(self, round: int, numbers: Mapping[str, float]) -> None:
        self.run.log(dict(numbers), step=round)

    def close(self) -> None:
        self.run.finish()


class MLflow(Logger):
    """Makes an MLflow run for every variant and seed, in an experiment named after the recipe.

    MLFLOW_TRACKING_URI says where.
    """

    package = "mlflow"

    def __init__(self, recipe: Recipe, label: str, seed: int, folder: Path) -> None:
        self.mlflow = import_module("mlflow")
        self.mlflow.set_experiment(recipe.name)
        self.mlflow.start_run(run_name=f"{label}-{seed}")
        parameters = {"label": label, "seed": seed, "folder": str(folder), **_flatten(recipe)}
        parameters["methods"] = str(_find_methods(recipe, label))[:500]
        self.mlflow.log_params(parameters)

    def log(self, round: int, numbers: Mapping[str, float]) -> None:
        self.mlflow.log_metrics(dict(numbers), step=round)

    def close(self) -> None:
        self.mlflow.end_run()


LOGGERS: dict[str, type[Logger]] = {"tensorboard": TensorBoard, "wandb": WandB, "mlflow": MLflow}


def check(names: Sequence[str]) -> None:
    """Refuse unknown loggers, and those whose package is not installed.

    Raises:
        InputError: the line names the logger.
    """
    for name in names:
        if name not in LOGGERS:
            raise unknown("--log", name, LOGGERS)
        package = LOGGERS[name].package
        require(package, extra=package, needed_by=f"--log {name}")


class Logging(Watcher):
    """Sends every new round to some loggers; runs come one after the other.

    A logger that fails does not end the training: a warning says so, once.

    Args:
        names: of the loggers, as in LOGGERS.
        recipe: the recipe of the runs.
        folder: its result folder.
    """

    def __init__(self, names: Sequence[str], recipe: Recipe, folder: Path) -> None:
        check(names)
        self._kinds = [LOGGERS[name] for name in names]
        self._recipe, self._folder = recipe, folder
        self._open: list[Logger] = []
        self._sent: dict[int, int] = {}  # of each run, the last round that an earlier call trained

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def resumed(self, run: PlannedRun, rounds: Sequence[RoundRecord]) -> None:
        self._sent[id(run)] = rounds[-1].round

    def started(self, run: PlannedRun) -> None:
        self._close()

    def round_done(self, run: PlannedRun, record: RoundRecord) -> None:
        if record.round <= self._sent.get(id(run), 0):  # a kill came before its checkpoint
            return
        if not self._open:
            for kind in self._kinds:
                with self._warn_of_failure(kind):
                    self._open.append(kind(self._recipe, run.label, run.seed, self._folder))
        for logger in self._open:
            with self._warn_of_failure(type(logger)):
                logger.log(record.round, list_numbers(record))

    def finished(self, run: PlannedRun) -> None:
        self._close()

    def _close(self) -> None:
        while self._open:
            logger = self._open.pop()
            with self._warn_of_failure(type(logger)):
                logger.close()

    @contextmanager
    def _warn_of_failure(self, kind: type[Logger]) -> Iterator[None]:
        """Go on without a logger that fails."""
        try:
            yield
        except Exception as error:
            self._kinds = [other for other in self._kinds if other is not kind]
            self._open = [logger for logger in self._open if type(logger) is not kind]
            message = f"--log {kind.package}: {error}; the run goes on without it"
            warnings.warn(message, RuntimeWarning, stacklevel=2)


def list_numbers(record: RoundRecord) -> dict[str, float]:
    """Return all numbers of a round by their names, as in "bias/layers/encoder.0.weight/length"."""
    return _list_numbers(record.to_json(), "")


def _list_numbers(values: Mapping[str, Any], prefix: str) -> dict[str, float]:
    numbers: dict[str, float] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            numbers |= _list_numbers(value, f"{prefix}{key}/")
        elif isinstance(value, int | float) and key != "round":
            numbers[prefix + key] = value
    return numbers


def _find_methods(recipe: Recipe, label: str) -> list[Options]:
    return next(variant.methods for variant in recipe.compare if variant.label == label)


def _flatten(recipe: Recipe) -> Options:
    """Return the settings of a recipe by names such as "train.lr"."""
    sections = recipe.model_dump(include={"data", "model", "train"}, exclude_none=True)
    settings = {}
    for section, values in sections.items():
        for key, value in values.items():
            settings[f"{section}.{key}"] = value
    return settings
