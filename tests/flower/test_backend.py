"""The backend and the nodes, without Flower between them: same bits, every fault, nothing lost."""

from __future__ import annotations

import errno
import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from wires import Edit, Wires, three_nodes

import fedbr
from fedbr.backends import memory
from fedbr.core.evaluation import RightByClass, Tally
from fedbr.core.records import RoundRecord
from fedbr.core.wire import Reply
from fedbr.flower.audit import audit
from fedbr.flower.messages import (
    ANSWER,
    MODEL,
    Answer,
    Request,
    pack_answer,
    unpack_answer,
)
from fedbr.flower.node import NodeSettings, reply_to
from fedbr.flower.roster import Roster, Settings
from fedbr.flower.server import serve
from fedbr.flower.site import lasting_pool, site_of
from fedbr.flower.types import Blobs
from fedbr.metrics import MeasuredRound
from fedbr.recipe import load as config
from fedbr.recipe.overrides import read_variant
from fedbr.recipe.schema import MetricsConfig, Recipe
from fedbr.run.plan import PlannedRun
from fedbr.util.errors import InputError, RunError
from training import Callback, train_recipe

PROMISED = ["fedavg", "fedbr", "scaffold", "moon", "mixup+fedbr+fedcm"]
QUICK = Settings(reply_timeout=30, wait=0.2, min_share=0.5)


def recipe(variant: str, **train: Any) -> Recipe:
    settings = {
        "rounds": 3,
        "local_steps": 3,
        "batch_size": 8,
        "clients_at_once": 1,
        "clients_per_round": 4,
    } | train
    return config.parse(
        {
            "name": "small",
            "data": {"name": "digits", "clients": 6},
            "model": {"name": "mlp", "hidden": [12]},
            "train": settings,
            "compare": [read_variant(variant)],
        }
    )


def weights(folder: Path) -> bytes:
    (file,) = folder.glob("runs/*/model.safetensors")
    return file.read_bytes()


def clients(folder: Path) -> list[list[int]]:
    (file,) = folder.glob("runs/*/metrics.jsonl")
    return [json.loads(line)["clients"] for line in file.read_text().splitlines()]


def log(folder: Path) -> str:
    return (folder / "flower.log").read_text()


@pytest.mark.parametrize("variant", PROMISED)
def test_nodes_give_the_bits_of_the_simulator(tmp_path: Path, variant: str) -> None:
    chosen = recipe(variant)
    here = train_recipe(chosen, tmp_path / "here")
    there = serve(Wires(three_nodes(tmp_path)), chosen, tmp_path / "there", QUICK)
    assert weights(tmp_path / "there") == weights(tmp_path / "here")
    (one,), (other,) = there.runs, here.runs
    for key in ("accuracy", "bytes", "rounds_to"):
        assert getattr(one, key) == getattr(other, key)
    assert (one.record.split, one.record.model) == (other.record.split, other.record.model)
    assert not list(tmp_path.glob("node*/*")), "a finished run leaves nothing on the nodes"


def test_many_clients_of_a_node_train_as_blocks(tmp_path: Path) -> None:
    chosen = recipe("scaffold", clients_at_once=3, clients_per_round=6)
    train_recipe(chosen, tmp_path / "here")
    wires = Wires(three_nodes(tmp_path, (0, 1, 2), (3, 4, 5)))
    serve(wires, chosen, tmp_path / "there", QUICK)
    assert weights(tmp_path / "there") == weights(tmp_path / "here")
    assert len([kind for _, kind, _ in wires.sent if kind == "train"]) == 2 * 3, (
        "one message per node and round"
    )


@pytest.mark.parametrize("clients_at_once", [4, 5])
def test_a_node_with_all_clients_groups_them_as_the_simulator_does(
    tmp_path: Path, clients_at_once: int
) -> None:
    """Six clients train as three and three, not as many as fit and a rest."""
    chosen = recipe("scaffold", clients_at_once=clients_at_once, clients_per_round=6)
    train_recipe(chosen, tmp_path / "here")
    serve(Wires(three_nodes(tmp_path, (0, 1, 2, 3, 4, 5))), chosen, tmp_path / "there", QUICK)
    assert weights(tmp_path / "there") == weights(tmp_path / "here")


