"""The fast path gives what the slow twin gives: a client at a time, plain autograd, one loop."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

import fedbr
from fedbr.core.reference import Reference
from fedbr.core.rng import torch_stream
from fedbr.core.round import draw_clients, play_round
from fedbr.core.server import Server
from fedbr.core.wire import State, nbytes
from fedbr.methods import METHODS, build
from fedbr.models import build as build_model
from fedbr.recipe.schema import TrainConfig
from fedbr.run.setup import assemble, connect

ROUNDS = 3
COMBINED = ["mixup+fedbr+fedcm", "fedprox+scaffold", "moon+fedbr+dann", "fedmix+fedntd+groupdro"]
VARIANTS = ["fedavg", *METHODS, *COMBINED]
SETTINGS: dict[str, Any] = {
    "local_steps": 3,
    "batch_size": 6,
    "lr": 0.05,
    "clients_per_round": 3,
    "dtype": "float64",
}


def dropping() -> fedbr.FedModel:
    """Layers that draw, and an activation for which there is no rule."""
    layers = [nn.Flatten(), nn.Linear(64, 7), nn.Softplus(), nn.Dropout(0.3), nn.Linear(7, 6)]
    return fedbr.FedModel(nn.Sequential(*layers), 6, 4)


MODELS: dict[str, Any] = {
    "mlp": lambda: build_model("mlp", {"hidden": (7, 6)}, (1, 8, 8), 4),
    "cnn": lambda: build_model("cnn", {"width": 0.1}, (1, 8, 8), 4),
    "resnet20-gn": lambda: build_model("resnet20-gn", {"width": 0.125}, (1, 8, 8), 4),
    "dropout": dropping,
}


@pytest.fixture(scope="module")
def images() -> fedbr.Federation:
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (80, 1, 8, 8), dtype=torch.uint8, generator=generator)
    y = torch.arange(80) % 4
    return fedbr.Federation.from_clients(
        [(x[i::5], y[torch.arange(80)[i::5]]) for i in range(5)], test=(x, y)
    )


def servers(
    federation: fedbr.Federation, model: str, methods: list[fedbr.Method], **settings: Any
) -> tuple[Server, Server]:
    """Train a few rounds by the reference and by blocks of clients; compare what is sent."""
    pairs = []
    for fast in (False, True):
        with torch_stream(1, "model"):
            start = MODELS[model]()
        train = TrainConfig(**SETTINGS | settings)
        setup = assemble(start, methods, federation, train, seed=1)
        carrier: Any = Reference(setup, federation.train)
        if fast:
            carrier = connect(setup, federation.train, federation.test_plan(None, 1), 3)
        pairs.append((Server(setup), carrier))
    for round in range(1, ROUNDS + 1):
        everybody = range(5) if round == 1 else ()
        slow, fast_round = (
            play_round(server, carrier, round, draw_clients(server.setup.spec, round), everybody)
            for server, carrier in pairs
        )
        assert slow.loss == pytest.approx(fast_round.loss, rel=1e-9)
        for one, other in zip(slow.replies, fast_round.replies, strict=True):
            assert nbytes(one.payload) == nbytes(other.payload)
    (slow_server, reference), (fast_server, backend) = pairs
    for client, memory in reference.states.items():
        same(flat(memory), flat(backend.states[client]) if memory else {})
    return slow_server, fast_server


def flat(memory: dict[str, State]) -> State:
    return {f"{name}/{key}": v for name, state in memory.items() for key, v in state.items()}


def same(one: State, other: State) -> None:
    assert one.keys() == other.keys()
    for key, value in one.items():
        torch.testing.assert_close(other[key], value, rtol=1e-10, atol=1e-10, msg=key)


@pytest.mark.parametrize(
    ("model", "variant"),
    [(model, variant) for model in ("mlp", "cnn") for variant in VARIANTS]
    + [(m, v) for m in ("resnet20-gn", "dropout") for v in ("fedavg", "fedbr", *COMBINED)],
)
def test_the_fast_path_is_the_reference(images: fedbr.Federation, model: str, variant: str) -> None:
    methods = [build(name, {}) for name in variant.split("+") if name != "fedavg"]
    slow, fast = servers(images, model, methods)
    same(slow.params, fast.params)
    same(flat(slow.state), flat(fast.state))


@pytest.mark.parametrize("variant", ["fedavg", "fedbr", "scaffold+fedprox", "fedcm"])
@pytest.mark.parametrize(
    "settings",
    [
        {"momentum": 0.9},
        {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
        {"aggregate": "samples"},
    ],
    ids=str,
)
def test_settings_of_the_optimizer(
    images: fedbr.Federation, variant: str, settings: dict[str, Any]
) -> None:
    methods = [build(name, {}) for name in variant.split("+") if name != "fedavg"]
    slow, fast = servers(images, "mlp", methods, **settings)
    same(slow.params, fast.params)


@pytest.mark.parametrize(
    "options",
    [
        {"per_step": 3},
        {"lazy": 2},
        {"max_step": False},
        {"projection": False},
        {"refresh": "once", "balanced": True},
        {"components": 1},
    ],
    ids=str,
)
def test_ways_of_fedbr(images: fedbr.Federation, options: dict[str, Any]) -> None:
    slow, fast = servers(images, "cnn", [fedbr.FedBR(**options)])
    same(slow.params, fast.params)


class Halve(fedbr.Method):
    """Sends half of each update; takes the median."""

    name: ClassVar[str] = "halve"

    def on_upload(self, ctx: fedbr.ClientContext, update: State) -> State:
        return {key: value / 2 for key, value in update.items()}

    def combine(self, replies: Any, weights: Any) -> State:
        models = [reply.payload["model"] for reply in replies]
        return {k: torch.stack([m[k] for m in models]).median(dim=0).values for k in models[0]}


class Norm(fedbr.Method):
    """A term on the weights themselves, by the model run a second time."""

    name: ClassVar[str] = "norm"

    def loss(self, ctx: fedbr.ClientContext, batch: fedbr.Batch, out: fedbr.Output) -> Tensor:
        again = ctx.model(batch.x).logits.square().mean(dim=(1, 2))
        weights = ctx.model.groups["model"].values()
        return again + 0.01 * sum((w.flatten(1).square().sum(dim=1) for w in weights), again)


def test_uploads_and_averages(images: fedbr.Federation) -> None:
    slow, fast = servers(images, "mlp", [fedbr.Moon(), Norm(), Halve()])
    same(slow.params, fast.params)
