"""FedBR a second time, written from the paper alone: plain, slow and obvious, with equal final
weights.

Nothing of the package's runtime is used for the second version but its random streams. The model is
one Linear and Tanh (phi), one Linear (omega) and the three Linears of the projection (theta), all
of them bare tensors.
"""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fedbr
from fedbr.core.rng import stream, torch_stream
from fedbr.core.server import Server

torch.set_num_threads(1)

INPUTS, FEATURES, CLASSES = 6, 5, 3
SIZES = [23, 17]
SEED, ROUNDS, STEPS, BATCH, LR = 11, 2, 4, 4, 0.2
TOLERANCE = 1e-10

# What the package calls its settings, and their values in this file unless a case says otherwise.
DEFAULTS: dict[str, Any] = {
    "lam": 0.7,
    "mu": 0.9,
    "tau1": 1.5,
    "tau2": 2.5,
    "components": "both",
    "max_step": True,
    "projection": True,
    "hidden": 7,
    "width": 4,
    "pseudo": "rsm",
    "size": None,
    "per_step": None,
    "mean_of": 3,
    "mix": 1,
    "refresh": "round",
    "lazy": 1,
}


# ---------------------------------------------------------------------------------------------- the
# tiny world


def world() -> tuple[list[tuple[Tensor, Tensor]], tuple[Tensor, Tensor], Tensor]:
    """Two clients that differ in inputs and in labels, a test set, and a proxy set of another
    distribution.
    """
    rng = np.random.default_rng(5)
    clients = []
    for client, n in enumerate(SIZES):
        x = rng.normal(loc=0.6 * client, scale=1.0 + 0.3 * client, size=(n, INPUTS))
        y = rng.choice(CLASSES, size=n, p=[[0.6, 0.3, 0.1], [0.1, 0.2, 0.7]][client])
        clients.append((torch.from_numpy(x), torch.from_numpy(y)))
    test = (torch.from_numpy(rng.normal(size=(9, INPUTS))), torch.arange(9) % CLASSES)
    proxy = torch.from_numpy(rng.uniform(-2, 2, size=(14, INPUTS)))
    return clients, test, proxy


def start_weights() -> tuple[list[Tensor], list[Tensor]]:
    """phi and omega before the first round."""
    rng = np.random.default_rng(6)
    phi = [rng.normal(scale=0.5, size=(FEATURES, INPUTS)), rng.normal(scale=0.2, size=FEATURES)]
    omega = [rng.normal(scale=0.5, size=(CLASSES, FEATURES)), rng.normal(scale=0.2, size=CLASSES)]
    return [torch.from_numpy(w) for w in phi], [torch.from_numpy(w) for w in omega]


def start_theta(hidden: int, width: int) -> list[Tensor]:
    """Return theta before the first round.

    It is three default Linears of float32, made in order, then float64.
    """
    with torch_stream(SEED, "model", "fedbr"):
        layers = [nn.Linear(FEATURES, hidden), nn.Linear(hidden, hidden), nn.Linear(hidden, width)]
    return [w.detach().double() for layer in layers for w in (layer.weight, layer.bias)]


# ------------------------------------------------------------------------------------------ FedBR,
# by the paper


def extract(phi: list[Tensor], x: Tensor) -> Tensor:
    return torch.tanh(x @ phi[0].T + phi[1])


def classify(omega: list[Tensor], features: Tensor) -> Tensor:
    return features @ omega[0].T + omega[1]


def project(theta: list[Tensor] | None, features: Tensor) -> Tensor:
    """P_theta; without a projection layer, the features themselves."""
    if theta is None:
        return features
    h = torch.relu(features @ theta[0].T + theta[1])
    h = torch.relu(h @ theta[2].T + theta[3])
    return h @ theta[4].T + theta[5]


def cosine(a: Tensor, b: Tensor) -> Tensor:
    """Of each row of a with the same row of b."""
    return (a * b).sum(1) / ((a * a).sum(1).sqrt() * (b * b).sum(1).sqrt())


