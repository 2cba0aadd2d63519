"""The tiny world of the second implementations: four clients, a model of bare tensors, and plain
federated averaging.

Nothing of the package's runtime is used here but its random streams; `run_package` and `term` alone
call it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fedbr
from fedbr.core.fast import Block
from fedbr.core.method import Batch, ClientContext
from fedbr.core.model import Output
from fedbr.core.rng import stream, torch_stream
from fedbr.core.server import Server
from fedbr.core.spec import Spec

torch.set_num_threads(1)

INPUTS, FEATURES, CLASSES = 6, 5, 4
IMAGE = (1, 2, 3)  # the same inputs as an image
SIZES = [23, 17, 9, 30]
SEED, ROUNDS, STEPS, BATCH, LR, PER_ROUND = 2, 5, 3, 4, 0.2, 2
TOLERANCE = 1e-10

Weights = list[
    Tensor
]  # of the encoder (matrix, bias), of the classifier (matrix, bias), then of what a method adds
Clients = list[tuple[Tensor, Tensor]]
TrainClient = Callable[[int, int, Weights], Weights]


# -------------------------------------------------------------------------------------------------------
# the world


def world() -> Clients:
    """Make clients that differ in size, inputs and labels; client 1 has some samples more than
    once.
    """
    rng = np.random.default_rng(5)
    mixes = [
        [0.5, 0.3, 0.1, 0.1],
        [0.1, 0.1, 0.2, 0.6],
        [0.0, 0.5, 0.5, 0.0],
        [0.25, 0.25, 0.25, 0.25],
    ]
    clients = []
    for client, n in enumerate(SIZES):
        x = rng.normal(loc=0.5 * client - 0.6, scale=1.0 + 0.2 * client, size=(n, INPUTS))
        y = rng.choice(CLASSES, size=n, p=mixes[client])
        if client == 1:
            x[3:8], y[3:8] = x[2], y[2]
        clients.append((torch.from_numpy(x), torch.from_numpy(y)))
    return clients


def start_weights() -> Weights:
    """Return the model before the first round."""
    rng = np.random.default_rng(6)
    shapes = [(FEATURES, INPUTS), (FEATURES,), (CLASSES, FEATURES), (CLASSES,)]
    return [torch.from_numpy(rng.normal(scale=0.5, size=shape)) for shape in shapes]


def fresh_linears(name: str, *sizes: tuple[int, int]) -> Weights:
    """Return the Linears that a method adds: of float32 by torch's default, in order, then of
    float64.
    """
    with torch_stream(SEED, "model", *name.split("/")):
        layers = [nn.Linear(*size) for size in sizes]
    return [w.detach().double() for layer in layers for w in (layer.weight, layer.bias)]


def one_hot(y: Tensor) -> Tensor:
    return torch.eye(CLASSES, dtype=torch.float64)[y]


# -------------------------------------------------------------------------------------------------
# model and loss


def features(w: Weights, x: Tensor) -> Tensor:
    return torch.tanh(x @ w[0].T + w[1])


def classify(w: Weights, z: Tensor) -> Tensor:
    return z @ w[2].T + w[3]


def softmax(logits: Tensor) -> Tensor:
    return logits.exp() / logits.exp().sum(1, keepdim=True)


def cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    """Return the mean over rows of -sum_c y_c log p_c."""
    return (-y * softmax(logits).log()).sum(1).mean()


def plain_loss(w: Weights, x: Tensor, y: Tensor) -> Tensor:
    return cross_entropy(classify(w, features(w, x)), y)


def cosine(a: Tensor, b: Tensor) -> Tensor:
    """Of each row of a with the same row of b."""
    return (a * b).sum(1) / ((a * a).sum(1).sqrt() * (b * b).sum(1).sqrt())


# -------------------------------------------------------------------------------------------------------
# averaging


def participants(r: int) -> list[int]:
    drawn: list[int] = stream(SEED, "clients", r).permutation(len(SIZES))[:PER_ROUND].tolist()
    return sorted(drawn)


def batches(client: int, r: int, size: int = BATCH) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the samples and one-hot labels of each local step."""
    xs, ys = world()[client]
    for index in stream(SEED, "batches", r, client).integers(len(xs), size=(STEPS, size)):
        yield xs[index], one_hot(ys[index])