def hostile(change: Callable[[Reply], Reply], client: int = 2) -> Edit:
    """Replace one client's replies."""

    def edit(node: int, kind: str, blobs: Blobs, honest: Callable[[], Blobs]) -> Blobs:
        honestly = honest()
        header, replies = unpack_answer(honestly)
        if kind != "train" or client not in [r.client for r in replies]:
            return honestly
        return pack_answer(header, [change(r) if r.client == client else r for r in replies])

    return edit


def with_weights(reply: Reply, change: Callable[[torch.Tensor], torch.Tensor]) -> Reply:
    model = {k: change(v) for k, v in reply.payload["model"].items()}
    return Reply(reply.client, reply.num_examples, reply.payload | {"model": model}, reply.metrics)


HOSTILE: dict[str, tuple[Callable[[Reply], Reply], str]] = {
    "nan": (lambda r: with_weights(r, lambda v: v * float("nan")), "not finite"),
    "shape": (lambda r: with_weights(r, lambda v: v[:1]), "not float32"),
    "type": (lambda r: with_weights(r, lambda v: v.double()), "float64"),
    "section": (lambda r: Reply(r.client, r.num_examples, {}, r.metrics), "no section"),
    "extra": (
        lambda r: Reply(r.client, r.num_examples, r.payload | {"x": {}}, r.metrics),
        "an unexpected section",
    ),
    "key": (
        lambda r: Reply(r.client, r.num_examples, {"model": {}, "scaffold": {}}, r.metrics),
        "missing",
    ),
    "loss": (
        lambda r: Reply(r.client, r.num_examples, r.payload, {"loss": float("inf")}),
        "not finite",
    ),
    "step": (
        lambda r: Reply(r.client, r.num_examples, r.payload, r.metrics | {"bad_step": math.nan}),
        "local step",
    ),
    "half a step": (
        lambda r: Reply(r.client, r.num_examples, r.payload, r.metrics | {"bad_step": -0.5}),
        "local step",
    ),
    "flag": (
        lambda r: Reply(r.client, r.num_examples, r.payload, r.metrics | {"bad_weights": 1.0}),
        "a weight of it",
    ),
    "samples": (lambda r: Reply(r.client, -5, r.payload, r.metrics), "-5 samples"),
    "more samples": (
        lambda r: Reply(r.client, 10**9, r.payload, r.metrics),
        "1000000000 samples, not",
    ),
    "another": (lambda r: Reply(5, r.num_examples, r.payload, r.metrics), "not asked for it"),
}