def contrast(
    p_local: Tensor, x_local: Tensor, p_global: Tensor, theta: list[Tensor] | None, s: dict
) -> Tensor:
    """The mean over pseudo-samples j of -log(f1 / (f1 + f2)); j is paired with batch sample j mod
    B.
    """
    partner = x_local[[j % len(x_local) for j in range(len(p_local))]]
    here = project(theta, p_local)
    f1 = torch.exp(s["tau1"] * cosine(here, project(theta, p_global)))
    f2 = torch.exp(s["tau2"] * cosine(here, project(theta, partner)))
    return (-torch.log(f1 / (f1 + f2))).mean()


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """The mean over rows of -sum_c y_c log p_c."""
    probabilities = logits.exp() / logits.exp().sum(1, keepdim=True)
    return (-labels * probabilities.log()).sum(1).mean()


def one_hot(y: Tensor) -> Tensor:
    return torch.eye(CLASSES, dtype=torch.float64)[y]


def sample_means(x: Tensor, count: int, mean_of: int, rng: np.random.Generator) -> list[Tensor]:
    """RSM: each the mean of M different samples."""
    means = []
    for _ in range(count):
        picked = rng.permutation(len(x))[:mean_of]
        means.append(sum(x[int(i)] for i in picked) / mean_of)
    return means


def build_pseudo(clients: list, proxy: Tensor, r: int, who: list[int], s: dict) -> Tensor:
    """D_p of round r (0: once for all rounds), for RSM from the clients in `who`, for Mixture from
    the proxy set.
    """
    size = BATCH if s["size"] is None else s["size"]
    share = stream(SEED, "fedbr", "share", r)
    if s["pseudo"] == "mixture":
        return torch.stack(sample_means(proxy, size, s["mean_of"], share))
    pool = []
    for i in who:
        own = stream(SEED, "fedbr", "contribute", r, i)
        pool += sample_means(clients[i][0], math.ceil(size / len(who)), s["mean_of"], own)
    return torch.stack([pool[int(i)] for i in share.permutation(len(pool))[:size]])


def descend(weights: list[Tensor], gradients: tuple[Tensor, ...], rate: float) -> list[Tensor]:
    return [(w - rate * g).detach() for w, g in zip(weights, gradients, strict=True)]


def train_client(
    client: int,
    r: int,
    data: tuple[Tensor, Tensor],
    d_p: Tensor,
    phi: list[Tensor],
    omega: list[Tensor],
    theta: list[Tensor] | None,
    s: dict,
) -> tuple[list[Tensor], list[Tensor], list[Tensor] | None]:
    """The local iterations of one client in one round."""
    xs, ys = data
    phi_g = phi
    batches = stream(SEED, "batches", r, client).integers(len(xs), size=(STEPS, BATCH))
    own = stream(SEED, "fedbr", r, client)
    for k in range(STEPS):
        x, y = xs[batches[k]], ys[batches[k]]
        active = k % s["lazy"] == 0
        first, second = (
            active and s["components"] in (1, "both"),
            active and s["components"] in (2, "both"),
        )

        x_p = d_p
        y_p = torch.full((len(d_p), CLASSES), 1 / CLASSES, dtype=torch.float64)
        if active:
            if s["per_step"] is not None:
                x_p = d_p[own.permutation(len(d_p))[: s["per_step"]]]
                y_p = y_p[: len(x_p)]
            if s["pseudo"] == "mixture" and s["mix"] > 0:
                local = own.integers(len(xs), size=(len(x_p), s["mix"]))
                x_p = (x_p + xs[local].sum(1)) / (s["mix"] + 1)
                y_p = (y_p + one_hot(ys[local]).sum(1)) / (s["mix"] + 1)

        if second and theta is not None and s["max_step"]:
            leaves = [w.clone().requires_grad_() for w in theta]
            adv = contrast(extract(phi, x_p), extract(phi, x), extract(phi_g, x_p), leaves, s)
            theta = descend(leaves, torch.autograd.grad(s["lazy"] * adv, leaves), -LR)

        phi = [w.clone().requires_grad_() for w in phi]
        omega = [w.clone().requires_grad_() for w in omega]
        gen = cross_entropy(classify(omega, extract(phi, x)), one_hot(y))
        if first:
            gen = gen + s["lazy"] * s["lam"] * cross_entropy(
                classify(omega, extract(phi, x_p)), y_p
            )
        if second:
            con = contrast(
                extract(phi, x_p), extract(phi, x), extract(phi_g, x_p).detach(), theta, s
            )
            gen = gen + s["lazy"] * s["mu"] * con
        slopes = torch.autograd.grad(gen, phi + omega)
        phi, omega = descend(phi, slopes[:2], LR), descend(omega, slopes[2:], LR)
    return phi, omega, theta