def descend(weights: Weights, loss: Callable[[Weights], Tensor], rate: float = LR) -> Weights:
    leaves = [w.clone().requires_grad_() for w in weights]
    slopes = torch.autograd.grad(loss(leaves), leaves)
    return [(w - rate * g).detach() for w, g in zip(leaves, slopes, strict=True)]


def federate(weights: Weights, train_client: TrainClient) -> Weights:
    """Play all rounds: the participants train, their mean is the next global model."""
    for r in range(1, ROUNDS + 1):
        ends = [train_client(client, r, weights) for client in participants(r)]
        weights = [torch.stack(same).mean(0) for same in zip(*ends, strict=True)]
    return weights


# -----------------------------------------------------------------------------------------------------
# the package


def make_model(shape: tuple[int, ...] = (INPUTS,)) -> fedbr.FedModel:
    """Return the twin of `start_weights`."""
    first: list[nn.Module] = [nn.Flatten()] if len(shape) > 1 else []
    encoder = nn.Sequential(*first, nn.Linear(INPUTS, FEATURES), nn.Tanh())
    model = fedbr.FedModel(encoder, FEATURES, CLASSES).double()
    with torch.no_grad():
        for p, w in zip(model.parameters(), start_weights(), strict=True):
            p.copy_(w)
    return model


def run_package(
    methods: Sequence[fedbr.Method],
    clients: Clients | None = None,
    model: fedbr.FedModel | None = None,
    shape: tuple[int, ...] = (INPUTS,),
    **options: Any,
) -> tuple[fedbr.Run, Weights]:
    """Train with the package; return the run, and the final weights of what methods added beside
    the model.
    """
    rng = np.random.default_rng(7)
    test = (torch.from_numpy(rng.normal(size=(8, *shape))), torch.arange(8) % CLASSES)
    own = [(x.reshape(-1, *shape), y) for x, y in (world() if clients is None else clients)]
    settings: dict[str, Any] = {
        "rounds": ROUNDS,
        "local_steps": STEPS,
        "batch_size": BATCH,
        "lr": LR,
        "clients_per_round": PER_ROUND if clients is None else None,
        "seed": SEED,
        "dtype": "float64",
    }
    servers: list[Server] = []

    class Watched(Server):  # the returned model has no added modules any more; the server had them
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            servers.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedbr.run.loop.Server", Watched)
        federation = fedbr.Federation.from_clients(own, test=test)
        settings |= {"evaluate_every": 0} | options
        run = fedbr.train(federation, model or make_model(shape), list(methods), **settings)
    return run, [w for key, w in servers[0].params.items() if key.startswith("extras.")]


def final(run: fedbr.Run) -> Weights:
    return [w.detach() for w in run.model.parameters()]


def distance(ours: Weights, theirs: Weights) -> float:
    assert [w.shape for w in ours] == [w.shape for w in theirs]
    assert all(w.dtype == torch.float64 for w in theirs)
    return max(float((a - b).abs().max()) for a, b in zip(ours, theirs, strict=True))


def assert_same(weights: Weights, methods: Sequence[fedbr.Method], **options: Any) -> None:
    """Compare the final weights with those of the package, a client at a time and two together."""
    for clients_at_once in (1, 2):
        run, added = run_package(methods, clients_at_once=clients_at_once, **options)
        assert distance(weights, final(run) + added) < TOLERANCE, (
            f"clients_at_once = {clients_at_once}"
        )


def assert_fedavg(method: fedbr.Method, **options: Any) -> None:
    """Hold a neutral setting to FedAvg, bit by bit."""
    for clients_at_once in (1, 2):
        fedavg, _ = run_package([], clients_at_once=clients_at_once, **options)
        run, added = run_package([method], clients_at_once=clients_at_once, **options)
        assert all(torch.equal(a, b) for a, b in zip(final(fedavg), final(run), strict=True))
        assert run.loss == fedavg.loss
        assert not added


def plain_fedavg() -> Weights:
    """Return FedAvg of this world, by hand."""

    def train_client(client: int, r: int, w: Weights) -> Weights:
        for x, y in batches(client, r):
            w = descend(w, partial(plain_loss, x=x, y=y))
        return w

    return federate(start_weights(), train_client)


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
        shape=tuple(x.shape[2:]), num_classes=y.shape[-1], num_clients=size, clients_per_round=size, local_steps=1,
        batch_size=x.shape[1], lr=LR, seed=SEED, dtype=torch.float64,
    )  # fmt: skip
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
