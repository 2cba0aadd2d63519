"""Runs that tests can look at, take apart and put together again."""

from __future__ import annotations

from typing import Any

import torch

import fedbr
from fedbr.backends.pool import WorkerPool
from fedbr.core.records import RoundRecord
from fedbr.core.rng import torch_stream
from fedbr.core.server import Server
from fedbr.methods import build
from fedbr.models import build as build_model
from fedbr.recipe.schema import Recipe, TrainConfig, Variant
from fedbr.run.loop import rounds
from fedbr.run.setup import assemble, connect

ROUNDS = 4


def methods(variant: str) -> list[fedbr.Method]:
    """Make the methods of a variant such as "mixup+fedbr"."""
    return [build(name, {}) for name in variant.split("+") if name != "fedavg"]


class Play:
    """A run whose parts can be looked at, taken apart and put together again."""

    def __init__(
        self,
        federation: fedbr.Federation,
        variant: list[fedbr.Method],
        pool: WorkerPool | None = None,
        **settings: Any,
    ) -> None:
        defaults = {
            "local_steps": 3,
            "batch_size": 8,
            "lr": 0.05,
            "clients_per_round": 4,
            "dtype": "float64",
            "clients_at_once": 2,
        }
        train = TrainConfig(**defaults | settings)
        with torch_stream(1, "model"):
            model = build_model("mlp", {"hidden": (7,)}, federation.shape, federation.num_classes)
        self.federation = federation
        self.server = Server(assemble(model, variant, federation, train, seed=1))
        assert isinstance(train.clients_at_once, int)
        plan = federation.test_plan(None, 1)
        self.backend = connect(
            self.server.setup, federation.train, plan, train.clients_at_once, pool
        )
        self.records: list[RoundRecord] = []

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Every round as it stands in ``metrics.jsonl``, without the times."""
        lines = [record.to_json() for record in self.records]
        return [{k: v for k, v in line.items() if "seconds" not in k} for line in lines]

    def run(self, first: int = 1, last: int = ROUNDS) -> Play:
        recipe = Recipe(train=TrainConfig(rounds=last), compare=[Variant(label="any")])
        self.records += rounds(recipe, self.server, self.backend, self.federation.census, first)
        return self

    def models(self) -> list[torch.Tensor]:
        """Return all weights of the global model, or of every client's own."""
        models = self.server.models(self.backend.states)
        if not isinstance(models, list):
            models = [models]
        return [value for model in models for value in model.values()]

    def same(self, other: Play, last: int = ROUNDS) -> bool:
        """Say whether both end at the same weights, and with the same line of round ``last``."""
        own, others = (
            [line for line in play.lines if line["round"] <= last] for play in (self, other)
        )
        return own[-1:] == others[-1:] and all(map(torch.equal, self.models(), other.models()))