def mean_of_clients(results: list[list[Tensor]]) -> list[Tensor]:
    return [sum(ws) / len(ws) for ws in zip(*results, strict=True)]


@functools.cache
def by_hand(chosen: Any = None, **changes: Any) -> tuple[list[Tensor], list[Tensor] | None]:
    """All rounds; return (phi and omega, theta). `chosen` are the participants of each round,
    default all.
    """
    s = DEFAULTS | changes
    clients, _, proxy = world()
    everybody = list(range(len(clients)))
    phi, omega = start_weights()
    theta = (
        start_theta(s["hidden"], s["width"]) if s["projection"] and s["components"] != 1 else None
    )
    if s["refresh"] == "once":
        d_p = build_pseudo(clients, proxy, 0, everybody, s)
    for r in range(1, ROUNDS + 1):
        who = everybody if chosen is None else chosen[r - 1]
        if s["refresh"] == "round":
            d_p = build_pseudo(clients, proxy, r, who, s)
        done = [train_client(i, r, clients[i], d_p, phi, omega, theta, s) for i in who]
        phi, omega = mean_of_clients([d[0] for d in done]), mean_of_clients([d[1] for d in done])
        theta = None if theta is None else mean_of_clients([d[2] for d in done])
    return phi + omega, theta


# --------------------------------------------------------------------------------------------------
# the real one


