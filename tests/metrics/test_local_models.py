"""The clients' models at the end of a round: for every method, on every backend."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

import fedbr
from conftest import blobs
from fedbr.backends.pool import WorkerPool
from fedbr.bias import two_halves
from fedbr.core.evaluation import BATCH, Answers, Exam, RightByClass, TestPlan, TestSet, answer
from fedbr.core.method import Method
from fedbr.core.rng import torch_stream
from fedbr.core.server import Server
from fedbr.methods import METHODS
from fedbr.metrics import collect_tallies, select
from fedbr.metrics.local import confusions, definitions
from fedbr.models import build
from fedbr.recipe.schema import Recipe
from fedbr.run import loop
from fedbr.run.setup import assemble, connect

TIMES = ("seconds_train", "seconds_evaluate")


def play(
    federation: fedbr.Federation,
    methods: list[Method],
    bias_every: int,
    pool: WorkerPool | None = None,
    last: int = 2,
) -> list[dict[str, Any]]:
    """Play some rounds; return their lines of metrics.jsonl."""
    values = {
        "train": {
            "rounds": last,
            "local_steps": 4,
            "batch_size": 8,
            "clients_per_round": min(4, len(federation.sizes)),
        },
        "metrics": {"bias_every": bias_every},
        "compare": [{"label": "FedAvg"}],
    }
    recipe = Recipe.model_validate(values)
    with torch_stream(0, "model"):
        model = build("mlp", {}, federation.shape, federation.num_classes)
    setup = assemble(model, methods, federation, recipe.train, 0)
    plan = federation.test_plan(None, 0)
    plan = plan.with_tallies(collect_tallies(select(), plan))
    backend = connect(setup, federation.train, plan, 2, pool)
    records = loop.rounds(recipe, Server(setup), backend, federation.census, 1)
    return [record.to_json() for record in records]


def timeless(lines: list[dict[str, Any]]) -> str:
    return json.dumps([{k: v for k, v in line.items() if k not in TIMES} for line in lines])


@pytest.mark.parametrize("name", sorted(METHODS))
def test_every_method_can_be_measured(federation: fedbr.Federation, name: str) -> None:
    options = {"mean_of": 2} if "mean_of" in METHODS[name].model_fields else {}
    lines = play(federation, [METHODS[name](**options)], 2)
    assert "bias" not in lines[0]
    assert 0 <= lines[1]["accuracy_local"] <= 1
    bias = lines[1]["bias"]
    assert 0 <= bias["share_present"] <= 1
    assert 0 <= bias["entropy"] <= 1
    assert set(bias) <= {key.removeprefix("bias.") for key in definitions()}
    if name == "local":  # nothing is aggregated, and clients begin with different weights
        assert [bias[key] for key in ("accuracy_aggregated", "length", "distance", "cosine")] == [
            None
        ] * 4
        assert bias["layers"] == {}
        return
    assert bias["accuracy_aggregated"] == pytest.approx(
        lines[1]["accuracy"]
    )  # the test set is balanced
    assert -1 <= bias["cosine"] <= 1
    assert bias["length"] > 0
    assert all(set(layer) == {"length", "distance", "cosine"} for layer in bias["layers"].values())
    assert not any(layer.startswith("extras") for layer in bias["layers"])


def test_one_client_is_its_own_average() -> None:
    x, y = blobs()
    keep = np.arange(len(y)) % 4 <= y  # classes of different sizes
    alone = fedbr.Federation.from_clients([(x, y)], test=(x[keep], y[keep]))
    (line,) = fedbr.train(alone, "mlp", rounds=1, local_steps=4, batch_size=8, bias_every=1).lines
    assert line["accuracy_local"] == line["bias"]["accuracy_aggregated"]
    assert line["accuracy_local"] != line["accuracy"]  # where every sample counts the same


def test_scarce_classes_count_as_unseen() -> None:
    x, y = blobs()
    both = fedbr.Federation.from_clients([(x, y), (x, y)], test=(x, y))
    for share, known in ((0.1, True), (0.4, False)):
        (line,) = play(two_halves(both, share), [], 1, last=1)
        assert (line["bias"]["share_present_unseen"] is not None) == known


def test_measuring_changes_nothing(federation: fedbr.Federation) -> None:
    looked = play(federation, [fedbr.FedBR(mean_of=2)], 1)
    for line in looked:
        del line["accuracy_local"], line["bias"]
    assert timeless(looked) == timeless(play(federation, [fedbr.FedBR(mean_of=2)], 0))


def test_the_python_interface_measures_too(federation: fedbr.Federation) -> None:
    short: dict[str, Any] = {"rounds": 3, "local_steps": 2, "batch_size": 8}
    run = fedbr.train(federation, "mlp", bias_every=2, **short)
    assert [entry["round"] for entry in run.bias] == [2, 3]
    assert all(
        0 <= entry["accuracy_local"] <= 1 and 0 <= entry["entropy"] <= 1 for entry in run.bias
    )
    assert fedbr.train(federation, "mlp", **short).bias == []
    with pytest.raises(fedbr.InputError, match=r"train.bias_every = -1"):
        fedbr.train(federation, "mlp", bias_every=-1)


def test_workers_see_the_same(federation: fedbr.Federation) -> None:
    with WorkerPool(2) as pool:
        for methods in ([fedbr.FedBR(mean_of=2)], [fedbr.Local()]):
            assert timeless(play(federation, methods, 1, pool, 1)) == timeless(
                play(federation, methods, 1, None, 1)
            )


def test_own_test_sets_are_one(federation: fedbr.Federation) -> None:
    x, y = blobs()
    each = [(x[y == c], y[y == c]) for c in range(4)]
    together = fedbr.Federation.from_clients(each, test=(x, y))
    apart = fedbr.Federation.from_clients(each, test=each)
    one, many = (play(f, [], 1, last=1)[0] for f in (together, apart))
    assert one["accuracy_local"] == many["accuracy_local"]
    assert one["bias"] == many["bias"]


def test_confusions(federation: fedbr.Federation) -> None:
    with torch_stream(0, "model"):
        model = build("mlp", {}, federation.shape, federation.num_classes).double()

    test = federation.tests[0]
    plan = TestPlan([TestSet.of(test)], [0])

    class Examiner:
        def __init__(self) -> None:
            self.plan = plan

        def test(self, exams: Sequence[Exam]) -> list[Answers]:
            return [answer(model, plan, exam, torch.float64) for exam in exams]

    (table,) = confusions(Examiner(), [model.weights()], 4, quick=False)
    guesses = model.predict(test.see(slice(None), torch.float64))
    expected = torch.zeros(4, 4, dtype=torch.long)
    for truth, guess in zip(test.y, guesses, strict=True):
        expected[truth, guess] += 1
    assert table.tolist() == expected.tolist()
    assert len(test) <= BATCH
    exam = Exam(model.weights(), plan.pieces([0]), (RightByClass.name,))
    (right,) = answer(model, plan, exam, torch.float64).values()
    assert right.tolist() == expected.diagonal().tolist()
