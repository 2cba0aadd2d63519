"""Combined methods a second time, by one plain loop over bare tensors.

The loop asks every method in listed order.

Nothing of the package's runtime is used for it but the random streams. What a method computes is
taken from that method's own second implementation; what is new here is who sees what, and when.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from in_package import (
    assert_same,
    final,
    run_with_added,
)
from test_dann import client_loss
from test_fedbr_by_hand import contrast
from test_fedcm import FedCMByHand
from test_feddecorr import decorr
from test_fedmix import fedmix_loss, shared_means
from test_fedntd import ntd
from test_mixup import MixupByHand
from test_moon import moon_loss, represent
from test_moon import start as start_of_moon
from test_scaffold import ScaffoldByHand
from torch import Tensor
from world import (
    BATCH,
    LR,
    ROUNDS,
    SEED,
    SIZES,
    STEPS,
    TOLERANCE,
    FedAvg,
    Setting,
    Weights,
    batches,
    cross_entropy,
    descend,
    distance,
    fresh_linears,
    participants,
    plain_fedavg,
    plain_loss,
    start_weights,
    world,
)

import fedbr
from fedbr.core.rng import stream

CLEARLY = 1e-6
SETTING = Setting(seed=SEED, rounds=ROUNDS, steps=STEPS, batch=BATCH, lr=LR)

OPTIONS: dict[str, dict[str, Any]] = {
    "mixup": {"alpha": 1.0},
    "naivemix": {"lam": 0.2, "mean_of": 3},
    "fedmix": {"lam": 0.2, "mean_of": 3},
    "fedbr": {
        "lam": 0.7,
        "mu": 0.9,
        "tau1": 1.5,
        "tau2": 2.5,
        "hidden": 7,
        "width": 4,
        "mean_of": 3,
    },
    "moon": {"weight": 1.0, "tau": 0.5, "hidden": 7, "width": 3, "head": True},
    "dann": {"weight": 0.5, "width": 7, "mode": "reversal"},
    "dann alternate": {"weight": 0.5, "width": 7, "mode": "alternate"},
    "fedntd": {"beta": 0.8, "tau": 1.5},
    "feddecorr": {"beta": 0.3},
    "fedprox": {"mu": 0.6},
    "scaffold": {},
    "fedcm": {"alpha": 0.4},
}


def classify(w: Weights, z: Tensor) -> Tensor:
    """With the classifier, which comes last."""
    return z @ w[-2].T + w[-1]


def zeros(w: Weights) -> Weights:
    return [torch.zeros_like(one) for one in w]


def mean(ends: list[Weights]) -> Weights:
    return [torch.stack(same).mean(0) for same in zip(*ends, strict=True)]


# ------------------------------------------------------------------------------------------------
# what each method does


class Part:
    """A method's share of a round; by default nothing. One client trains after the other."""

    def __init__(self, name: str, w: Weights) -> None:
        self.name, self.s = name, OPTIONS[name]
        # That it adds: in training, of the client whose turn it is; else the global one.
        self.module: Weights = []

    def open(self, r: int, who: list[int]) -> None:
        """Begin a round."""

    def enter(self, client: int, r: int, w_global: Weights) -> None:
        """Begin a client's turn."""
        self.client, self.w_global = client, w_global
        self.own = stream(SEED, self.name, r, client)

    def mix(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return x, y

    def term(self, w: Weights, x: Tensor, y: Tensor) -> Tensor | float:
        """Return what to add to the cross-entropy."""
        return 0.0

    def direction(self, w: Weights, slopes: Weights) -> Weights:
        """Return what to descend along; `slopes` are of the model only."""
        return slopes

    def leave(self, w: Weights) -> None:
        """End a client's turn."""

    def settle(self, old: Weights, new: Weights, who: list[int]) -> None:
        """End a round."""


class Known(Part):
    """One that fits into FedAvg of world.py, where its state has the shapes of that world."""

    def __init__(self, name: str, w: Weights) -> None:
        super().__init__(name, w)
        self.hand = self.make(w)

    def make(self, w: Weights) -> FedAvg:
        raise NotImplementedError

    def enter(self, client: int, r: int, w_global: Weights) -> None:
        super().enter(client, r, w_global)
        self.hand.weights = w_global

    def mix(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return self.hand.mix(x, y, self.own)

    def direction(self, w: Weights, slopes: Weights) -> Weights:
        return self.hand.direction(self.client, slopes)

    def leave(self, w: Weights) -> None:
        self.hand.leave(self.client, w)

    def settle(self, old: Weights, new: Weights, who: list[int]) -> None:
        self.hand.weights = new
        self.hand.settle(old, who)


class Mixup(Known):
    def make(self, w: Weights) -> FedAvg:
        return MixupByHand(SETTING, self.s["alpha"])


class Scaffold(Known):
    def make(self, w: Weights) -> FedAvg:
        hand = ScaffoldByHand(SETTING)
        hand.c, hand.own = zeros(w), [zeros(w) for _ in SIZES]
        return hand


class FedCM(Known):
    def make(self, w: Weights) -> FedAvg:
        hand = FedCMByHand(SETTING, self.s["alpha"])
        hand.delta = zeros(w)
        return hand


class FedProx(Part):
    def direction(self, w: Weights, slopes: Weights) -> Weights:
        return [
            g + self.s["mu"] * (a - b) for g, a, b in zip(slopes, w, self.w_global, strict=True)
        ]


class NaiveMix(Part):
    def __init__(self, name: str, w: Weights) -> None:
        super().__init__(name, w)
        self.shared = shared_means(name, self.s["mean_of"], None, BATCH)

    def draw(self) -> tuple[Tensor, Tensor]:
        index = self.own.integers(len(self.shared[0]), size=BATCH)
        return self.shared[0][index], self.shared[1][index]

    def mix(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        lam, (x_bar, y_bar) = self.s["lam"], self.draw()
        return (1 - lam) * x + lam * x_bar, (1 - lam) * y + lam * y_bar


class FedMix(NaiveMix):
    def mix(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        self.x, (self.x_bar, self.y_bar) = x, self.draw()
        return (1 - self.s["lam"]) * x, y

    def term(self, w: Weights, x: Tensor, y: Tensor) -> Tensor:
        """Put its whole loss in the place of the cross-entropy, at the batch as the methods before
        it left it.
        """
        return fedmix_loss(w, self.x, y, self.x_bar, self.y_bar, self.s["lam"]) - plain_loss(
            w, x, y
        )


class FedBR(Part):
    def __init__(self, name: str, w: Weights) -> None:
        super().__init__(name, w)
        inputs, hidden, width = w[-2].shape[1], self.s["hidden"], self.s["width"]
        self.module = fresh_linears("fedbr", (inputs, hidden), (hidden, hidden), (hidden, width))

    def open(self, r: int, who: list[int]) -> None:
        """RSM: means of samples that differ from each other, as they are with the clients, never
        mixed.
        """
        pool = []
        for client in who:
            xs, rng = world()[client][0], stream(SEED, "fedbr", "contribute", r, client)
            for _ in range(math.ceil(BATCH / len(who))):
                picked: list[Tensor] = []
                for i in rng.permutation(len(xs)):
                    if len(picked) < self.s["mean_of"] and not any(
                        torch.equal(xs[i], x) for x in picked
                    ):
                        picked.append(xs[i])
                pool.append(torch.stack(picked).mean(0))
        kept = stream(SEED, "fedbr", "share", r).permutation(len(pool))[:BATCH]
        self.pseudo = torch.stack([pool[i] for i in kept])

    def term(self, w: Weights, x: Tensor, y: Tensor) -> Tensor:
        near = represent(self.w_global, self.pseudo)
        here, local = represent(w, self.pseudo), represent(w, x)

        def l_con(theta: Weights, here: Tensor, local: Tensor) -> Tensor:
            return contrast(here, local, near, theta, self.s)

        fixed = functools.partial(l_con, here=here.detach(), local=local.detach())
        self.module = descend(self.module, fixed, -LR)  # the max step
        no_class = torch.full((len(self.pseudo), y.shape[1]), 1 / y.shape[1], dtype=torch.float64)
        lam: float = self.s["lam"]
        mu: float = self.s["mu"]
        return lam * cross_entropy(classify(w, here), no_class) + mu * l_con(
            self.module, here, local
        )


class DANN(Part):
    def __init__(self, name: str, w: Weights) -> None:
        super().__init__(name, w)
        width = self.s["width"]
        self.module = fresh_linears(
            "dann", (w[-2].shape[1], width), (width, width), (width, len(SIZES))
        )

    def term(self, w: Weights, x: Tensor, y: Tensor) -> Tensor:
        z, old = represent(w, x), self.module
        self.module = descend(old, functools.partial(client_loss, z=z.detach(), client=self.client))
        judge = self.module if self.s["mode"] == "alternate" else old
        weight: float = self.s["weight"]
        return -weight * client_loss(judge, z, self.client)


class Moon(Part):
    def __init__(self, name: str, w: Weights) -> None:
        super().__init__(name, w)
        self.before: dict[int, Weights] = {}

    def term(self, w: Weights, x: Tensor, y: Tensor) -> Tensor:
        whole = moon_loss(w, self.w_global, self.before.get(self.client), x, y, self.s)
        return whole - cross_entropy(classify(w, represent(w, x)), y)

    def leave(self, w: Weights) -> None:
        self.before[self.client] = w


class FedNTD(Part):
    def term(self, w: Weights, x: Tensor, y: Tensor) -> Tensor:
        teacher = classify(self.w_global, represent(self.w_global, x))
        return ntd(classify(w, represent(w, x)), teacher, y, **self.s)


class FedDecorr(Part):
    def term(self, w: Weights, x: Tensor, y: Tensor) -> Tensor:
        beta: float = self.s["beta"]
        return beta * decorr(represent(w, x))


PARTS: dict[str, tuple[type[Part], Callable[..., fedbr.Method]]] = {
    "mixup": (Mixup, fedbr.Mixup),
    "naivemix": (NaiveMix, fedbr.NaiveMix),
    "fedmix": (FedMix, fedbr.FedMix),
    "fedbr": (FedBR, fedbr.FedBR),
    "moon": (Moon, fedbr.Moon),
    "dann": (DANN, fedbr.DANN),
    "dann alternate": (DANN, fedbr.DANN),
    "fedntd": (FedNTD, fedbr.FedNTD),
    "feddecorr": (FedDecorr, fedbr.FedDecorr),
    "fedprox": (FedProx, fedbr.FedProx),
    "scaffold": (Scaffold, fedbr.SCAFFOLD),
    "fedcm": (FedCM, fedbr.FedCM),
}


# --------------------------------------------------------------------------------------------------
# several methods at once


def train_client(parts: list[Part], client: int, r: int, w_global: Weights) -> Weights:
    w = w_global
    for part in parts:
        part.enter(client, r, w_global)
    for x, y in batches(client, r):
        for part in parts:
            x, y = part.mix(x, y)
        leaves = [one.clone().requires_grad_() for one in w]
        loss = cross_entropy(classify(leaves, represent(leaves, x)), y)
        for part in parts:
            loss = loss + part.term(leaves, x, y)
        slopes = list(torch.autograd.grad(loss, leaves))
        for part in parts:
            slopes = part.direction(w, slopes)
        w = [one - LR * g for one, g in zip(w, slopes, strict=True)]
    for part in parts:
        part.leave(w)
    return w


@functools.cache
def by_hand(variant: str) -> Weights:
    """Play all rounds; return the model, then what methods added, in listed order."""
    names = variant.split("+")
    w = start_of_moon(OPTIONS["moon"]) if "moon" in names else start_weights()
    parts = [PARTS[name][0](name, w) for name in names]
    for r in range(1, ROUNDS + 1):
        who, received, ends = participants(r), [part.module for part in parts], []
        for part in parts:
            part.open(r, who)
        for client in who:
            for part, module in zip(parts, received, strict=True):
                part.module = module
            ends.append([train_client(parts, client, r, w), *(part.module for part in parts)])
        old, (w, *modules) = w, [mean(list(same)) for same in zip(*ends, strict=True)]
        for part, module in zip(parts, modules, strict=True):
            part.module = module
            part.settle(old, w, who)
    return w + [one for part in parts for one in part.module]


def methods(variant: str) -> list[fedbr.Method]:
    return [PARTS[name][1](**OPTIONS[name]) for name in variant.split("+")]


VARIANTS = [
    "mixup+fedbr",
    "fedbr+fedcm",
    "fedbr+feddecorr",
    "fedbr+fedntd",
    "mixup+fedbr+fedcm",
    "fedprox+scaffold",
    "scaffold+fedprox",
    "scaffold+fedcm",
    "fedcm+scaffold",
    "fedprox+fedcm",
    "fedcm+fedprox",
    "moon+fedbr",
    "fedbr+moon",
    "moon+fedbr+scaffold",
    "mixup+fedntd",
    "mixup+fedmix",
    "naivemix+mixup",
    "mixup+naivemix",
    "dann+fedbr",
    "fedbr+dann",
    "dann alternate+fedbr",
    "dann+fedbr+fedprox",
]
SAME = [
    ("fedprox+scaffold", "scaffold+fedprox"),  # both add to the gradient
    ("dann+fedbr", "fedbr+dann"),  # each adversary has a module of its own
    ("moon+fedbr", "fedbr+moon"),  # the model is rebuilt before modules are added
]


@pytest.mark.parametrize("name", OPTIONS)
def test_a_variant_of_one_method(name: str) -> None:
    """So that a disagreement of a longer one is one of composition."""
    assert_same(by_hand(name), methods(name))


@pytest.mark.parametrize("variant", VARIANTS)
def test_final_weights_are_those_of_the_second_implementation(variant: str) -> None:
    """The projector's and the discriminator's too."""
    assert_same(by_hand(variant), methods(variant))


def apart(one: Weights, two: Weights) -> float:
    """Of the first layer, which no method replaces."""
    return distance(one[:2], two[:2])


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_variant_is_far_from_its_methods(variant: str) -> None:
    for name in variant.split("+"):
        assert apart(by_hand(variant), by_hand(name)) > CLEARLY, name
        assert apart(by_hand(variant), final(run_with_added(methods(name))[0])) > CLEARLY, name
    assert apart(by_hand(variant), plain_fedavg()) > CLEARLY


@pytest.mark.parametrize(("one", "two"), SAME)
def test_orders_that_do_not_matter(one: str, two: str) -> None:
    assert apart(by_hand(one), by_hand(two)) < TOLERANCE


def test_every_variant_is_far_from_every_other() -> None:
    """Other orders of the same methods too."""
    for one, two in itertools.combinations(VARIANTS, 2):
        if (one, two) not in SAME:
            assert apart(by_hand(one), by_hand(two)) > CLEARLY, f"{one} and {two}"
