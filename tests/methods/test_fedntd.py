"""FedNTD a second time: a KL divergence, sample by sample and class by class, that leaves the true
class out.
"""

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
    make_model,
    run_with_added,
    term,
)
from torch import Tensor, nn
from world import (
    BATCH,
    CLASSES,
    FEATURES,
    IMAGE,
    INPUTS,
    TOLERANCE,
    Weights,
    batches,
    classify,
    descend,
    distance,
    features,
    federate,
    one_hot,
    plain_fedavg,
    plain_loss,
    start_weights,
)

import fedbr
from fedbr.core.model import Output

DEFAULTS: dict[str, Any] = {"beta": 1.0, "tau": 1.0}


def ntd(student: Tensor, teacher: Tensor, y: Tensor, beta: float, tau: float) -> Tensor:
    """Return beta tau^2 / B * sum over samples of KL(teacher || student), over the classes but the
    true one.
    """
    total = student.new_zeros(())
    for row in range(len(y)):
        true = max(range(y.shape[1]), key=lambda k: float(y[row, k]))
        others = [k for k in range(y.shape[1]) if k != true]
        p_sum = sum(math.exp(float(teacher[row, k]) / tau) for k in others)
        q_sum = torch.stack([(student[row, k] / tau).exp() for k in others]).sum()
        for k in others:
            p = math.exp(float(teacher[row, k]) / tau) / p_sum
            q = (student[row, k] / tau).exp() / q_sum
            total = total + p * (math.log(p) - q.log())
    return beta * tau**2 * total / len(y)


@functools.cache
def by_hand(batch: int = BATCH, **changes: Any) -> Weights:
    s = DEFAULTS | changes

    def train_client(client: int, r: int, w_global: Weights) -> Weights:
        w = w_global
        for x, y in batches(client, r, batch):
            teacher = classify(w_global, features(w_global, x))

            def loss(
                leaves: Weights, x: Tensor = x, y: Tensor = y, teacher: Tensor = teacher
            ) -> Tensor:
                return plain_loss(leaves, x, y) + ntd(
                    classify(leaves, features(leaves, x)), teacher, y, **s
                )

            w = descend(w, loss)
        return w

    return federate(start_weights(), train_client)


CASES: dict[str, dict[str, Any]] = {
    "defaults": {},
    "small beta": {"beta": 0.1},
    "large beta": {"beta": 4.0},
    "cold": {"tau": 0.5},
    "hot": {"tau": 3.0},
    "both": {"beta": 0.3, "tau": 2.0},
}


@pytest.mark.parametrize("changes", CASES.values(), ids=CASES.keys())
def test_final_weights_are_those_of_the_second_implementation(changes: dict[str, Any]) -> None:
    assert_same(by_hand(**changes), [fedbr.FedNTD(**(DEFAULTS | changes))])


def test_defaults_images_and_a_batch_of_one() -> None:
    assert_same(by_hand(), [fedbr.FedNTD()])
    assert_same(by_hand(), [fedbr.FedNTD()], shape=IMAGE)
    assert_same(by_hand(batch=1), [fedbr.FedNTD()], batch_size=1)


def test_every_case_is_far_from_every_other() -> None:
    ends = {name: by_hand(**changes) for name, changes in CASES.items()} | {
        "FedAvg": plain_fedavg()
    }
    for (a, one), (b, two) in itertools.combinations(ends.items(), 2):
        assert distance(one, two) > 1e4 * TOLERANCE, f"{a} and {b}"


# --------------------------------------------------------------------------------------------------
# the term itself


def some(*shape: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape))


def drawn() -> tuple[Tensor, Tensor, Output, dict[str, Tensor]]:
    """Two clients with inputs, soft labels and student logits, and a global model that is not the
    student.
    """
    x, y, logits = (
        some(2, 7, INPUTS),
        some(2, 7, CLASSES, seed=1).softmax(-1),
        2 * some(2, 7, CLASSES, seed=2),
    )
    received = {k: v + 0.3 * some(*v.shape, seed=3) for k, v in make_model().weights().items()}
    return x, y, Output(some(2, 7, FEATURES, seed=4), logits), received


@pytest.mark.parametrize(("beta", "tau"), [(1.0, 1.0), (0.3, 2.5), (2.0, 0.4)])
def test_the_term_is_the_written_out_loop(beta: float, tau: float) -> None:
    """For soft labels too: the true class is the largest."""
    x, y, out, received = drawn()
    value = term(fedbr.FedNTD(beta=beta, tau=tau), x, y, out, received)
    w = list(received.values())
    for client in (0, 1):
        teacher = classify(w, features(w, x[client]))
        expected = float(ntd(out.logits[client], teacher, y[client], beta, tau))
        assert expected > 0
        assert abs(float(value[client]) - expected) < 1e-12


