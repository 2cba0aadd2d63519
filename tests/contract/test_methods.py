"""What every method of the table promises, alone and combined: the same tests for all of them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import torch

import fedbr
from conftest import blobs
from fedbr.backends.pool import WorkerPool
from fedbr.core.client import new_state
from fedbr.core.method_checks import check_methods
from fedbr.core.wire import pack, unpack
from fedbr.data import DataOptions, load
from fedbr.methods import METHODS, build
from fedbr.run.run_folder import RunFolder
from fedbr.util.errors import RunError
from playing import ROUNDS, Play, methods

PAPER = ["mixup+fedbr", "fedbr+fedcm", "fedbr+feddecorr", "fedbr+fedntd"]
COMBINED = [
    *PAPER,
    "mixup+fedbr+fedcm",
    "fedprox+scaffold",
    "moon+fedbr+dann",
    "fedmix+scaffold+fedntd+groupdro",
]
VARIANTS = ["fedavg", *METHODS, *COMBINED]

# method -> the setting at which it is FedAvg (SCAFFOLD and Local have none)
NEUTRAL: dict[str, dict[str, Any]] = {
    "fedprox": {"mu": 0},
    "moon": {"weight": 0},
    "dann": {"weight": 0},
    "groupdro": {"eta": 0},
    "fedbr": {"lam": 0, "mu": 0},
    "mixup": {"alpha": 0},
    "naivemix": {"lam": 0},
    "fedmix": {"lam": 0},
    "vhl": {"alpha": 0, "align": 0, "contrast": 0},
    "fedcm": {"alpha": 1},
    "feddecorr": {"beta": 0},
    "fedntd": {"beta": 0},
}
MEANS = [{"lam": 0.2}, {"mean_of": 4}, {"size": 5}]
# method -> changes of one parameter each; FedBR's many are in tests/methods/test_fedbr.py
CHANGES: dict[str, list[dict[str, Any]]] = {
    "local": [],
    "scaffold": [],
    "fedprox": [{"mu": 0.2}],
    "moon": [{"weight": 0.5}, {"tau": 0.7}, {"head": False}, {"hidden": 200}, {"width": 100}],
    "dann": [{"weight": 0.5}, {"width": 100}, {"mode": "alternate"}],
    "groupdro": [{"eta": 0.1}],
    "mixup": [{"alpha": 0.5}],
    "naivemix": MEANS,
    "fedmix": MEANS,
    "vhl": [
        {"alpha": 0.5},
        {"align": 0.5},
        {"contrast": 0.5},
        {"tau": 0.1},
        {"size": 100},
        {"per_step": 3},
    ],
    "fedcm": [{"alpha": 0.5}],
    "feddecorr": [{"beta": 0.5}],
    "fedntd": [{"beta": 0.5}, {"tau": 2.0}],
}


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkerPool]:
    with WorkerPool(2) as workers:
        yield workers


@pytest.mark.parametrize("variant", VARIANTS)
def test_serial_and_pool_give_the_same_bits_and_resume_equals_the_whole(
    federation: fedbr.Federation, pool: WorkerPool, tmp_path: Path, variant: str
) -> None:
    whole = Play(federation, methods(variant)).run()
    spread = Play(federation, methods(variant), pool).run()
    assert whole.same(spread)
    folder = RunFolder(tmp_path, 9)
    for last in range(1, ROUNDS + 1):  # a new process each round, workers and none in turn
        play = Play(federation, methods(variant), pool if last % 2 else None)
        assert folder.resume(play.server, play.backend) == last - 1
        play.run(last, last)
        folder.append(play.records[-1])
        folder.checkpoint(last, play.server, play.backend)
    assert whole.same(play)
    losses = [record.loss for record in RunFolder(tmp_path, 9).rounds]
    assert losses == [record.loss for record in whole.records]


@pytest.mark.parametrize("variant", VARIANTS)
def test_seeds_matter_and_blocks_change_only_the_last_bits(
    federation: fedbr.Federation, variant: str
) -> None:
    plays = [Play(federation, methods(variant), clients_at_once=c).run() for c in (1, 3, 4)]
    for other in plays[1:]:
        for one, some in zip(plays[0].models(), other.models(), strict=True):
            assert torch.allclose(one, some, rtol=1e-9, atol=1e-11)
    options = {"rounds": 2, "local_steps": 3, "batch_size": 8, "hidden": (7,)}
    first, second = (
        fedbr.train(federation, "mlp", methods(variant), seed=s, **options) for s in (1, 2)
    )
    assert first.loss != second.loss


@pytest.mark.parametrize("variant", VARIANTS)
def test_blocks_of_images_agree(variant: str) -> None:
    federation = load(DataOptions(), 0)
    options = {"rounds": 2, "local_steps": 3, "width": 0.1, "dtype": "float64", "evaluate_every": 0}
    alone, together = (
        fedbr.train(federation, "cnn", methods(variant), clients_at_once=c, **options)
        for c in (1, 10)
    )
    assert alone.loss == pytest.approx(together.loss, rel=1e-9)
    for one, ten in zip(alone.model.parameters(), together.model.parameters(), strict=True):
        assert torch.allclose(one, ten, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("variant", VARIANTS)
def test_messages_and_memory_survive_the_wire(federation: fedbr.Federation, variant: str) -> None:
    play = Play(federation, methods(variant)).run(last=2)
    broadcast = play.server.broadcast(3, [0, 1, 2])
    payloads = {"broadcast": broadcast.payload, "shared": broadcast.shared}
    payloads |= {f"state{client}": state for client, state in play.backend.states.items()}
    payloads |= {f"reply{r.client}": r.payload for r in play.backend.run(broadcast)}
    _, again = unpack(pack({}, payloads))
    assert payloads.keys() == again.keys()
    for who, payload in payloads.items():
        assert payload.keys() == again[who].keys()
        for section, state in payload.items():
            assert state.keys() == again[who][section].keys()
            assert all(torch.equal(v, again[who][section][k]) for k, v in state.items())


@pytest.mark.parametrize("name", METHODS)
def test_the_neutral_setting_is_fedavg_to_the_bit(federation: fedbr.Federation, name: str) -> None:
    if name not in NEUTRAL:
        assert name in ("scaffold", "local")
        return
    plain, neutral, acting = (
        Play(federation, variant, dtype="float32").run()
        for variant in ([], [build(name, NEUTRAL[name])], [build(name, {})])
    )
    assert plain.same(neutral)
    assert plain.lines == neutral.lines  # bytes too
    assert not plain.same(acting)


@pytest.mark.parametrize(
    ("name", "change"), [(n, c) for n, changes in CHANGES.items() for c in changes], ids=str
)
def test_every_parameter_changes_the_result(
    federation: fedbr.Federation, name: str, change: dict[str, Any]
) -> None:
    base, changed = (Play(federation, [build(name, options)]).run() for options in ({}, change))
    assert not base.same(changed)


def test_no_parameter_is_left_out() -> None:
    assert CHANGES.keys() | {"fedbr"} == METHODS.keys()
    for name, changes in CHANGES.items():
        assert {key for change in changes for key in change} == set(METHODS[name].model_fields)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_lost_state_is_noticed(federation: fedbr.Federation, variant: str) -> None:
    play = Play(federation, methods(variant), clients_per_round=6).run(last=2)
    play.backend.states.pop(3, None)
    remembers = [m.name for m in methods(variant) if m.init_client(play.server.setup.model)]
    if not remembers:
        play.run(3, 3)  # nothing was lost
        return
    with pytest.raises(RunError, match=rf"client 3: it trained in round 2.*{remembers[0]}.*lost"):
        play.run(3, 3)


def test_a_lost_part_of_the_state_is_noticed(federation: fedbr.Federation) -> None:
    play = Play(federation, methods("moon+scaffold"), clients_per_round=6).run(last=2)
    del play.backend.states[3]["scaffold"]
    with pytest.raises(
        RunError,
        match=r"client 3: it trained in round 2, but what it remembers \(scaffold\) is lost",
    ):
        play.run(3, 3)


@pytest.mark.parametrize("name", METHODS)
def test_a_lost_state_of_the_server_is_noticed(federation: fedbr.Federation, name: str) -> None:
    play = Play(federation, methods(name)).run(last=1)
    snapshot = play.server.snapshot()
    del snapshot.methods[name]
    with pytest.raises(RunError, match=f"the checkpoint lacks .* {name}"):
        Play(federation, methods(name)).server.restore(snapshot)


@pytest.mark.parametrize("variant", VARIANTS)
def test_momentum_weight_decay_and_sample_weights_do_not_explode(
    federation: fedbr.Federation, variant: str
) -> None:
    settings = {
        "momentum": 0.9,
        "weight_decay": 0.01,
        "aggregate": "samples",
        "lr": 0.02,
        "local_steps": 10,
    }
    play = Play(federation, methods(variant), **settings).run(last=25)
    assert play.lines[-1]["loss"] < play.lines[0]["loss"]
    assert max(float(v.abs().max()) for v in play.models()) < 30


@pytest.mark.parametrize("variant", VARIANTS)
def test_ten_of_a_hundred_clients(variant: str) -> None:
    x, y = blobs(classes=5, per_class=400)
    federation = fedbr.Federation.from_arrays(
        x, y, x[::7], y[::7], clients=100, partition="lda", alpha=0.3, seed=0
    )
    play = Play(
        federation, methods(variant), clients_per_round=10, clients_at_once=4, dtype="float32"
    ).run(last=5)
    assert all(len(set(line["clients"])) == 10 for line in play.lines)
    took_part = {c for line in play.lines for c in line["clients"]}
    returned = 50 - len(took_part)
    assert returned > 0
    memory = new_state(play.server.setup)
    assert set(play.backend.states) == (took_part if memory else set())
    assert all(state.keys() == memory.keys() for state in play.backend.states.values())
    assert all(torch.isfinite(v).all() for v in play.models())


def test_any_two_methods_go_together_in_either_order(federation: fedbr.Federation) -> None:
    for one, other in combinations([n for n in METHODS if n != "local"], 2):
        results = [
            Play(federation, methods(variant), clients_per_round=2).run(last=2)
            for variant in (f"{one}+{other}", f"{other}+{one}")
        ]
        assert all(torch.isfinite(v).all() for play in results for v in play.models())


def test_the_listed_order_is_the_order_of_application(federation: fedbr.Federation) -> None:
    for variant in ("fedcm+fedprox", "mixup+naivemix"):
        here, there = (
            Play(federation, methods("+".join(names))).run()
            for names in (variant.split("+"), variant.split("+")[::-1])
        )
        assert not here.same(there)


def test_fedmix_before_mixup_is_naivemix_before_mixup_to_first_order(
    federation: fedbr.Federation,
) -> None:
    """Halving lam must quarter the difference, whoever mixes last."""
    one_mean = {"mean_of": 30, "size": 1}  # so that both draw the same mean
    x, y = blobs()
    clients = fedbr.Federation.from_clients([(x[:30], y[:30])], test=(x, y))

    def after_one_step(name: str, lam: float) -> torch.Tensor:
        variant = [build(name, {"lam": lam, **one_mean}), fedbr.Mixup(alpha=2.0)]
        play = Play(clients, variant, clients_per_round=1, clients_at_once=1, local_steps=1, lr=1.0)
        return torch.cat([v.flatten() for v in play.run(last=1).models()])

    gaps = [
        (after_one_step("fedmix", lam) - after_one_step("naivemix", lam)).norm()
        for lam in (2e-3, 1e-3)
    ]
    assert 3.4 < float(gaps[0] / gaps[1]) < 4.6


class Weigher(fedbr.GroupDRO):
    """A second one that chooses the aggregation weights."""

    name = "weigher"


@pytest.mark.parametrize(
    ("variant", "words"),
    [
        ([fedbr.GroupDRO(), Weigher()], "groupdro and weigher both choose the aggregation weights"),
        ([fedbr.Local(), fedbr.FedBR()], "with 'local' clients train alone"),
        ([fedbr.Mixup(), fedbr.Local()], "with 'local' clients train alone"),
        ([fedbr.Mixup(), fedbr.Mixup()], "duplicate"),
    ],
)
def test_what_cannot_be_combined_is_refused(variant: list[fedbr.Method], words: str) -> None:
    with pytest.raises(fedbr.InputError, match=words):
        check_methods(variant)


def test_a_client_may_not_forget_or_invent_keys(federation: fedbr.Federation) -> None:
    class Scatterbrain(fedbr.Method):
        """Remembers what it never announced."""

        name = "scatterbrain"

        def finish(self, ctx: fedbr.ClientContext) -> dict[str, torch.Tensor]:
            ctx.state["new"] = torch.zeros(len(ctx.clients))
            return {}

    with pytest.raises(RunError, match=r"scatterbrain: a client remembers \['new'\]"):
        Play(federation, [Scatterbrain()]).run()
