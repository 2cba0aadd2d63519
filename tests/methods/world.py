"""The tiny world of the second implementations, and FedAvg in it on bare tensors.

Four clients; the model is one Linear and Tanh, then one Linear: four bare tensors. Nothing of the
package's runtime is used here but its random streams.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from fedbr.core.rng import stream, torch_stream

torch.set_num_threads(1)

INPUTS, FEATURES, CLASSES = 6, 5, 4
IMAGE = (1, 2, 3)  # the same inputs as an image
SIZES = [23, 17, 9, 30]
SEED, ROUNDS, STEPS, BATCH, LR, PER_ROUND = 7, 5, 3, 4, 0.2, 2
TOLERANCE = 1e-10

# W and b of the encoder, W and b of the classifier, then those of what a method adds.
Weights = list[Tensor]
Clients = list[tuple[Tensor, Tensor]]  # x and y of each
TrainClient = Callable[[int, int, Weights], Weights]


@dataclass(frozen=True)
class Setting:
    seed: int = SEED
    rounds: int = ROUNDS
    steps: int = STEPS
    batch: int = BATCH
    lr: float = LR
    per_round: int = PER_ROUND

    def participants(self, r: int, clients: int = len(SIZES)) -> list[int]:
        """The clients of round r, which counts from 1."""
        order = stream(self.seed, "clients", r).permutation(clients)
        return sorted(int(i) for i in order[: self.per_round])


# Two of four clients a round, so that some are new and some return; all of them; one; other K, B
# and eta.
SETTINGS = {
    "two of four": Setting(),
    "all": Setting(rounds=3, per_round=4),
    "one, single step": Setting(rounds=6, steps=1, batch=3, lr=0.5, per_round=1),
    "three, many steps": Setting(seed=8, rounds=4, steps=7, batch=2, lr=0.05, per_round=3),
}


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


def held_out(size: int = 9, seed: int = 0) -> tuple[Tensor, Tensor]:
    rng = np.random.default_rng([6, seed])
    return torch.from_numpy(rng.normal(scale=1.5, size=(size, INPUTS))), torch.arange(
        size
    ) % CLASSES


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


def one_hot(y: Tensor, classes: int = CLASSES) -> Tensor:
    return torch.eye(classes, dtype=torch.float64)[y]


# The model and its loss.


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


def predict(weights: Weights, x: Tensor) -> Tensor:
    """Logits."""
    return classify(weights, features(weights, x))


def accuracy(weights: Weights, x: Tensor, y: Tensor) -> float:
    guesses = predict(weights, x).argmax(1)
    return sum(int(guess == truth) for guess, truth in zip(guesses, y, strict=True)) / len(y)


def cosine(a: Tensor, b: Tensor) -> Tensor:
    """Of each row of a with the same row of b."""
    return (a * b).sum(1) / ((a * a).sum(1).sqrt() * (b * b).sum(1).sqrt())


def sum_of(tensors: Sequence[Tensor]) -> Tensor:
    total = torch.zeros_like(tensors[0])
    for t in tensors:
        total = total + t
    return total


def distance(ours: Weights, theirs: Weights) -> float:
    assert [w.shape for w in ours] == [w.shape for w in theirs]
    assert all(w.dtype == torch.float64 for w in theirs)
    return max(float((a - b).abs().max()) for a, b in zip(ours, theirs, strict=True))


# Training and averaging.


def participants(r: int) -> list[int]:
    return Setting().participants(r)


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


def plain_fedavg() -> Weights:
    """Return FedAvg of this world."""
    return FedAvg(Setting()).run()
