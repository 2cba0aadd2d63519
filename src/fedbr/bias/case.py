"""What is diagnosed: clients, a global model, and the methods whose local models are compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pydantic import Field

from ..core.method import Method
from ..core.model import FedModel
from ..core.wire import State
from ..data import Federation
from ..methods import FedBR
from ..recipe.schema import Section, TrainConfig
from ..report.local_models import Rounds


class Options(Section):
    """How to diagnose: who trains, for how long, and from which weights."""

    clients: int = Field(10, ge=1, description="clients that train, drawn if there are more")
    client: int | None = Field(
        None, ge=0, description="the one in the pictures; default: the first of them"
    )
    samples: int = Field(1000, ge=2, description="test samples, the same number of each class")
    pretrain: int = Field(
        0, ge=0, le=10**6, description="epochs on everybody's data before the clients begin"
    )
    epochs: int | None = Field(
        None, ge=1, le=10**6, description="local epochs; default: train.local_steps steps"
    )
    start: Literal["model", "features", "scratch"] = Field(
        "model",
        description="what clients begin with: the global model, its feature extractor only, or "
        "fresh weights",
    )


@dataclass(frozen=True)
class Origin:
    """Where a global model comes from, as far as it is known."""

    source: str | None = None  # in words
    share: float | None = None  # of the other half's samples, in the toy example
    run: str | None = None  # label of the run whose model it is
    rounds_done: int | None = None
    rounds_planned: int | None = None


@dataclass(frozen=True)
class Case:
    """A global model and who is about to train it."""

    federation: Federation
    model: FedModel  # with its initial weights
    variants: Mapping[str, Sequence[Method]]  # by label
    train: TrainConfig
    seed: int
    weights: State | None = None  # the global model's, if it was trained
    round: int = 1  # the one that is diagnosed
    origin: Origin = Origin()
    workers: int = 1  # as many processes as make it faster
    logged: Rounds = field(default_factory=dict)  # of the runs, while they trained


def before_and_after(fedbr: FedBR | None = None) -> dict[str, list[Method]]:
    """Return the variants that the paper compares: FedAvg, each component of FedBR, and both.

    Args:
        fedbr: FedBR with the settings to take; None: its defaults.

    Returns:
        The methods of each variant, by its label.

    >>> list(before_and_after())
    ['FedAvg', 'Component 1', 'Component 2', 'FedBR']
    """
    both = fedbr or FedBR()
    variants: dict[str, list[Method]] = {"FedAvg": []}
    for component in (1, 2):
        alone = both.model_copy(update={"components": component})
        variants[f"Component {component}"] = [alone]
    variants["FedBR"] = [both.model_copy(update={"components": "both"})]
    return variants
