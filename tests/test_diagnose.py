"""A diagnosis: what must be seen on digits, on any federation, and on any model."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import fedbr
from conftest import blobs
from fedbr.diagnostics import Options, before_and_after, two_halves
from fedbr.diagnostics.folder import TOY, from_toy
from fedbr.diagnostics.run import examine
from fedbr.diagnostics.sample import balanced, choose_clients, known
from fedbr.results.diagnosis import FIGURES, Diagnosis, read

SHORT = {"local_steps": 5, "batch_size": 8, "samples": 40}


def one_class_each(clients: int = 4, own_tests: bool = False) -> fedbr.Federation:
    x, y = blobs(classes=clients)
    each = [(x[y == c], y[y == c]) for c in range(clients)]
    return fedbr.Federation.from_clients(each, test=each if own_tests else (x, y))


def side(diagnosis: Diagnosis, label: str) -> dict[str, float]:
    found: dict[str, float] = next(m["mean"] for m in diagnosis.numbers["methods"] if m["label"] == label)
    return found


def toy(model: list[str], seed: int) -> Diagnosis:
    case = from_toy(0.0, model, [], seed).case
    sides = {label: stack for label, stack in case.sides.items() if label != "FedBR"}
    return examine(replace(case, sides=sides), Options(pretrain=5, epochs=10))


def claims(diagnosis: Diagnosis) -> None:
    avg, first, second = (side(diagnosis, label) for label in ("FedAvg", "Component 1", "Component 2"))
    assert avg["share_present_unseen"] > 0.95
    assert first["share_present_unseen"] < avg["share_present_unseen"] - 0.02
    assert first["mass_present_unseen"] < avg["mass_present_unseen"] - 0.15
    assert second["shift_seen"] < avg["shift_seen"]
    assert second["shift_unseen"] < 0.7 * avg["shift_unseen"]


def test_what_must_be_seen_on_digits() -> None:
    """With a small model; the one of the documentation takes longer."""
    claims(toy(["model.name=mlp", "model.width=1", "train.lr=0.05"], 0))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_what_must_be_seen_on_digits_with_the_papers_model(seed: int) -> None:
    claims(toy([], seed))


def test_no_training_no_bias() -> None:
    done = fedbr.diagnose(one_class_each(), "mlp", {"FedAvg": []}, lr=1e-12, **SHORT)
    mean = side(done, "FedAvg")
    assert mean["shift"] == pytest.approx(0, abs=1e-6)
    assert mean["cka"] == pytest.approx(1)
    assert mean["accuracy"] == done.numbers["global"]["mean"]["accuracy"]


def test_a_folder_of_figures_and_numbers(tmp_path: Path) -> None:
    assert read(tmp_path) is None
    sides = {"FedAvg": [], "FedBR": [fedbr.FedBR(mean_of=2, hidden=8, width=8)]}
    done = fedbr.diagnose(one_class_each(), "mlp", sides, pretrain=1, **SHORT)
    bias = {"share_present_unseen": 0.9, "cosine": None}
    line = {"round": 1, "accuracy": 0.5, "accuracy_local": 0.3, "bias": bias}
    where = done.save(tmp_path, {"FedAvg": [line, {"round": 2, "accuracy": None}]})
    saved = read(tmp_path)
    assert saved is not None
    assert saved.numbers == json.loads((where / "diagnosis.json").read_text())
    assert [name for name, *_ in saved.figures] == list(FIGURES)
    assert all(png.stat().st_size > 1000 and png.with_suffix(".svg").exists() for *_, png in saved.figures)
    labels = [m["label"] for m in saved.numbers["methods"]]
    assert labels == list(sides)
    header, rows = done.table()
    assert header == ["", "global", *labels]
    assert all(len(row) == len(header) for row in rows)
    assert "never seen" in done.sentences()[0]
    keys = set(saved.numbers["methods"][0]["clients"][0]) - {"client"}
    defined = " ".join([*saved.numbers["metrics"], *saved.numbers["metrics"].values()])
    assert all(key in defined for key in keys)


def test_a_model_of_the_users_keeps_its_weights() -> None:
    federation = one_class_each()
    net = fedbr.FedModel(nn.Sequential(nn.Linear(6, 8), nn.Tanh()), 8, 4)
    before = {k: v.clone() for k, v in net.state_dict().items()}
    done = fedbr.diagnose(federation, net, {"FedProx": [fedbr.FedProx(mu=1.0)], "Alone": [fedbr.Local()]}, **SHORT)
    assert all(torch.equal(v, before[k]) for k, v in net.state_dict().items())
    expected = net.predict(done.view.x)
    assert torch.equal(done.view.before.logits.argmax(dim=1), expected)
    assert side(done, "Alone")["shift"] > side(done, "FedProx")["shift"] > 0


def test_own_test_sets_are_one() -> None:
    one, many = (
        fedbr.diagnose(one_class_each(own_tests=own), "mlp", {"FedAvg": []}, **SHORT | {"samples": 1000})
        for own in (False, True)
    )
    assert one.numbers["methods"] == many.numbers["methods"]


def test_a_hundred_clients(tmp_path: Path) -> None:
    x, y = blobs(classes=4, per_class=100)
    federation = fedbr.Federation.from_arrays(x, y, x, y, clients=100, partition="lda", alpha=0.1)
    done = fedbr.diagnose(federation, "mlp", {"FedAvg": []}, clients=3, client=50, **SHORT)
    chosen = done.numbers["about"]["clients"]
    assert len(chosen) == 3
    assert 50 in chosen
    assert f"clients {', '.join(map(str, chosen))} (drawn from 100)" in done.about()
    assert "40 of 400 test samples, 10 per class" in done.about()
    assert choose_clients(federation, 3, None, 0) == choose_clients(federation, 3, None, 0)


def test_clients_that_have_everything(tmp_path: Path) -> None:
    x, y = blobs(classes=2)
    federation = fedbr.Federation.from_clients([(x, y), (x, y)], test=(x, y))
    done = fedbr.diagnose(federation, "mlp", {"FedAvg": []}, **SHORT)
    assert side(done, "FedAvg")["share_present_unseen"] is None
    assert "no unseen data" in done.sentences()[0]
    done.save(tmp_path)
    found = read(tmp_path)
    assert found is not None
    assert [name for name, *_ in found.figures] == ["predictions", "drift"]


def test_classes_seen_and_unseen() -> None:
    federation = one_class_each()
    assert [(k.seen, k.unseen, k.scarce) for k in known(federation, [2])] == [([2], [0, 1, 3], False)]
    mild = known(two_halves(federation, 0.4), [0, 1])
    assert [(k.seen, k.unseen, k.scarce) for k in mild] == [([0, 1], [2, 3], True), ([2, 3], [0, 1], True)]


@pytest.mark.parametrize(("share", "foreign"), [(0.0, 0.0), (0.1, 0.1), (0.5, 0.5)])
def test_two_halves(share: float, foreign: float) -> None:
    federation = one_class_each()
    halves = two_halves(federation, share)
    y = halves.train.samples.y.numpy()
    first, second = halves.train.parts.values()
    assert sorted([*first, *second]) == list(range(len(y)))
    assert np.mean(y[first] >= 2) == pytest.approx(foreign)
    assert np.mean(y[second] < 2) == pytest.approx(foreign)


def test_samples_are_balanced() -> None:
    x, y = blobs(classes=3, per_class=30)
    keep = np.flatnonzero((y != 2) | (np.arange(len(y)) % 10 == 0))  # three samples of the last class
    federation = fedbr.Federation.from_clients([(x, y)], test=(x[keep], y[keep]))
    probe = balanced(federation, 1000, 0, torch.float32)
    assert torch.bincount(probe.y).tolist() == [10, 10, 3]
    assert (probe.per_class, probe.available) == ([3, 10], 63)
    assert torch.bincount(balanced(federation, 6, 0, torch.float32).y).tolist() == [2, 2, 2]


@pytest.mark.parametrize("start", ["features", "scratch"])
def test_where_clients_begin(start: str) -> None:
    done = fedbr.diagnose(one_class_each(), "mlp", {"FedAvg": []}, pretrain=2, start=start, lr=1e-9, **SHORT)  # type: ignore[arg-type]
    mean = side(done, "FedAvg")
    if start == "features":  # nothing is learnt: the same features, another classifier
        assert mean["shift"] == pytest.approx(0, abs=1e-6)
    else:
        assert done.numbers["about"]["start"] == "scratch"


def test_epochs_become_steps() -> None:
    done = fedbr.diagnose(one_class_each(), "mlp", {"FedAvg": []}, epochs=2, batch_size=16, samples=20)
    assert done.numbers["about"]["local_steps"] == 2 * 3  # 40 samples in batches of 16


def test_workers_change_nothing() -> None:
    sides = {"FedBR": [fedbr.FedBR(mean_of=2)]}
    one, two = (fedbr.diagnose(one_class_each(), "mlp", sides, workers=n, **SHORT).numbers for n in (1, 2))
    assert one["methods"] == two["methods"]


def test_the_components_share_all_else() -> None:
    sides = before_and_after(fedbr.FedBR(**TOY))  # type: ignore[arg-type]
    assert sides["FedAvg"] == []
    assert [m.components for m in (sides["Component 1"][0], sides["Component 2"][0], sides["FedBR"][0])] == [
        1,
        2,
        "both",
    ]  # type: ignore[attr-defined]
    assert all(stack[0].mean_of == 2 for label, stack in sides.items() if label != "FedAvg")  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"clients": 0}, "diagnose.clients = 0"),
        ({"client": 9}, "client = 9: there are clients 0 to 3"),
        ({"start": "nowhere"}, "diagnose.start = 'nowhere'"),
        ({"start": "scratch"}, "add pretrain epochs"),
        ({"methods": []}, "methods: wants lists of methods by label"),
        ({"methods": {"Moon": [fedbr.Moon()]}}, "moon: builds another model"),
        ({"workers": 0}, "workers = 0"),
        ({"model": fedbr.FedModel(nn.Linear(6, 3), 3, 4), "ephochs": 2}, "did you mean 'epochs'?"),
    ],
)
def test_wrong_input_is_one_line(arguments: dict[str, object], words: str) -> None:
    with pytest.raises(fedbr.InputError) as error:
        fedbr.diagnose(one_class_each(), **{"model": "mlp", "methods": {"FedAvg": []}} | SHORT | arguments)  # type: ignore[arg-type]
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_wrong_share() -> None:
    with pytest.raises(fedbr.InputError, match=r"share = 0.6"):
        two_halves(one_class_each(), 0.6)