def run_package(methods: list, **options: Any) -> tuple[list[Tensor], list[Tensor] | None]:
    """Train with the package; return (phi and omega, theta) as by_hand does."""
    clients, test, proxy = world()
    phi, omega = start_weights()
    model = fedbr.FedModel(
        nn.Sequential(nn.Linear(INPUTS, FEATURES), nn.Tanh()), FEATURES, CLASSES
    ).double()
    with torch.no_grad():
        for p, w in zip(model.parameters(), phi + omega, strict=True):
            p.copy_(w)
    servers = []

    class Watched(Server):  # the returned model has no theta any more; the server had it
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            servers.append(self)

    settings = {
        "rounds": ROUNDS,
        "local_steps": STEPS,
        "batch_size": BATCH,
        "lr": LR,
        "momentum": 0.0,
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedbr.run.loop.Server", Watched)
        federation = fedbr.Federation.from_clients(clients, test=test, proxy=proxy)
        run = fedbr.train(
            federation,
            model,
            methods,
            seed=SEED,
            dtype="float64",
            evaluate_every=ROUNDS,
            **settings,
            **options,
        )
    for p, w in zip(model.parameters(), phi + omega, strict=True):
        assert torch.equal(p, w), "the model that was given is copied, not trained"
    theta = [w for name, w in servers[0].params.items() if name.startswith("extras.")]
    return [w.detach() for w in run.model.parameters()], theta or None


def distance(ours: list[Tensor], theirs: list[Tensor]) -> float:
    assert [w.shape for w in ours] == [w.shape for w in theirs]
    assert all(w.dtype == torch.float64 for w in theirs)
    return max(float((a - b).abs().max()) for a, b in zip(ours, theirs, strict=True))


CASES: dict[str, dict[str, Any]] = {
    "defaults": {},
    "no projection": {"projection": False, "max_step": False},
    "no max step": {"max_step": False},
    "component 1": {"components": 1},
    "component 1 alone, no switches": {"components": 1, "max_step": False, "projection": False},
    "component 2": {"components": 2},
    "component 2, no max step": {"components": 2, "max_step": False},
    "component 2, no projection": {"components": 2, "projection": False, "max_step": False},
    "component 2, no projection, max step": {"components": 2, "projection": False},
    "no projection, max step": {"projection": False},
    "once": {"refresh": "once"},
    "tau2 = 0": {"tau2": 0.0},
    "tau1 = 0": {"tau1": 0.0},
    "lam = 0": {"lam": 0.0},
    "mu = 0": {"mu": 0.0},
    "component 2, mu = 0": {"components": 2, "mu": 0.0},
    "size above the batch": {"size": 7},
    "size below the batch": {"size": 3},
    "size 1": {"size": 1},
    "size above the batch, component 2": {"size": 11, "components": 2},
    "size below the batch, no projection": {"size": 3, "projection": False, "max_step": False},
    "mean of many": {"mean_of": 17},
    "lazy 2": {"lazy": 2},
    "lazy 3": {"lazy": 3},
    "lazy beyond the round": {"lazy": 9},
    "lazy 2, component 1": {"lazy": 2, "components": 1},
    "lazy 3, component 2": {"lazy": 3, "components": 2},
    "per_step below the batch": {"size": 8, "per_step": 3},
    "per_step above the batch": {"size": 8, "per_step": 6},
    "per_step, component 1": {"size": 8, "per_step": 3, "components": 1},
    "per_step, once, lazy": {"size": 8, "per_step": 3, "refresh": "once", "lazy": 2},
}
for mix in (0, 1, 2):
    mixture = {"pseudo": "mixture", "mix": mix}
    CASES |= {
        f"mixture {mix}": mixture,
        f"mixture {mix}, component 1": mixture | {"components": 1},
        f"mixture {mix}, component 2, once": mixture | {"components": 2, "refresh": "once"},
        f"mixture {mix}, no max step": mixture | {"max_step": False},
        f"mixture {mix}, no projection": mixture | {"projection": False, "max_step": False},
        f"mixture {mix}, size above the batch, lazy 3": mixture | {"size": 6, "lazy": 3},
        f"mixture {mix}, size below the batch, lazy 2": mixture | {"size": 2, "lazy": 2},
        f"mixture {mix}, per_step": mixture | {"size": 6, "per_step": 3},
        f"mixture {mix}, per_step, lazy 2": mixture | {"size": 9, "per_step": 5, "lazy": 2},
    }


@pytest.mark.parametrize("changes", CASES.values(), ids=CASES.keys())
def test_final_weights_are_those_of_the_second_implementation(changes: dict[str, Any]) -> None:
    weights, theta = by_hand(**changes)
    for clients_at_once in (1, 2):
        theirs, their_theta = run_package(
            [fedbr.FedBR(**(DEFAULTS | changes))], clients_at_once=clients_at_once
        )
        assert distance(weights, theirs) < TOLERANCE, f"clients_at_once = {clients_at_once}"
        if (
            theta is None or changes.get("mu") == 0
        ):  # with mu = 0 theta acts on nothing, and the package has none
            assert their_theta is None
        else:
            assert distance(theta, their_theta) < TOLERANCE, (
                f"theta, clients_at_once = {clients_at_once}"
            )


@pytest.mark.parametrize("refresh", ["round", "once"])
@pytest.mark.parametrize("size", [4, 5])
def test_one_client_a_round(refresh: str, size: int) -> None:
    """Only the participants contribute for a round, all clients do once; whoever was drawn, one
    history fits.
    """
    changes = {"refresh": refresh, "size": size}
    theirs, their_theta = run_package([fedbr.FedBR(**(DEFAULTS | changes))], clients_per_round=1)
    fits = []
    for history in itertools.product([(0,), (1,)], repeat=ROUNDS):
        weights, theta = by_hand(chosen=history, **changes)
        if distance(weights, theirs) < TOLERANCE:
            assert distance(theta, their_theta) < TOLERANCE
            fits.append(history)
    assert len(fits) == 1


@pytest.mark.parametrize("per_step", [5, 8])
@pytest.mark.parametrize("pseudo", ["rsm", "mixture"])
def test_per_step_that_covers_all_pseudo_data_is_the_default(per_step: int, pseudo: str) -> None:
    """Nothing is left to draw then: all pseudo-samples are used in their order, and no random
    number is spent.
    """
    weights, theta = by_hand(size=5, pseudo=pseudo)
    changes = {"size": 5, "pseudo": pseudo, "per_step": per_step}
    theirs, their_theta = run_package([fedbr.FedBR(**(DEFAULTS | changes))])
    assert distance(weights, theirs) < TOLERANCE
    assert distance(theta, their_theta) < TOLERANCE


def test_every_case_is_far_from_every_other() -> None:
    """The comparison has teeth: what a switch does to the weights is far above the tolerance."""
    same = {  # cases whose weights, as they should, are those of another
        "component 1 alone, no switches": "component 1",
        "component 2, no projection, max step": "component 2, no projection",
        "no projection, max step": "no projection",
        "lam = 0": "component 2",
        "mu = 0": "component 1",
    }
    ends = {name: by_hand(**changes)[0] for name, changes in CASES.items()}
    for name, other in same.items():
        assert distance(ends.pop(name), ends[other]) < TOLERANCE
    for (a, one), (b, two) in itertools.combinations(ends.items(), 2):
        assert distance(one, two) > 1e3 * TOLERANCE, f"{a} and {b}"


# ---------------------------------------------------------------------------------- nothing added,
# nothing changed


@pytest.mark.parametrize("pseudo", ["rsm", "mixture"])
@pytest.mark.parametrize(
    "neutral",
    [{"lam": 0.0, "mu": 0.0}, {"components": 1, "lam": 0.0}, {"components": 2, "mu": 0.0}],
    ids=["both", "component 1", "component 2"],
)
def test_without_weight_it_is_fedavg_to_the_bit(neutral: dict[str, Any], pseudo: str) -> None:
    for clients_at_once in (1, 2):
        fedavg, _ = run_package([], clients_at_once=clients_at_once)
        theirs, theta = run_package(
            [fedbr.FedBR(**(DEFAULTS | neutral | {"pseudo": pseudo}))],
            clients_at_once=clients_at_once,
        )
        assert all(torch.equal(a, b) for a, b in zip(fedavg, theirs, strict=True))
        assert theta is None
        assert distance(by_hand(**neutral)[0], fedavg) < TOLERANCE


# ------------------------------------------------------------------------------------- the gradient
# of L_con alone


@pytest.mark.parametrize("tau2", [0.0, 2.5])
@pytest.mark.parametrize("projection", [True, False])
def test_gradient_of_l_con_is_that_of_finite_differences(projection: bool, tau2: float) -> None:
    n, clients, h = 4, 2, 1e-5
    s = DEFAULTS | {"tau2": tau2, "projection": projection}
    rng = np.random.default_rng(7)
    triples = [torch.from_numpy(rng.normal(size=(3 * n, FEATURES))) for _ in range(clients)]
    shapes = [w.shape for w in start_theta(s["hidden"], s["width"])]
    thetas = [
        [torch.from_numpy(rng.normal(scale=0.6, size=shape)) for shape in shapes]
        for _ in range(clients)
    ]

    leaves = torch.stack(triples).requires_grad_()  # [clients, pseudo | global | local, features]
    theta_leaves = [[w.clone().requires_grad_() for w in theta] for theta in thetas]
    seen = leaves
    if projection:
        seen = torch.stack(
            [project(theta, z) for theta, z in zip(theta_leaves, leaves, strict=True)]
        )
    pseudo, near, local = torch.split(seen, n, dim=1)
    losses = fedbr.FedBR(**s)._l_con(pseudo, local, near)
    values = losses.tolist()  # one for each client
    wanted = [leaves, *itertools.chain(*theta_leaves)] if projection else [leaves]
    slopes = torch.autograd.grad(losses.sum(), wanted)

    for client, (triple, theta) in enumerate(zip(triples, thetas, strict=True)):

        def value(triple: Tensor = triple, theta: list[Tensor] = theta) -> float:
            pseudo, near, far = triple[:n], triple[n : 2 * n], triple[2 * n :]
            return float(contrast(pseudo, far, near, theta if projection else None, s))

        assert abs(value() - values[client]) < 1e-13
        begin = 1 + client * len(theta)
        pairs = [(triple, slopes[0][client])]
        if projection:
            pairs += zip(theta, slopes[begin : begin + len(theta)], strict=True)
        for weight, slope in pairs:
            flat = weight.view(-1)  # shares its memory, so value() sees each nudge
            for i in range(len(flat)):
                old = float(flat[i])
                flat[i] = old + h
                up = value()
                flat[i] = old - h
                down = value()
                flat[i] = old
                assert abs((up - down) / (2 * h) - float(slope.view(-1)[i])) < 1e-8


def test_l_con_does_not_overflow() -> None:
    """Where exp(tau * similarity) is infinite, the loss is still the difference of the two
    exponents, or 0.
    """
    a, b = (
        torch.tensor([1.0, 0.0], dtype=torch.float64),
        torch.tensor([0.0, 1.0], dtype=torch.float64),
    )
    method = fedbr.FedBR(**(DEFAULTS | {"tau1": 5000.0, "tau2": 4000.0, "projection": False}))
    pseudo, local, near = (
        torch.stack(t)[:, None] for t in ([a, a], [a, b], [b, a])
    )  # local is like it; global is
    assert method._l_con(pseudo, local, near).tolist() == [4000.0, 0.0]
