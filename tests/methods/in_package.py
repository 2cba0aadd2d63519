"""The package in the tiny world: what it trains, what methods see, and what they leave alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from world import (
    CLASSES,
    FEATURES,
    INPUTS,
    LR,
    SEED,
    TOLERANCE,
    Clients,
    Setting,
    Weights,
    distance,
    held_out,
    start_weights,
    world,
)

import fedbr
from fedbr.core.fast import Block
from fedbr.core.method import Batch, ClientContext
from fedbr.core.model import Output
from fedbr.core.rng import stream
from fedbr.core.server import Server
from fedbr.core.spec import Spec


def make_model(shape: tuple[int, ...] = (INPUTS,), classes: int = CLASSES) -> fedbr.FedModel:
    """Return the twin of ``start_weights``."""
    first: list[nn.Module] = [nn.Flatten()] if len(shape) > 1 else []
    encoder = nn.Sequential(*first, nn.Linear(INPUTS, FEATURES), nn.Tanh())
    model = fedbr.FedModel(encoder, FEATURES, classes).double()
    with torch.no_grad():
        for p, w in zip(model.parameters(), start_weights(), strict=True):
            p.copy_(w[: len(p)])  # with fewer classes, the first ones
    return model


def run_package(
    methods: Sequence[fedbr.Method],
    setting: Setting,
    *,
    clients: Clients | None = None,
    test: Any = None,
    classes: int = CLASSES,
    model: fedbr.FedModel | None = None,
    **options: Any,
) -> fedbr.Run:
    """Train with the package what is trained by hand."""
    federation = fedbr.Federation.from_clients(
        world() if clients is None else clients, test=held_out() if test is None else test
    )
    settings: dict[str, Any] = {
        "seed": setting.seed,
        "rounds": setting.rounds,
        "local_steps": setting.steps,
        "batch_size": setting.batch,
        "lr": setting.lr,
        "clients_per_round": setting.per_round,
        "evaluate_every": setting.rounds,
        "dtype": "float64",
    }
    own = make_model(classes=classes) if model is None else model
    return fedbr.train(federation, own, list(methods), **settings | options)


def run_with_added(
    methods: Sequence[fedbr.Method],
    clients: Clients | None = None,
    model: fedbr.FedModel | None = None,
    shape: tuple[int, ...] = (INPUTS,),
    **options: Any,
) -> tuple[fedbr.Run, Weights]:
    """Train with the package; return also the weights of what methods added beside the model."""
    rng = np.random.default_rng(7)
    test = (torch.from_numpy(rng.normal(size=(8, *shape))), torch.arange(8) % CLASSES)
    own = [(x.reshape(-1, *shape), y) for x, y in (world() if clients is None else clients)]
    settings: dict[str, Any] = {"evaluate_every": 0}
    if clients is not None:
        settings["clients_per_round"] = None
    servers: list[Server] = []

    class Watched(Server):  # the returned model has no added modules any more; the server had them
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            servers.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedbr.run.loop.Server", Watched)
        run = run_package(
            methods,
            Setting(),
            clients=own,
            test=test,
            model=model or make_model(shape),
            **settings | options,
        )
    return run, [w for key, w in servers[0].params.items() if key.startswith("extras.")]


def final(run: fedbr.Run) -> Weights:
    """Return the weights of the model."""
    return [p.detach() for p in run.model.parameters()]


def assert_same_bits(run: fedbr.Run, other: fedbr.Run) -> None:
    assert all(torch.equal(a, b) for a, b in zip(final(run), final(other), strict=True))
    assert run.loss == other.loss


def assert_same(weights: Weights, methods: Sequence[fedbr.Method], **options: Any) -> None:
    """Compare the final weights with those of the package, a client at a time and two together."""
    for clients_at_once in (1, 2):
        run, added = run_with_added(methods, clients_at_once=clients_at_once, **options)
        assert distance(weights, final(run) + added) < TOLERANCE, (
            f"clients_at_once = {clients_at_once}"
        )


def assert_fedavg(method: fedbr.Method, **options: Any) -> None:
    """Hold a neutral setting to FedAvg, bit by bit."""
    for clients_at_once in (1, 2):
        fedavg, _ = run_with_added([], clients_at_once=clients_at_once, **options)
        run, added = run_with_added([method], clients_at_once=clients_at_once, **options)
        assert all(torch.equal(a, b) for a, b in zip(final(fedavg), final(run), strict=True))
        assert run.loss == fedavg.loss
        assert not added


def term(
    method: fedbr.Method,
    x: Tensor,
    y: Tensor,
    out: Output | None = None,
    received: dict[str, Tensor] | None = None,
    model: fedbr.FedModel | None = None,
) -> Tensor:
    """Return what the method adds to the loss, [C], for batches x [C, B, ...], y [C, B, K] (and
    outputs of choice).
    """
    model = model or make_model()
    size = len(x)
    spec = Spec(
        shape=tuple(x.shape[2:]),
        num_classes=y.shape[-1],
        num_clients=size,
        clients_per_round=size,
        local_steps=1,
        batch_size=x.shape[1],
        lr=LR,
        seed=SEED,
        dtype=torch.float64,
    )
    block = Block(model, model.weights(), size, len(spec.shape))

    def forbidden(*_: Any) -> Any:
        raise AssertionError("a method that adds a term only neither descends nor draws samples")

    ctx = ClientContext(
        clients=torch.arange(size),
        round=1,
        spec=spec,
        model=block,
        global_params=model.weights() if received is None else received,
        rngs=[stream(SEED, method.name, 1, c) for c in range(size)],
        descend=forbidden,
        sampler=forbidden,
        state={k: torch.stack([v] * size) for k, v in method.init_client(model).items()},
    )
    method.begin(ctx)
    batch = method.on_batch(ctx, Batch(x, y, 0))
    value = method.loss(ctx, batch, block(batch.x) if out is None else out)
    return x.new_zeros(size) if value is None else value


@dataclass(frozen=True)
class Step:
    """What a watcher sees of one local step of one client."""

    weights: Weights  # before the step
    slopes: Weights  # the gradient, as it is at the watcher's place in the list
    received: Weights  # w_g
    x: Tensor
    y: Tensor


class Watch:
    """A method that changes nothing and writes down what it sees, at its place in the list of
    methods.
    """

    def __init__(self, label: str) -> None:
        watch = self
        self.steps: dict[tuple[int, int], list[Step]] = defaultdict(
            list
        )  # (round, client) -> its local steps
        self.ends: dict[
            tuple[int, int], Weights
        ] = {}  # (round, client) -> its weights after the last one
        self.rounds: list[
            tuple[list[Weights], Weights]
        ] = []  # the clients' models, and the new global one
        batches: list[fedbr.Batch] = []
        keys: list[str] = []

        class Watcher(fedbr.Method):
            name = label

            def on_batch(self, ctx: fedbr.ClientContext, batch: fedbr.Batch) -> fedbr.Batch:
                batches[:] = [batch]
                return batch

            def on_grad(self, ctx: fedbr.ClientContext, params: dict[str, Tensor]) -> None:
                keys[:] = params
                for i, client in enumerate(ctx.clients.tolist()):
                    watch.steps[ctx.round, client].append(
                        Step(
                            [p[i].detach().clone() for p in params.values()],
                            [
                                p.grad[i].detach().clone()
                                for p in params.values()
                                if p.grad is not None
                            ],
                            [ctx.global_params[key].clone() for key in params],
                            batches[0].x[i].clone(),
                            batches[0].y[i].clone(),
                        )
                    )

            def finish(self, ctx: fedbr.ClientContext) -> dict[str, Tensor]:
                for i, client in enumerate(ctx.clients.tolist()):
                    watch.ends[ctx.round, client] = [
                        ctx.model.weights[key][i].detach().clone() for key in keys
                    ]
                return {}

            def update_server(self, state: dict[str, Tensor], ctx: fedbr.ServerContext) -> None:
                models = [
                    [reply.payload["model"][key].clone() for key in keys] for reply in ctx.replies
                ]
                watch.rounds.append((models, [ctx.new_params[key].clone() for key in keys]))

        self.method = Watcher()


class Passenger:
    """A method with a module of its own, whose training has nothing to do with the model."""

    def __init__(self) -> None:
        seen: list[Tensor] = []
        self.seen = seen  # the module's weights at the end of each client's rounds

        class Rides(fedbr.Method):
            name = "passenger"

            def extra_module(self, model: fedbr.FedModel, spec: Any) -> nn.Module:
                return nn.Linear(FEATURES, 1)

            def begin(self, ctx: fedbr.ClientContext) -> None:
                ctx.scratch["x"] = torch.ones(len(ctx.clients), 1, FEATURES, dtype=torch.float64)

            def on_batch(self, ctx: fedbr.ClientContext, batch: fedbr.Batch) -> fedbr.Batch:
                out = ctx.model.extra("passenger", ctx.scratch["x"])
                ctx.descend(
                    ((out - 1 - ctx.clients.view(-1, 1, 1)) ** 2).mean(dim=(1, 2)), "passenger"
                )
                return batch

            def finish(self, ctx: fedbr.ClientContext) -> dict[str, Tensor]:
                seen.extend(
                    w.detach().clone()
                    for key, w in ctx.model.weights.items()
                    if key.startswith("extras.")
                )
                return {}

        self.method = Rides()


def assert_modules_of_others_are_left_alone(method: fedbr.Method, setting: Setting) -> None:
    """Only the model's own gradients are edited."""
    alone, along = Passenger(), Passenger()
    run_package([alone.method], setting, clients_at_once=2)
    run_package([along.method, method], setting, clients_at_once=2)
    assert alone.seen
    assert all(torch.equal(a, b) for a, b in zip(alone.seen, along.seen, strict=True))
