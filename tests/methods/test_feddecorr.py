"""FedDecorr a second time: correlations of pairs of features, one pair after the other."""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from in_package import (
    assert_fedavg,
    assert_same,
    final,
    run_with_added,
    term,
)
from torch import Tensor, nn
from world import (
    BATCH,
    CLASSES,
    IMAGE,
    INPUTS,
    TOLERANCE,
    Weights,
    batches,
    descend,
    distance,
    features,
    federate,
    one_hot,
    plain_fedavg,
    plain_loss,
    start_weights,
    world,
)

import fedbr
from fedbr.core.model import Output


def decorr(z: Tensor) -> Tensor:
    """Return the mean over ordered pairs of standardised columns of (their inner product)^2 / B."""
    rows, columns = z.shape
    standard = []
    for j in range(columns):
        column = z[:, j] - z[:, j].sum() / rows
        variance = (column * column).sum() / (rows - 1)
        standard.append(column / (variance + 1e-8).sqrt())
    total = z.new_zeros(())
    for i in range(columns):
        for j in range(columns):
            if i != j:
                total = total + (standard[i] * standard[j]).sum() ** 2
    return total / (columns * (columns - 1)) / rows


@functools.cache
def by_hand(beta: float, batch: int = BATCH) -> Weights:
    def train_client(client: int, r: int, w: Weights) -> Weights:
        for x, y in batches(client, r, batch):

            def loss(leaves: Weights, x: Tensor = x, y: Tensor = y) -> Tensor:
                return plain_loss(leaves, x, y) + (
                    beta * decorr(features(leaves, x)) if batch > 1 else 0
                )

            w = descend(w, loss)
        return w

    return federate(start_weights(), train_client)


CASES = [(0.1, 4), (0.01, 4), (0.5, 4), (0.1, 2), (0.1, 9), (1.0, 9)]


@pytest.mark.parametrize(("beta", "batch"), CASES)
def test_final_weights_are_those_of_the_second_implementation(beta: float, batch: int) -> None:
    assert_same(by_hand(beta, batch), [fedbr.FedDecorr(beta=beta)], batch_size=batch)


def test_defaults_and_images() -> None:
    assert_same(by_hand(0.1), [fedbr.FedDecorr()])
    assert_same(by_hand(0.1), [fedbr.FedDecorr()], shape=IMAGE)


def test_every_case_is_far_from_every_other() -> None:
    ends = {case: by_hand(*case) for case in CASES} | {"FedAvg": plain_fedavg()}
    for (a, one), (b, two) in itertools.combinations(ends.items(), 2):
        assert distance(one, two) > 1e4 * TOLERANCE, f"{a} and {b}"


# --------------------------------------------------------------------------------------------------
# the term itself


def term_of(z: Tensor, beta: float = 0.1) -> Tensor:
    """Let the method judge features [C, B, d]; its model gives others, which must not matter."""
    clients, rows = z.shape[:2]
    x = torch.zeros(clients, rows, INPUTS, dtype=torch.float64)
    y = one_hot(torch.zeros(clients, rows, dtype=torch.int64))
    return term(fedbr.FedDecorr(beta=beta), x, y, Output(z, torch.zeros_like(y)))


def orthogonal(rows: int, columns: int) -> Tensor:
    """Return centred, pairwise orthogonal columns of unequal size.

    They are Walsh's functions but the constant one.
    """
    h = np.ones((1, 1))
    while len(h) < rows:
        h = np.block([[h, h], [h, -h]])
    return torch.from_numpy(h[:, 1 : columns + 1] * np.arange(1, columns + 1))


@pytest.mark.parametrize(("rows", "columns"), [(4, 2), (4, 3), (8, 5), (16, 15)])
def test_nothing_for_decorrelated_features(rows: int, columns: int) -> None:
    z = orthogonal(rows, columns)
    shifted = z + torch.arange(columns)  # the mean of a feature is not a correlation
    assert float(term_of(torch.stack([z, shifted]), beta=10.0).abs().max()) < 1e-20


