"""What the second implementations share: a tiny world, FedAvg on bare tensors, and a method that
watches the package.

Nothing of the package's runtime is used for FedAvg by hand but the random streams. The model is one
Linear and Tanh, then one Linear: four bare tensors.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import fedbr
from fedbr.core.rng import stream

torch.set_num_threads(1)

INPUTS, FEATURES, CLASSES = 5, 4, 3
SIZES = [13, 8, 21, 5]
TOLERANCE = 1e-10

Weights = list[Tensor]  # W and b of the encoder, W and b of the classifier
Clients = list[tuple[Tensor, Tensor]]  # x and y of each


@dataclass(frozen=True)
class Setting:
    seed: int = 7
    rounds: int = 5
    steps: int = 3
    batch: int = 4
    lr: float = 0.2
    per_round: int = 2

    def participants(self, r: int, clients: int = len(SIZES)) -> list[int]:
        """The clients of round r, which counts from 1."""
        return sorted(
            int(i) for i in stream(self.seed, "clients", r).permutation(clients)[: self.per_round]
        )


# Two of four clients a round, so that some are new and some return; all of them; one; other K, B
# and eta.
SETTINGS = {
    "two of four": Setting(),
    "all": Setting(rounds=3, per_round=4),
    "one, single step": Setting(rounds=6, steps=1, batch=3, lr=0.5, per_round=1),
    "three, many steps": Setting(seed=8, rounds=4, steps=7, batch=2, lr=0.05, per_round=3),
}


# ---------------------------------------------------------------------------------------------- the
# tiny world


def world() -> Clients:
    """Four clients that differ in size, inputs and labels."""
    rng = np.random.default_rng(5)
    mixes = [[0.6, 0.3, 0.1], [0.1, 0.2, 0.7], [0.3, 0.4, 0.3], [0.0, 0.9, 0.1]]
    clients = []
    for client, n in enumerate(SIZES):
        x = rng.normal(loc=0.4 * client, scale=1.0 + 0.3 * client, size=(n, INPUTS))
        y = rng.choice(CLASSES, size=n, p=mixes[client])
        clients.append((torch.from_numpy(x), torch.from_numpy(y)))
    return clients


def held_out(size: int = 9, seed: int = 0) -> tuple[Tensor, Tensor]:
    rng = np.random.default_rng([6, seed])
    return torch.from_numpy(rng.normal(scale=1.5, size=(size, INPUTS))), torch.arange(
        size
    ) % CLASSES


def start_weights() -> Weights:
    """The model before the first round."""
    rng = np.random.default_rng(6)
    shapes = [(FEATURES, INPUTS), (FEATURES,), (CLASSES, FEATURES), (CLASSES,)]
    return [torch.from_numpy(rng.normal(scale=0.5, size=shape)) for shape in shapes]


# --------------------------------------------------------------------------------------------
# FedAvg, by hand


def predict(weights: Weights, x: Tensor) -> Tensor:
    """Logits."""
    return torch.tanh(x @ weights[0].T + weights[1]) @ weights[2].T + weights[3]


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """The mean over rows of -sum_c y_c log p_c."""
    probabilities = logits.exp() / logits.exp().sum(1, keepdim=True)
    return (-labels * probabilities.log()).sum(1).mean()


def one_hot(y: Tensor, classes: int = CLASSES) -> Tensor:
    return torch.eye(classes, dtype=torch.float64)[y]


def accuracy(weights: Weights, x: Tensor, y: Tensor) -> float:
    return sum(
        int(guess == truth) for guess, truth in zip(predict(weights, x).argmax(1), y, strict=True)
    ) / len(y)


class FedAvg:
    """Plain FedAvg; the second implementation of a method overrides what that method changes."""

    name = "fedavg"

    def __init__(self, setting: Setting, clients: Clients | None = None) -> None:
        self.setting = setting
        self.clients = world() if clients is None else clients
        self.weights = (
            start_weights()
        )  # the global ones, w_g; they stay as they are while clients train
        self.losses: dict[
            int, list[float]
        ] = {}  # client -> its cross-entropies in this round, step by step

    def mix(self, x: Tensor, y: Tensor, own: np.random.Generator) -> tuple[Tensor, Tensor]:
        """The batch to train on; `own` is the method's own stream on this client in this round."""
        return x, y

    def term(self, weights: Weights) -> Tensor:
        """What to add to the cross-entropy."""
        return torch.zeros((), dtype=torch.float64)

    def direction(self, client: int, slopes: Weights) -> Weights:
        """What to descend along."""
        return slopes

    def leave(self, client: int, weights: Weights) -> None:
        """A client is done with a round."""

    def portions(self, who: list[int]) -> list[float]:
        """The aggregation weights."""
        return [1 / len(who) for _ in who]

    def settle(self, old: Weights, who: list[int]) -> None:
        """A round is over; self.weights are the new ones."""

    def train_client(self, client: int, r: int, weights: Weights) -> Weights:
        s, (xs, ys) = self.setting, self.clients[client]
        picked = stream(s.seed, "batches", r, client).integers(len(xs), size=(s.steps, s.batch))
        own = stream(s.seed, self.name, r, client)
        self.losses[client] = []
        for k in range(s.steps):
            x, y = self.mix(xs[picked[k]], one_hot(ys[picked[k]]), own)
            leaves = [w.clone().requires_grad_() for w in weights]
            loss = cross_entropy(predict(leaves, x), y)
            self.losses[client].append(float(loss.detach()))
            slopes = torch.autograd.grad(loss + self.term(leaves), leaves)
            directions = self.direction(client, list(slopes))
            weights = [w - s.lr * d for w, d in zip(weights, directions, strict=True)]
        self.leave(client, weights)
        return weights

    def run(self) -> Weights:
        for r in range(1, self.setting.rounds + 1):
            who = self.setting.participants(r, len(self.clients))
            ends = [self.train_client(i, r, self.weights) for i in who]
            portions, old = self.portions(who), self.weights
            self.weights = [
                sum_of([p * w for p, w in zip(portions, ws, strict=True)])
                for ws in zip(*ends, strict=True)
            ]
            self.settle(old, who)
        return self.weights


def sum_of(tensors: Sequence[Tensor]) -> Tensor:
    total = torch.zeros_like(tensors[0])
    for t in tensors:
        total = total + t
    return total


def distance(ours: Weights, theirs: Weights) -> float:
    assert [w.shape for w in ours] == [w.shape for w in theirs]
    assert all(w.dtype == torch.float64 for w in theirs)
    return max(float((a - b).abs().max()) for a, b in zip(ours, theirs, strict=True))


# -------------------------------------------------------------------------------------------------
# the real one


def run_package(
    methods: Sequence[fedbr.Method],
    setting: Setting,
    *,
    clients: Clients | None = None,
    test: Any = None,
    classes: int = CLASSES,
    **options: Any,
) -> fedbr.Run:
    """Train with the package what the classes above train by hand."""
    model = fedbr.FedModel(
        nn.Sequential(nn.Linear(INPUTS, FEATURES), nn.Tanh()), FEATURES, classes
    ).double()
    with torch.no_grad():
        for p, w in zip(model.parameters(), start_weights(), strict=True):
            p.copy_(w[: len(p)])  # with fewer classes, the first ones
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
    return fedbr.train(federation, model, methods, **settings | options)


def end(run: fedbr.Run) -> Weights:
    """The final weights."""
    return [p.detach() for p in run.model.parameters()]


def assert_same_bits(run: fedbr.Run, other: fedbr.Run) -> None:
    assert all(torch.equal(a, b) for a, b in zip(end(run), end(other), strict=True))
    assert run.loss == other.loss


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
