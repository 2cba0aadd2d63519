"""The table of metrics: what each entry says, and how one is added from outside."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

import fedbr
from fedbr.core.evaluation import Tally
from fedbr.core.records import RoundRecord, Value
from fedbr.metrics import METRICS, MeasuredRound, definitions, find, select
from fedbr.recipe import load as config
from training import train_recipe


class Confidence(Tally):
    """Sum of the largest probabilities, and how many there are."""

    name = "confidence"

    def size(self, classes: int) -> int:
        return 2

    def count(self, truth: Tensor, logits: Tensor) -> Tensor:
        largest = logits.double().softmax(dim=-1).amax(dim=-1)
        return torch.stack([largest.sum(), torch.ones_like(largest).sum()])


class MeanConfidence(fedbr.Metric):
    """How sure the model is of its answers."""

    name = "mean-confidence"
    adds_up = "sums of probabilities and counts are added over sites"

    def definitions(self, own_tests: bool) -> Mapping[str, str]:
        return {"confidence": "mean probability of the class that the model chooses"}

    def tallies(self, own_tests: bool) -> Sequence[Tally]:
        return (Confidence(),)

    def per_round(self, measured: MeasuredRound) -> Mapping[str, Value]:
        if measured.tested is None:
            return {"confidence": None}
        total = sum(counts["confidence"] for counts in measured.tested.counts[0].values())
        return {"confidence": float(total[0] / total[1])}

    def per_run(
        self, rounds: Sequence[RoundRecord], targets: Sequence[float]
    ) -> Mapping[str, Value]:
        known = [r.extra["confidence"] for r in rounds if r.extra["confidence"] is not None]
        return {"confidence": {"last": known[-1] if known else None}}


@pytest.fixture
def name(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    return "test_table:MeanConfidence"


@pytest.mark.parametrize("workers", [1, 2])
def test_one_from_outside_the_package(tmp_path: Path, name: str, workers: int) -> None:
    settings = [
        "train.rounds=3",
        "train.local_steps=2",
        "train.evaluate_every=2",
        f'metrics.extra=["{name}"]',
    ]
    recipe = config.load("digits", settings, ["fedavg"])
    (run,) = train_recipe(recipe, tmp_path / "out", workers=workers).runs
    values = [record.extra["confidence"] for record in run.rounds]
    assert values[0] is None
    assert 0.1 <= values[1] <= 1
    model = fedbr.load_model(tmp_path / "out/runs/FedAvg-0/model.safetensors")
    from fedbr.run.plan import clients_of

    (test,) = clients_of(recipe.data, 0).tests
    with torch.no_grad():
        logits = model(test.see(slice(None), torch.float32)).logits
    expected = logits.double().softmax(dim=-1).amax(dim=-1).mean()
    assert values[2] == pytest.approx(float(expected), abs=1e-6)
    results = json.loads((tmp_path / "out/results.json").read_text())
    assert results["runs"][0]["confidence"] == {"last": values[2]}
    assert "mean probability" in results["metrics"]["confidence"]
    for file, column in (("runs.csv", "confidence_last"), ("rounds.csv", "confidence")):
        assert column in (tmp_path / "out" / file).read_text().splitlines()[0].split(",")


def test_the_same_in_python(federation: fedbr.Federation, name: str) -> None:
    run = fedbr.train(
        federation, "mlp", rounds=1, local_steps=1, metrics=[name], dtype="float64", hidden=(5,)
    )
    assert 0.25 <= run.rounds[0].extra["confidence"] <= 1


@pytest.mark.parametrize("name", METRICS)
def test_every_entry_explains_itself(name: str) -> None:
    metric = find(name)
    assert metric.name == name
    assert metric.adds_up
    assert metric.definitions(own_tests=True)
    assert type(metric).__doc__


def test_every_value_of_a_run_has_a_definition(federation: fedbr.Federation) -> None:
    run = fedbr.train(federation, "mlp", rounds=1, local_steps=1, hidden=(5,), dtype="float64")
    meanings = definitions(select(), own_tests=False)
    assert {key for key in run.lines[0] if key not in meanings} == {"round", "clients"}


def test_classes_that_are_not_metrics_are_refused() -> None:
    with pytest.raises(fedbr.InputError, match=r"metrics\.extra = 'acuracy'.*'accuracy'"):
        find("acuracy")
    with pytest.raises(fedbr.InputError, match="not a class derived from"):
        find("pathlib:Path")


def test_two_metrics_may_not_have_a_value_of_the_same_name(
    federation: fedbr.Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Again(fedbr.Metric):
        name = "again"
        adds_up = "it does not"

        def per_round(self, measured: MeasuredRound) -> Mapping[str, Value]:
            return {"bytes_up": 0}

    monkeypatch.setitem(METRICS, "again", Again)
    with pytest.raises(fedbr.InputError, match="'again' gives 'bytes_up', as another metric does"):
        fedbr.train(federation, "mlp", rounds=1, local_steps=1, metrics=["again"], dtype="float64")