@pytest.mark.parametrize(("rows", "columns"), [(2, 2), (3, 7), (16, 5), (32, 12)])
def test_the_scale_is_that_of_the_written_out_loop(rows: int, columns: int) -> None:
    z = torch.from_numpy(np.random.default_rng(rows).normal(1.0, 2.0, size=(3, rows, columns)))
    value = term_of(z, beta=0.7)
    for client in range(3):
        assert abs(float(value[client]) - 0.7 * float(decorr(z[client]))) < 1e-12


@pytest.mark.parametrize(("rows", "columns"), [(2, 2), (5, 3), (64, 8)])
def test_identical_features(rows: int, columns: int) -> None:
    """Every inner product is that of a standardised column with itself: B - 1, but for the 1e-8."""
    column = torch.from_numpy(np.random.default_rng(0).normal(size=(rows, 1)))
    shrunk = float(column.var() / (column.var() + 1e-8))
    value = term_of(column.expand(rows, columns)[None])
    assert math.isclose(float(value), 0.1 * ((rows - 1) * shrunk) ** 2 / rows, rel_tol=1e-12)
    flipped = term_of((column * torch.tensor([1.0, -3.0] * columns)[:columns])[None])
    assert math.isclose(
        float(flipped), 0.1 * (rows - 1) ** 2 / rows, rel_tol=1e-5
    )  # sign and size do not matter


def test_gradient_of_the_loop() -> None:
    z = torch.from_numpy(np.random.default_rng(1).normal(size=(2, 6, 4))).requires_grad_()
    (ours,) = torch.autograd.grad(sum(0.1 * decorr(z[c]) for c in (0, 1)), z)  # type: ignore[arg-type]
    (theirs,) = torch.autograd.grad(term_of(z).sum(), z)
    assert float((ours - theirs).abs().max()) < 1e-12


def test_a_constant_feature_is_no_trouble() -> None:
    z = torch.from_numpy(np.random.default_rng(2).normal(size=(1, 6, 4)))
    z[..., 2] = 5.0
    z.requires_grad_()
    value = term_of(z)
    assert math.isclose(float(value.detach()), 0.1 * float(decorr(z.detach()[0])), rel_tol=1e-10)
    (slope,) = torch.autograd.grad(value.sum(), z)
    assert bool(slope.isfinite().all())


def test_training_with_it_decorrelates() -> None:
    """On data of one direction, as label skew makes it, the features' correlations become smaller
    than FedAvg's.
    """
    ends = [
        run_with_added([fedbr.FedDecorr(beta=b)], batch_size=16, rounds=8, local_steps=10)[0]
        for b in (0.0, 0.5)
    ]
    x = torch.cat([x for x, _ in world()])
    with torch.no_grad():
        before, after = (float(decorr(run.model.encoder(x))) for run in ends)
    assert after < 0.5 * before


# --------------------------------------------------------------------------------------------------
# the rest


def test_a_batch_of_one_has_no_term() -> None:
    assert_fedavg(fedbr.FedDecorr(beta=5.0), batch_size=1)
    assert float(term_of(torch.ones(2, 1, 3, dtype=torch.float64)).abs().max()) == 0


def test_a_single_feature_has_no_pairs() -> None:
    torch.manual_seed(0)
    model = fedbr.FedModel(nn.Sequential(nn.Linear(INPUTS, 1), nn.Tanh()), 1, CLASSES).double()
    fedavg, _ = run_with_added([], model=model)
    run, _ = run_with_added([fedbr.FedDecorr()], model=model)
    assert distance(final(fedavg), final(run)) < 1e-14


def test_without_weight_it_is_fedavg_to_the_bit() -> None:
    assert_fedavg(fedbr.FedDecorr(beta=0.0))
    assert (
        distance(plain_fedavg(), final(run_with_added([fedbr.FedDecorr(beta=0.0)])[0])) < TOLERANCE
    )


@pytest.mark.parametrize(("field", "value"), [("beta", -0.1), ("beta", float("nan")), ("tau", 1.0)])
def test_bad_parameters_are_refused(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=field):
        fedbr.FedDecorr(**{field: value})