def test_the_students_true_class_does_not_matter() -> None:
    x, y, out, received = drawn()
    true = one_hot(y.argmax(-1))
    value = term(fedbr.FedNTD(), x, y, out, received)
    for shift in (-30.0, -1.0, 5.0, 700.0):
        shifted = term(
            fedbr.FedNTD(), x, y, Output(out.features, out.logits + shift * true), received
        )
        assert float((shifted - value).abs().max()) < 1e-12
    other = term(
        fedbr.FedNTD(), x, y, Output(out.features, out.logits + true.roll(1, dims=-1)), received
    )
    assert float((other - value).abs().min()) > 1e-3


@pytest.mark.parametrize("true", range(CLASSES))
def test_the_teachers_true_class_does_not_matter(true: int) -> None:
    """All samples are of one class, so that one bias of the teacher is its true-class logit for
    all.
    """
    x, _, out, received = drawn()
    y = one_hot(torch.full((2, 7), true))
    value = term(fedbr.FedNTD(), x, y, out, received)
    for k in range(CLASSES):
        for shift in (-5.0, 700.0):
            changed = {key: v.clone() for key, v in received.items()}
            changed["classifier.bias"][k] += shift
            difference = (term(fedbr.FedNTD(), x, y, out, changed) - value).abs()
            assert float(difference.max()) < 1e-12 if k == true else float(difference.min()) > 1e-3


def test_the_true_class_gets_no_gradient_and_the_teacher_none_at_all() -> None:
    x, y, out, received = drawn()
    logits = out.logits.requires_grad_()
    received = {k: v.requires_grad_() for k, v in received.items()}
    value = term(fedbr.FedNTD(tau=0.7), x, y, Output(out.features, logits), received)
    slope, *teacher = torch.autograd.grad(
        value.sum(), [logits, *received.values()], allow_unused=True
    )
    true = one_hot(y.argmax(-1)).bool()
    assert float(slope[true].abs().max()) < 1e-15
    assert float(slope[~true].abs().min()) > 1e-6
    assert teacher == [None] * len(received)


def test_a_student_that_is_the_teacher_has_no_term() -> None:
    x, y, _, _ = drawn()
    assert float(term(fedbr.FedNTD(), x, y).detach().abs().max()) < 1e-14


def test_the_teacher_is_in_eval_mode() -> None:
    encoder = nn.Sequential(nn.Linear(INPUTS, FEATURES), nn.Tanh(), nn.Dropout(0.5))
    model = fedbr.FedModel(encoder, FEATURES, CLASSES).double()
    x, y, _, _ = drawn()
    with torch.no_grad():
        out = Output(*model.eval()(x))
    assert float(term(fedbr.FedNTD(), x, y, out, model=model.train()).abs().max()) < 1e-14


# --------------------------------------------------------------------------------------------------
# the rest


def test_two_classes_leave_nothing_to_distil() -> None:
    clients = [(some(12, INPUTS, seed=i), torch.arange(12) % 2) for i in range(2)]
    ends = []
    for methods in ([], [fedbr.FedNTD(beta=5.0)]):
        torch.manual_seed(0)
        model = fedbr.FedModel(
            nn.Sequential(nn.Linear(INPUTS, FEATURES), nn.Tanh()), FEATURES, 2
        ).double()
        federation = fedbr.Federation.from_clients(clients, test=clients[0])
        run = fedbr.train(
            federation, model, methods, rounds=2, local_steps=3, batch_size=4, dtype="float64"
        )
        ends.append(final(run))
    assert distance(*ends) < 1e-14


def test_without_weight_it_is_fedavg_to_the_bit() -> None:
    assert_fedavg(fedbr.FedNTD(beta=0.0, tau=3.0))
    assert distance(plain_fedavg(), final(run_with_added([fedbr.FedNTD(beta=0.0)])[0])) < TOLERANCE


@pytest.mark.parametrize(
    ("field", "value"),
    [("beta", -1.0), ("beta", float("nan")), ("tau", 0.0), ("tau", -1.0), ("lam", 1.0)],
)
def test_bad_parameters_are_refused(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=field):
        fedbr.FedNTD(**{field: value})