@pytest.fixture(scope="module")
def without(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The weights of a round in which client 2 has no node."""
    folder = tmp_path_factory.mktemp("without")
    silent = Wires(three_nodes(folder, (0, 1), (3,), (4, 5)))
    serve(silent, recipe("scaffold", rounds=1, clients_per_round=6), folder / "o", QUICK)
    return weights(folder / "o")


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_reply_is_refused_and_never_averaged(
    tmp_path: Path, without: bytes, kind: str
) -> None:
    """What remains is the round without that client, and the log says why."""
    change, reason = HOSTILE[kind]
    chosen = recipe("scaffold", rounds=1, clients_per_round=6)
    serve(Wires(three_nodes(tmp_path), hostile(change)), chosen, tmp_path / "o", QUICK)
    assert clients(tmp_path / "o") == [[0, 1, 3, 4, 5]]
    assert weights(tmp_path / "o") == without
    assert reason in log(tmp_path / "o")


@pytest.mark.parametrize("garbage", [b"", b"garbage" * 9, None])
def test_garbage_loses_a_node_for_the_round_only(tmp_path: Path, garbage: bytes | None) -> None:
    def edit(node: int, kind: str, blobs: Blobs, honest: Callable[[], Blobs]) -> Blobs | str | None:
        return (
            honest()
            if kind != "train" or node != 101
            else {ANSWER: garbage}
            if garbage is not None
            else {}
        )

    serve(
        Wires(three_nodes(tmp_path), edit),
        recipe("fedavg", clients_per_round=6),
        tmp_path / "o",
        QUICK,
    )
    assert clients(tmp_path / "o") == [[0, 1, 4, 5]] * 3
    assert "is invalid" in log(tmp_path / "o")


def introducing(change: Callable[[dict[str, Any]], dict[str, Any]]) -> Edit:
    """Replace what the second node says of itself."""

    def edit(node: int, kind: str, blobs: Blobs, honest: Callable[[], Blobs]) -> Blobs:
        header, replies = unpack_answer(honest())
        return pack_answer(change(header) if node == 101 and "facts" in header else header, replies)

    return edit


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda h: h | {"version": "9.9"}, "clients 2-3: has fedbr 9.9, the server "),
        (
            lambda h: {k: v for k, v in h.items() if k != "version"},
            "clients 2-3: has fedbr None, the server ",
        ),
        (lambda h: h | {"facts": {}}, "clients 2-3: its facts are invalid (KeyError: 'own')"),
        (lambda h: h | {"facts": 3}, "clients 2-3: its facts are invalid"),
        (lambda h: h | {"facts": h["facts"] | {"own": 1}}, "clients 2-3: does not say whose"),
        (
            lambda h: h | {"facts": h["facts"] | {"own": True}},
            "clients 2-3: has samples of its own, but the other",
        ),
        (lambda h: h | {"held": 5}, "its answer is invalid"),
        (lambda h: h | {"clients": None}, "its answer is invalid"),
    ],
)
def test_a_node_that_says_strange_things_of_itself_is_left_out(
    tmp_path: Path, change: Callable[[dict[str, Any]], dict[str, Any]], reason: str
) -> None:
    serve(
        Wires(three_nodes(tmp_path), introducing(change)),
        recipe("fedavg", rounds=1),
        tmp_path / "o",
        QUICK,
    )
    assert not {2, 3} & set(clients(tmp_path / "o")[0])
    assert reason in log(tmp_path / "o")


def test_a_node_cannot_write_lines_of_its_own_into_the_log(tmp_path: Path) -> None:
    def edit(node: int, kind: str, blobs: Blobs, honest: Callable[[], Blobs]) -> Blobs:
        forged = {"failed": {"2": "x\n2026 ERROR forged \x1b[31m" + "y" * 10**5}}
        header, replies = unpack_answer(honest())
        return (
            pack_answer(header | forged, [])
            if kind == "train" and node == 101
            else pack_answer(header, replies)
        )

    serve(Wires(three_nodes(tmp_path), edit), recipe("fedavg", rounds=1), tmp_path / "o", QUICK)
    lines = log(tmp_path / "o").splitlines()
    assert not any(
        line.startswith("2026 ERROR") or "\x1b" in line or len(line) > 1000 for line in lines
    )
    assert any("client 2: not used: x 2026 ERROR forged" in line for line in lines)


def test_a_new_node_that_is_silent_holds_nobody_up() -> None:
    """While there are enough others, it gets little time; when it is needed, all there is."""
    asked: list[float] = []

    class Silent:
        def nodes(self) -> list[int]:
            return [7]

        def exchange(self, kind: str, messages: Any, timeout: float) -> dict[int, Blobs | str]:
            asked.append(timeout)
            return {}

    settings = Settings(wait=300)
    roster = Roster(Silent(), settings, recipe("fedavg"))
    roster.wait([], 0, patient=False)
    Roster(Silent(), settings, recipe("fedavg")).refresh()
    assert asked == [30.0, 300.0]


def test_a_duplicate_and_a_late_reply_are_dropped(tmp_path: Path) -> None:
    old: list[Blobs] = []

    def edit(node: int, kind: str, blobs: Blobs, honest: Callable[[], Blobs]) -> Blobs:
        honestly = honest()
        if kind != "train":
            return honestly
        header, replies = unpack_answer(honestly)
        if node == 100:
            return pack_answer(header, [*replies, *replies])
        if node == 101:
            old.append(honestly)
            return old[0]  # for ever the first round's
        return honestly

    serve(
        Wires(three_nodes(tmp_path), edit),
        recipe("fedavg", clients_per_round=6),
        tmp_path / "o",
        QUICK,
    )
    assert clients(tmp_path / "o") == [[0, 1, 2, 3, 4, 5], [0, 1, 4, 5], [0, 1, 4, 5]]
    assert "there is one already" in log(tmp_path / "o")
    assert "it is for round 1, not 2" in log(tmp_path / "o")


def test_a_node_that_dies_comes_back_with_its_memory(tmp_path: Path) -> None:
    """It is silent in round 2, though it trained: the server counts on its first round, whose state
    is still there.
    """
    chosen = recipe("scaffold", rounds=4, clients_per_round=6)
    calls: list[int] = []

    def edit(node: int, kind: str, blobs: Blobs, honest: Callable[[], Blobs]) -> Blobs | None:
        honestly = honest()
        if kind == "train" and node == 101:
            calls.append(1)
            return None if len(calls) == 2 else honestly
        return honestly

    serve(Wires(three_nodes(tmp_path), edit), chosen, tmp_path / "o", QUICK)
    assert [len(c) for c in clients(tmp_path / "o")] == [6, 4, 6, 6]
    assert "client 2: not used: no answer in time" in log(tmp_path / "o")


def test_a_node_that_comes_back_under_another_number_is_recognised(tmp_path: Path) -> None:
    nodes = three_nodes(tmp_path)
    wires = Wires(nodes)

    def on_round(run: PlannedRun, record: RoundRecord) -> None:
        if record.round == 1:
            wires.sites[205] = wires.sites.pop(101)

    serve(
        wires, recipe("moon", clients_per_round=6), tmp_path / "o", QUICK, watch=Callback(on_round)
    )
    train_recipe(recipe("moon", clients_per_round=6), tmp_path / "here")
    assert weights(tmp_path / "o") == weights(tmp_path / "here")
    assert "clients 2-3: their node is gone" in log(tmp_path / "o")


def test_lost_memory_is_never_replaced_silently(tmp_path: Path) -> None:
    nodes = three_nodes(tmp_path)
    wires = Wires(nodes)

    def on_round(run: PlannedRun, record: RoundRecord) -> None:
        if record.round == 1:
            for file in (tmp_path / "node1").rglob("client-2.*"):
                file.write_bytes(file.read_bytes()[:100])
        if record.round == 2:
            wires.sites[101] = NodeSettings((2, 3), state_dir=tmp_path / "node1", start_anew=True)

    serve(
        wires,
        recipe("scaffold", clients_per_round=6),
        tmp_path / "o",
        QUICK,
        watch=Callback(on_round),
    )
    assert [len(c) for c in clients(tmp_path / "o")] == [6, 5, 6]
    assert (
        "client 2: not used: trained in round 1, but what it remembers is not on this node's disk"
        in log(tmp_path / "o")
    )


def test_a_full_disk_is_reported_and_costs_one_site(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = memory.write

    def full(path: Path, content: bytes) -> None:
        if "node1" in str(path):
            path.with_name(f".{path.name}.new").write_bytes(content[:10])
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        write(path, content)

    monkeypatch.setattr(memory, "write", full)
    serve(
        Wires(three_nodes(tmp_path)), recipe("scaffold", clients_per_round=6), tmp_path / "o", QUICK
    )
    assert clients(tmp_path / "o") == [[0, 1, 4, 5]] * 3
    assert "No space left on device" in log(tmp_path / "o")
    assert not list((tmp_path / "node1").rglob("*.new")), "half a file would stay in the way"


def test_a_site_is_back_as_soon_as_its_disk_has_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, full = memory.write, [True]

    def scarce(path: Path, content: bytes) -> None:
        if "node1" in str(path) and full:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        write(path, content)

    monkeypatch.setattr(memory, "write", scarce)
    serve(
        Wires(three_nodes(tmp_path)),
        recipe("scaffold", clients_per_round=6),
        tmp_path / "o",
        QUICK,
        watch=Callback(lambda run, record: full.clear() if record.round == 1 else None),
    )
    assert [len(c) for c in clients(tmp_path / "o")] == [4, 6, 6]


def test_workers_of_a_node_change_no_bit_and_are_replaced_when_one_dies(tmp_path: Path) -> None:
    chosen = recipe("scaffold", clients_per_round=6)
    train_recipe(chosen, tmp_path / "here")
    nodes = {100: NodeSettings((0, 1, 2, 3, 4, 5), state_dir=tmp_path / "n", workers=2)}
    serve(Wires(nodes), chosen, tmp_path / "there", QUICK)
    assert weights(tmp_path / "there") == weights(tmp_path / "here")
    pool = lasting_pool(2)

    def on_round(run: PlannedRun, record: RoundRecord) -> None:
        if record.round == 1:
            pool.processes[0].kill()

    serve(Wires(nodes), chosen, tmp_path / "again", QUICK, watch=Callback(on_round))
    assert weights(tmp_path / "again") == weights(tmp_path / "here"), "the node was asked again"
    assert "a worker process was killed by signal 9" in log(tmp_path / "again")
    assert lasting_pool(2) is not pool
    lasting_pool(2).close()
    lasting_pool.cache_clear()


def test_the_server_goes_on_from_its_last_round(tmp_path: Path) -> None:
    """Killed after the nodes trained a round that was never written down: they start it again from
    where it began.
    """
    chosen = recipe("scaffold", rounds=5, clients_per_round=6)
    train_recipe(chosen, tmp_path / "here")
    rounds: list[int] = []

    class Killed(BaseException):
        pass

    def edit(node: int, kind: str, blobs: Blobs, honest: Callable[[], Blobs]) -> Blobs:
        honestly = honest()
        if kind == "train":
            rounds.append(unpack_answer(honestly)[0]["round"])
            if len(rounds) in (5, 12):  # within the second round; after all nodes trained the third
                raise Killed
        return honestly

    wires = Wires(three_nodes(tmp_path), edit)
    for _ in range(2):
        with pytest.raises(Killed):
            serve(wires, chosen, tmp_path / "o", QUICK)
    serve(wires, chosen, tmp_path / "o", QUICK)
    assert weights(tmp_path / "o") == weights(tmp_path / "here")
    assert serve(wires, chosen, tmp_path / "o", QUICK).runs[0].finished


def test_missing_sites_are_named(tmp_path: Path) -> None:
    wires = Wires(three_nodes(tmp_path, (0, 1)))
    with pytest.raises(
        RunError, match=r"no node holds clients 2-5; 2 of 6 are there, 3 are needed"
    ):
        serve(wires, recipe("fedavg", clients_per_round=6), tmp_path / "o", QUICK)
    assert "no node holds clients 2-5" in log(tmp_path / "o")
    with pytest.raises(RunError, match="no node is there"):
        serve(Wires({}), recipe("fedavg"), tmp_path / "p", QUICK)


def test_local_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nothing to do: use fedbr run"):
        serve(Wires({}), recipe("local"), tmp_path / "o", QUICK)


def own_sites(folder: Path) -> dict[int, NodeSettings]:
    """Three sites with three classes each, of which no two are alike; and the same pooled, for the
    simulator.
    """
    from sklearn.datasets import load_digits

    digits = load_digits()
    x, y = digits.images.astype(np.float32)[:, None] / 16, digits.target
    pooled: dict[str, list[Any]] = {key: [] for key in ("x", "y", "x_test", "y_test", "client")}
    nodes = {}
    for site in range(3):
        here = np.flatnonzero(np.isin(y, [3 * site, 3 * site + 1, 3 * site + 2]))
        parts = {
            "x": x[here[20:]],
            "y": y[here[20:]],
            "x_test": x[here[:20]],
            "y_test": y[here[:20]],
        }
        np.savez(folder / f"site{site}.npz", **parts)
        for key, value in (parts | {"client": np.full(len(here) - 20, site)}).items():
            pooled[key].append(value)
        nodes[100 + site] = NodeSettings(
            (site,), str(folder / f"site{site}.npz"), folder / f"node{site}"
        )
    np.savez(folder / "pooled.npz", **{key: np.concatenate(value) for key, value in pooled.items()})
    return nodes


def own_recipe(**data: Any) -> Recipe:
    return config.parse(
        {
            "name": "own",
            "data": {"name": "npz"} | data,
            "model": {"name": "mlp", "hidden": [12]},
            "train": {"rounds": 3, "local_steps": 5, "batch_size": 8, "clients_at_once": 1},
            "compare": [{"label": "FedBR", "methods": [{"name": "fedbr", "mean_of": 8}]}],
        }
    )


def test_sites_train_and_test_on_their_own_samples(tmp_path: Path) -> None:
    """As the simulator does with the same samples pooled, to the bit; and the server never has one
    of them.
    """
    nodes = own_sites(tmp_path)
    alike = own_recipe(path=str(tmp_path / "pooled.npz"), partition="domains")
    pooled = train_recipe(alike, tmp_path / "here")
    wires = Wires(nodes)
    there = serve(wires, own_recipe(clients=3), tmp_path / "there", QUICK).runs[0]
    assert weights(tmp_path / "there") == weights(tmp_path / "here")
    (here,) = pooled.runs
    accuracy = pytest.approx(here.accuracy.final)  # sites of one size
    assert there.accuracy.final == accuracy
    assert there.record.split is not None
    assert here.record.split is not None
    assert there.record.split.sizes == here.record.split.sizes
    assert there.record.split.effective_classes == here.record.split.effective_classes


def accuracies(folder: Path) -> list[dict[str, Any]]:
    (file,) = folder.glob("runs/*/metrics.jsonl")
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_a_site_that_was_never_tested_does_not_count_as_wrong(tmp_path: Path) -> None:
    """Not when it cannot test; and when it did once, what it counted then stands."""

    def edit(node: int, kind: str, blobs: Blobs, honest: Callable[[], Blobs]) -> Blobs | str:
        tests.append(node) if kind == "evaluate" else None
        late = node == 102 and tests.count(102) > 2
        return "broken" if kind == "evaluate" and (node == 101 or late) else honest()

    tests: list[int] = []
    serve(Wires(own_sites(tmp_path), edit), own_recipe(clients=3), tmp_path / "o", QUICK)
    for line in accuracies(tmp_path / "o"):
        first, second, third = line["accuracy_clients"]
        assert second is None
        assert line["accuracy"] == pytest.approx((first + third) / 2)
    assert "clients 1: never tested, the accuracy is without them" in log(tmp_path / "o")
    assert "clients 2: not tested, what they counted last, if ever, stands: broken" in log(
        tmp_path / "o"
    )


class Margin(Tally):
    """Sum of the largest logits, and how many there are."""

    name = "margin"

    def size(self, classes: int) -> int:
        return 2

    def count(self, truth: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
        largest = logits.double().amax(dim=-1)
        return torch.stack([largest.sum(), torch.ones_like(largest).sum()])


class MeanMargin(fedbr.Metric):
    """How large the largest logit is."""

    name = "mean-margin"
    adds_up = "sums of logits and counts are added over sites"

    def tallies(self, own_tests: bool) -> list[Tally]:
        return [Margin(), RightByClass()]

    def per_round(self, measured: MeasuredRound) -> dict[str, Any]:
        if measured.tested is None:
            return {"margin": None, "right": None}
        tests = measured.tested.counts[0].values()
        margin = sum(counts["margin"] for counts in tests)
        right = sum(counts["right-by-class"] for counts in tests)
        return {"margin": float(margin[0] / margin[1]), "right": right.tolist()}


def test_a_metric_from_outside_adds_up_over_sites(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its sums are those of the simulator on the pooled samples; nothing else is counted."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    metrics = MetricsConfig(extra=[f"{__name__}:MeanMargin"])
    nodes = own_sites(tmp_path)
    path = str(tmp_path / "pooled.npz")
    # As in a federation, everybody is tested on the same samples, of which each site has a third.
    alike = own_recipe(path=path, partition="domains").model_copy(update={"metrics": metrics})
    (here,) = train_recipe(alike, tmp_path / "here").runs
    chosen = own_recipe(clients=3).model_copy(update={"metrics": metrics})
    wires = Wires(nodes)
    (there,) = serve(wires, chosen, tmp_path / "there", QUICK).runs
    for one, other in zip(there.rounds, here.rounds, strict=True):
        assert one.extra["margin"] == pytest.approx(other.extra["margin"], rel=1e-12)
        assert one.extra["right"] == other.extra["right"]
    (audited,) = (audit(chosen, v, nodes[100].data) for v in chosen.compare)
    sent = {item.what: item.bytes for item in audited.items if item.when == "each test"}
    assert sent == {"counts": 8, "margin": 16, "right-by-class": 8 * 3}
    node, _, blobs = next(sent for sent in wires.sent if sent[1] == "evaluate")
    request = replace(Request.read(blobs), tallies=("pairs",))
    model = {MODEL: blobs[MODEL]}
    refused = Answer.read(reply_to(request.write(model), nodes[node], site_of(nodes[node])))
    assert refused.error == "the metrics of the recipe do not count 'pairs'"


def test_counts_that_cannot_be_right_are_refused(tmp_path: Path) -> None:
    def edit(node: int, kind: str, blobs: Blobs, honest: Callable[[], Blobs]) -> Blobs:
        header, replies = unpack_answer(honest())
        if kind == "evaluate" and node == 101:
            header["counts"] = [[10**6] for _ in header["counts"]]
        return pack_answer(header, replies)

    serve(Wires(own_sites(tmp_path), edit), own_recipe(clients=3), tmp_path / "o", QUICK)
    assert all(line["accuracy_clients"][1] is None for line in accuracies(tmp_path / "o"))
    assert "its counts cannot be right" in log(tmp_path / "o")


def test_nobody_who_can_test_ends_the_run_with_a_reason(tmp_path: Path) -> None:
    def edit(node: int, kind: str, blobs: Blobs, honest: Callable[[], Blobs]) -> Blobs | str:
        return "broken" if kind == "evaluate" else honest()

    with pytest.raises(RunError, match="no site could be tested"):
        serve(Wires(own_sites(tmp_path), edit), own_recipe(clients=3), tmp_path / "o", QUICK)


def test_bias_is_measured_where_the_server_has_test_samples_and_refused_elsewhere(
    tmp_path: Path,
) -> None:
    chosen = recipe("fedavg").model_copy(update={"metrics": MetricsConfig(bias_every=1)})
    train_recipe(chosen, tmp_path / "here")
    serve(Wires(three_nodes(tmp_path)), chosen, tmp_path / "there", QUICK)
    here, there = (accuracies(tmp_path / name) for name in ("here", "there"))
    assert [line["bias"] for line in there] == [line["bias"] for line in here]
    own = own_recipe(clients=3).model_copy(update={"metrics": MetricsConfig(bias_every=1)})
    wires = Wires(own_sites(tmp_path))
    with pytest.raises(
        InputError, match=r"metrics\.bias_every = 1: .* stay at the sites; only 0 is allowed"
    ):
        serve(wires, own, tmp_path / "o", QUICK)
    assert not wires.sent
    disguised = own.model_copy(
        update={"data": recipe("fedavg").data.model_copy(update={"clients": 3})}
    )
    with pytest.raises(
        InputError, match="only 0 is allowed"
    ):  # the recipe names data that every node could load
        serve(wires, disguised, tmp_path / "p", QUICK)
    assert {kind for _, kind, _ in wires.sent} == {"query"}


def test_samples_that_change_during_a_run_are_noticed(tmp_path: Path) -> None:
    nodes = own_sites(tmp_path)

    def on_round(run: PlannedRun, record: RoundRecord) -> None:
        if record.round == 1:
            Path(nodes[101].data).write_bytes((tmp_path / "site2.npz").read_bytes())

    serve(Wires(nodes), own_recipe(clients=3), tmp_path / "o", QUICK, watch=Callback(on_round))
    assert clients(tmp_path / "o") == [[0, 1, 2], [0, 2], [0, 2]]
    assert "client 1: not used: data: other samples than when" in log(tmp_path / "o")
    assert "client 1 has other samples than when the run began" in log(tmp_path / "o")


def test_a_site_with_damaged_data_is_named_and_left_out(tmp_path: Path) -> None:
    nodes = own_sites(tmp_path)

    def on_round(run: PlannedRun, record: RoundRecord) -> None:
        if record.round == 1:
            file = Path(nodes[101].data)
            file.write_bytes(file.read_bytes()[:2000])

    serve(Wires(nodes), own_recipe(clients=3), tmp_path / "o", QUICK, watch=Callback(on_round))
    assert clients(tmp_path / "o") == [[0, 1, 2], [0, 2], [0, 2]]
    assert "client 1: not used" in log(tmp_path / "o")
    assert "not an .npz of plain arrays" in log(tmp_path / "o")


def test_a_site_with_other_samples_than_at_the_start_is_refused(tmp_path: Path) -> None:
    nodes = own_sites(tmp_path)

    class Stop(BaseException):
        pass

    def on_round(run: PlannedRun, record: RoundRecord) -> None:
        if record.round == 1:
            raise Stop

    with pytest.raises(Stop):
        serve(Wires(nodes), own_recipe(clients=3), tmp_path / "o", QUICK, watch=Callback(on_round))
    nodes[101] = NodeSettings((1,), str(tmp_path / "site2.npz"), tmp_path / "node1")
    serve(Wires(nodes), own_recipe(clients=3), tmp_path / "o", QUICK)
    assert clients(tmp_path / "o") == [[0, 1, 2], [0, 2], [0, 2]]
    assert "has other samples than when the run began" in log(tmp_path / "o")
