"""Rounds also sent to where people already look: TensorBoard, Weights & Biases, MLflow. Off unless
asked for.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from ..recipe.schema import Recipe
from ..util.errors import unknown
from ..util.imports import require
from .folder import ResultFolder

Line = Mapping[str, Any]


class Logger(ABC):
    """Takes the numbers of one run, round by round."""

    package: ClassVar[str]

    @abstractmethod
    def __init__(self, recipe: Recipe, label: str, seed: int, folder: Path) -> None: ...

    @abstractmethod
    def log(self, round: int, numbers: Mapping[str, float]) -> None: ...

    @abstractmethod
    def close(self) -> None: ...


class TensorBoard(Logger):
    """Event files below the result folder: tensorboard --logdir DIR/tensorboard."""

    package = "tensorboard"

    def __init__(self, recipe: Recipe, label: str, seed: int, folder: Path) -> None:
        writer = import_module("torch.utils.tensorboard").SummaryWriter
        self.writer = writer(
            str(folder / "tensorboard" / ResultFolder(folder, recipe).name(label, seed))
        )

    def log(self, round: int, numbers: Mapping[str, float]) -> None:
        for name, value in numbers.items():
            self.writer.add_scalar(name, value, round)
        self.writer.flush()

    def close(self) -> None:
        self.writer.close()


class WandB(Logger):
    """A run per variant and seed in the project fedbr; WANDB_MODE=offline keeps it on this machine."""

    package = "wandb"

    def __init__(self, recipe: Recipe, label: str, seed: int, folder: Path) -> None:
        self.run = import_module("wandb").init(
            project="fedbr", group=recipe.name, name=f"{label}-{seed}", dir=str(folder), resume="allow",
            id=blake2b(f"{folder.resolve()}/{label}/{seed}".encode(), digest_size=8).hexdigest(),
            config=recipe.model_dump(exclude={"compare"})
            | {"label": label, "seed": seed, "methods": _methods(recipe, label)},
        )  # fmt: skip

    def log(self, round: int, numbers: Mapping[str, float]) -> None:
        self.run.log(dict(numbers), step=round)

    def close(self) -> None:
        self.run.finish()


class MLflow(Logger):
    """A run per variant and seed in the experiment named after the recipe; MLFLOW_TRACKING_URI says
    where.
    """

    package = "mlflow"

    def __init__(self, recipe: Recipe, label: str, seed: int, folder: Path) -> None:
        self.mlflow = import_module("mlflow")
        self.mlflow.set_experiment(recipe.name)
        self.mlflow.start_run(run_name=f"{label}-{seed}")
        about = {"label": label, "seed": seed, "folder": str(folder)}
        self.mlflow.log_params(
            about | _flat(recipe) | {"methods": str(_methods(recipe, label))[:500]}
        )

    def log(self, round: int, numbers: Mapping[str, float]) -> None:
        self.mlflow.log_metrics(dict(numbers), step=round)

    def close(self) -> None:
        self.mlflow.end_run()


LOGGERS: dict[str, type[Logger]] = {"tensorboard": TensorBoard, "wandb": WandB, "mlflow": MLflow}


def check(names: Sequence[str]) -> None:
    """Refuse what is not known or not installed, before anything is trained."""
    for name in names:
        if name not in LOGGERS:
            raise unknown("--log", name, LOGGERS)
        package = LOGGERS[name].package
        require(package, extra=package, wanted_by=f"--log {name}")


class Logging:
    """Sends every new round to the loggers that were asked for; runs come one after the other."""

    def __init__(self, names: Sequence[str], recipe: Recipe, folder: Path, fresh: bool) -> None:
        self.kinds = [LOGGERS[name] for name in names]
        self.recipe, self.folder = recipe, folder
        results = ResultFolder(folder, recipe)
        self.sent = {  # rounds that an earlier call trained, and sent if it was asked to
            (variant.label, seed): 0 if fresh else len(results.run(variant, seed).lines())
            for variant in recipe.compare
            for seed in recipe.train.seeds
        }
        self.now: list[Logger] = []

    def __call__(self, label: str, seed: int, line: Line | None) -> None:
        if line is None:
            self.close()
        elif self.kinds and line["round"] > self.sent[label, seed]:
            if not self.now:
                for kind in self.kinds:
                    with self._at_most_warn(kind):
                        self.now.append(kind(self.recipe, label, seed, self.folder))
            for logger in self.now:
                with self._at_most_warn(type(logger)):
                    logger.log(line["round"], numbers(line))

    def close(self) -> None:
        while self.now:
            logger = self.now.pop()
            with self._at_most_warn(type(logger)):
                logger.close()

    @contextmanager
    def _at_most_warn(self, kind: type[Logger]) -> Iterator[None]:
        """A logger that fails must not end the training: say so once, and do without it."""
        try:
            yield
        except Exception as error:
            self.kinds = [k for k in self.kinds if k is not kind]
            self.now = [logger for logger in self.now if type(logger) is not kind]
            warnings.warn(
                f"--log {kind.package}: {error}; the run goes on without it",
                RuntimeWarning,
                stacklevel=2,
            )


@contextmanager
def logging(
    names: Sequence[str], recipe: Recipe, folder: Path, fresh: bool = False
) -> Iterator[Logging]:
    """Log until the end, whatever the end is."""
    check(names)
    found = Logging(names, recipe, folder, fresh)
    try:
        yield found
    finally:
        found.close()


def numbers(line: Line, prefix: str = "") -> dict[str, float]:
    """Return what of a round is a number; what is in a table in it has the table's name before its
    own.
    """
    found: dict[str, float] = {}
    for key, value in line.items():
        if isinstance(value, dict):
            found |= numbers(value, f"{prefix}{key}/")
        elif isinstance(value, int | float) and key != "round":
            found[prefix + key] = value
    return found


def _methods(recipe: Recipe, label: str) -> list[dict[str, Any]]:
    return next(variant.methods for variant in recipe.compare if variant.label == label)


def _flat(recipe: Recipe) -> dict[str, Any]:
    sections = recipe.model_dump(include={"data", "model", "train"}, exclude_none=True)
    return {
        f"{section}.{key}": value
        for section, values in sections.items()
        for key, value in values.items()
    }
