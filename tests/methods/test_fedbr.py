"""FedBR as a method of the table: no parameter is dead, and clients reveal no more than they
should.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

import fedbr
from conftest import blobs
from fedbr.core.rng import stream
from fedbr.core.spec import Spec

SHORT = {
    "rounds": 2,
    "local_steps": 4,
    "batch_size": 8,
    "lr": 0.1,
    "hidden": (7,),
    "dtype": "float64",
}
BASE = {"hidden": 12, "width": 6}
MIXTURE = BASE | {"pseudo": "mixture"}
CHANGES = [
    (BASE, {"lam": 0.3}),
    (BASE, {"mu": 0.9}),
    (BASE, {"tau1": 1.0}),
    (BASE, {"tau2": 0.0}),
    (BASE, {"components": 1}),
    (BASE, {"components": 2}),
    (BASE, {"max_step": False}),
    (BASE, {"projection": False}),
    (BASE, {"hidden": 13}),
    (BASE, {"width": 5}),
    (BASE, {"pseudo": "mixture"}),
    (BASE, {"size": 5}),
    (BASE, {"size": 11}),
    (BASE, {"per_step": 3}),
    (BASE, {"mean_of": 4}),
    (BASE, {"balanced": True}),
    (MIXTURE, {"mix": 0}),
    (MIXTURE, {"mix": 2}),
    (BASE, {"refresh": "once"}),
    (MIXTURE, {"refresh": "once"}),
    (BASE, {"lazy": 2}),
]


@pytest.fixture
def public(federation: fedbr.Federation) -> fedbr.Federation:
    proxy = federation.train.samples.x[:1].new_tensor(np.random.default_rng(0).random((50, 6)))
    x, y = blobs()
    return fedbr.Federation.from_arrays(
        x, y, x, y, clients=6, partition="lda", alpha=0.5, seed=3, proxy=proxy
    )


@pytest.mark.parametrize(("base", "change"), CHANGES, ids=lambda value: str(value))
def test_every_parameter_changes_the_result(
    public: fedbr.Federation, base: dict[str, object], change: dict[str, object]
) -> None:
    before, after = (
        fedbr.train(public, "mlp", [fedbr.FedBR.model_validate(options)], **SHORT)
        for options in (base, base | change)
    )
    assert not torch.equal(before.model.classifier.weight, after.model.classifier.weight)


def test_every_parameter_is_in_the_list() -> None:
    assert {k for _, change in CHANGES for k in change} == set(fedbr.FedBR.model_fields)


def spec(**changes: object) -> Spec:
    facts = {
        "shape": (6,),
        "num_classes": 4,
        "num_clients": 6,
        "clients_per_round": 3,
        "local_steps": 1,
        "batch_size": 8,
        "lr": 0.1,
    }
    return Spec(**facts | changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("refresh", "expected"), [("round", 3), ("once", 2)]
)  # 8 of 3 clients, 8 of 6 clients
def test_a_client_sends_its_share_of_means_and_nothing_else(refresh: str, expected: int) -> None:
    x, y = (torch.from_numpy(a) for a in blobs())
    sent = fedbr.FedBR(refresh=refresh).contribute(x, y, spec(), stream(0, "t"))  # type: ignore[arg-type]
    assert sent.keys() == {"x"}
    assert sent["x"].shape == (expected, 6)
    distances = (sent["x"][:, None] - x[None]).norm(dim=-1)
    assert distances.min() > 0.1  # none of them is a sample


@pytest.mark.parametrize("samples", [1, 5, 9])
def test_a_client_with_too_few_samples_sends_nothing(samples: int) -> None:
    x, y = (torch.from_numpy(a) for a in blobs())
    assert fedbr.FedBR().contribute(x[:samples], y[:samples], spec(), stream(0, "t")) == {}
    copies = x[:3].repeat(20, 1)  # sixty samples, three distinct
    assert fedbr.FedBR().contribute(copies, y[:1].repeat(60), spec(), stream(0, "t")) == {}


def test_small_clients_train_on_what_the_large_ones_sent() -> None:
    x, y = blobs()
    clients = [(x[:1], y[:1]), (x[1:6], y[1:6]), (x[6:], y[6:])]
    run = fedbr.train(
        fedbr.Federation.from_clients(clients, test=(x, y)), "mlp", [fedbr.FedBR(**BASE)], **SHORT
    )
    assert np.isfinite(run.loss).all()


def test_only_copies_of_one_sample_are_refused_in_words() -> None:
    x, y = blobs()
    clients = [(np.repeat(x[:1], 30, axis=0), np.repeat(y[:1], 30))] * 2
    with pytest.raises(fedbr.InputError, match=r"distinct"):
        fedbr.train(
            fedbr.Federation.from_clients(clients, test=(x, y)),
            "mlp",
            [fedbr.FedBR(**BASE)],
            **SHORT,
        )


def test_rounds_without_contributions_use_the_pseudo_data_of_before_or_are_fedavg() -> None:
    """One of four clients can contribute, one takes part per round: from its first time on, all
    have pseudo-data.
    """
    x, y = blobs()
    clients = [(x[:40], y[:40]), *((x[i : i + 3], y[i : i + 3]) for i in (50, 60, 70))]
    federation = fedbr.Federation.from_clients(clients, test=(x, y))
    options = SHORT | {"rounds": 8, "clients_per_round": 1, "seed": 2}
    plain = fedbr.train(federation, "mlp", **options)
    run = fedbr.train(federation, "mlp", [fedbr.FedBR(**BASE)], **options)
    took_part = [line["clients"] == [0] for line in run.lines]
    first = took_part.index(True)
    assert 0 < first < 7
    assert not all(took_part[first:])
    assert run.loss[:first] == plain.loss[:first]  # no pseudo-data yet
    assert run.loss[first:] != plain.loss[first:]
    pseudo_up = [up for up, _ in run.bytes]
    assert all(up > min(pseudo_up) for up, yes in zip(pseudo_up, took_part, strict=True) if yes)
    assert all(
        up == min(pseudo_up) for up, yes in zip(pseudo_up, took_part, strict=True) if not yes
    )


@pytest.mark.parametrize(
    "bad",
    [{"lam": -1}, {"tau1": float("nan")}, {"components": 3}, {"mean_of": 1}, {"lazy": 0}, {"x": 1}],
)
def test_bad_parameters_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        fedbr.FedBR.model_validate(bad)


GOLDEN = [1.233861187576, 0.955906191048, 0.719598753216, 0.616333826426]


def test_golden_losses() -> None:
    """The training loss of a fixed setting; a change here changes published results and must be
    meant.
    """
    x, y = blobs()
    federation = fedbr.Federation.from_arrays(
        x, y, x, y, clients=6, partition="lda", alpha=0.5, seed=3
    )
    run = fedbr.train(federation, "mlp", [fedbr.FedBR(lam=0.1)], **SHORT | {"rounds": 4})
    assert run.loss == pytest.approx(GOLDEN, abs=1e-9)
