"""A diagnosis: what must be seen on digits, on any federation, and on any model."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from torch import nn

import fedbr
from conftest import blobs
from fedbr.bias import Options, before_and_after, two_halves
from fedbr.bias import drift_figures as bias_drift
from fedbr.bias import study as module
from fedbr.bias.bar_figures import GLOBAL, headed, of_client
from fedbr.bias.folder import TOY, from_toy
from fedbr.bias.report import FIGURES, Diagnosis, kind, read
from fedbr.bias.sample import balanced, choose_clients
from fedbr.bias.study import examine
from fedbr.metrics.bias import cosine_shift
from fedbr.report.plots import small_print
from fedbr.util.errors import RunError

SHORT = {"local_steps": 5, "batch_size": 8, "samples": 40}


def one_class_each(clients: int = 4, own_tests: bool = False) -> fedbr.Federation:
    x, y = blobs(classes=clients)
    each = [(x[y == c], y[y == c]) for c in range(clients)]
    return fedbr.Federation.from_clients(each, test=each if own_tests else (x, y))


def side(diagnosis: Diagnosis, label: str) -> dict[str, float]:
    found: dict[str, float] = next(
        m["mean"] for m in diagnosis.numbers["methods"] if m["label"] == label
    )
    return found


def toy(model: list[str], seed: int) -> Diagnosis:
    case = from_toy(0.0, model, [], seed).case
    sides = {label: variant for label, variant in case.sides.items() if label != "FedBR"}
    return examine(replace(case, sides=sides), Options(pretrain=5, epochs=10))


def claims(diagnosis: Diagnosis) -> None:
    avg, first, second = (
        side(diagnosis, label) for label in ("FedAvg", "Component 1", "Component 2")
    )
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
    where = done.save(tmp_path, logged())
    saved = read(tmp_path)
    assert saved is not None
    assert saved.numbers == json.loads((where / "diagnosis.json").read_text())
    assert [name for name, *_ in saved.figures] == list(FIGURES)
    assert all(
        png.stat().st_size > 1000 and png.with_suffix(".svg").exists() for *_, png in saved.figures
    )
    labels = [m["label"] for m in saved.numbers["methods"]]
    assert labels == list(sides)
    header, rows = done.table()
    assert header == ["", "global", *labels]
    assert all(len(row) == len(header) for row in rows)
    assert "never seen" in done.sentences()[0]
    keys = set(saved.numbers["methods"][0]["clients"][0]) - {"client"}
    defined = " ".join([*saved.numbers["metrics"], *saved.numbers["metrics"].values()])
    assert all(key in defined for key in keys)
    assert "without the pictures" in saved.numbers["metrics"]["seconds"]
    words = [row[0] for row in rows]
    assert "X1 | X2 by nearest mean %" in words
    groups = f"{side(done, 'FedBR')['centroid_groups'] * 100:.1f}"
    assert rows[words.index("X1 | X2 by nearest mean %")][3] == groups


def logged(cosine: float | None = 0.01) -> dict[str, list[list[dict[str, object]]]]:
    """What metrics.bias_every leaves: of two seeds, whose updates are as alike as noise is."""
    layer = {"length": 1.0, "distance": 0.9, "cosine": cosine}
    bias = {
        "share_present_unseen": 0.9,
        "accuracy_aggregated": 0.5,
        "layers": {"a.weight": layer},
        **layer,
    }
    lines: list[dict[str, object]] = [
        {"round": r, "accuracy_local": 0.3, "bias": bias} for r in (5, 10)
    ]
    return {"FedAvg": [lines, lines[:1]], "FedBR": [lines]}


def test_noise_does_not_look_like_a_trend() -> None:
    _, share, cosine, distance = bias_drift.by_round(logged()).axes
    assert share.get_ylim()[1] - share.get_ylim()[0] >= 20
    assert cosine.get_ylim()[1] - cosine.get_ylim()[0] == pytest.approx(0.5)
    assert distance.get_ylim()[1] - distance.get_ylim()[0] == pytest.approx(0.5)
    maps = bias_drift.by_layer(logged())
    assert maps is not None
    assert [image.get_clim() for axes in maps.axes for image in axes.images] == [
        (-0.5, 0.5)
    ] * 2 + [(0, 0.9)] * 2
    assert bias_drift.by_layer(logged(cosine=None)) is None


def test_a_model_of_the_users_keeps_its_weights() -> None:
    federation = one_class_each()
    net = fedbr.FedModel(nn.Sequential(nn.Linear(6, 8), nn.Tanh()), 8, 4)
    before = {k: v.clone() for k, v in net.state_dict().items()}
    done = fedbr.diagnose(
        federation, net, {"FedProx": [fedbr.FedProx(mu=1.0)], "Alone": [fedbr.Local()]}, **SHORT
    )
    assert all(torch.equal(v, before[k]) for k, v in net.state_dict().items())
    expected = net.predict(done.view.x)
    assert torch.equal(done.view.before.logits.argmax(dim=1), expected)
    assert side(done, "Alone")["shift"] > side(done, "FedProx")["shift"] > 0


def test_clients_that_train_alone_have_no_aggregate(tmp_path: Path) -> None:
    done = fedbr.diagnose(one_class_each(), "mlp", {"Alone": [fedbr.Local()]}, **SHORT)
    (alone,) = done.numbers["methods"]
    assert alone["accuracy_aggregated"] is None
    assert alone["drift"]["length"] > 0  # from the weights that all begin with here
    assert done.view.averaged is None
    assert [row[2] for row in done.table()[1] if row[0] == "aggregated %"] == ["-"]
    done.save(tmp_path)
    assert "features" in drawn(tmp_path)


def drawn(folder: Path) -> list[str]:
    found = read(folder)
    assert found is not None
    return [name for name, *_ in found.figures]


def test_titles_are_as_wide_as_their_figure() -> None:
    with small_print(figure_titlesize=11):
        figure = headed(
            Figure(figsize=(5, 3)), "Client 0: output for classes that it has never seen (X2). " * 3
        )
        figure.draw_without_rendering()
        title = figure.texts[0].get_window_extent()
    assert 0 <= title.x0 < title.x1 <= figure.bbox.width


def test_features_that_collapsed(tmp_path: Path) -> None:
    """t-SNE of equal points kills the process."""
    encoder = nn.Sequential(nn.Linear(6, 8), nn.ReLU())
    nn.init.constant_(encoder[0].bias, -100)  # type: ignore[arg-type]
    done = fedbr.diagnose(one_class_each(), fedbr.FedModel(encoder, 8, 4), {"FedAvg": []}, **SHORT)
    mean = side(done, "FedAvg")
    assert (mean["shift"], mean["cka"]) == (0, None)
    with pytest.warns(RuntimeWarning, match="the same features: there are no maps"):
        done.save(tmp_path)
    assert drawn(tmp_path) == ["classifier", "predictions", "drift"]


def test_a_side_that_diverges_leaves_the_others(tmp_path: Path) -> None:
    sides = {"Prox": [fedbr.FedProx(mu=1e30)], "FedAvg": []}
    done = fedbr.diagnose(one_class_each(), "mlp", sides, **SHORT)
    lost, *others = done.numbers["methods"]
    assert lost["diverged"].startswith("round 1, client 0: ")
    assert all(one["diverged"] is None and one["mean"]["shift"] > 0 for one in others)
    assert done.table()[1][0][2] == "diverged"
    assert done.sentences()[0].startswith("Prox: diverged (round 1, client 0")
    assert done.sentences()[1].startswith("FedAvg: of samples")
    done.save(tmp_path)
    assert drawn(tmp_path) == list(FIGURES)[:5]
    with pytest.raises(RunError, match=r"every side diverged \(FedAvg: round 1, client 0"):
        fedbr.diagnose(one_class_each(), "mlp", {"FedAvg": []}, lr=1e30, **SHORT)


def test_labels_of_all_kinds(tmp_path: Path) -> None:
    sides = {r"_a $\frac$ b": [], "global model": [fedbr.FedProx()]}
    x, y = blobs()
    federation = fedbr.Federation.from_clients(
        [(x[y < 2], y[y < 2]), (x[y > 1], y[y > 1])], test=(x, y)
    )
    names = replace(federation, class_names=["", "_b", "$", r"$\frac$"])
    done = fedbr.diagnose(names, "mlp", sides, **SHORT)
    done.save(tmp_path, {label: logged()["FedBR"] for label in sides})
    assert drawn(tmp_path) == list(FIGURES)
    assert of_client(done.numbers, GLOBAL, 1) == done.numbers["global"]["clients"][1]
    assert of_client(done.numbers, "global model", 1) == done.numbers["methods"][1]["clients"][1]


def test_all_is_refused_before_anything_is_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    def trains(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(module, "centrally", trains)
    monkeypatch.setattr(module, "local_round", trains)
    net = fedbr.FedModel(nn.Linear(6, 3), 3, 4)
    net.classifier = Untouchable(3, 4)
    for sides, model, start, words in (
        ({"FedAvg": [], "Moon": [fedbr.Moon()]}, "mlp", "model", "builds another model"),
        ({"FedAvg": []}, net, "features", "has no reset_parameters"),
    ):
        with pytest.raises(fedbr.InputError, match=words):
            fedbr.diagnose(one_class_each(), model, sides, pretrain=1, start=start, **SHORT)  # type: ignore[arg-type]


class Untouchable(nn.Module):
    """A classifier that cannot be made fresh."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features, classes))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight


def test_numbers_are_there_whatever_happens_to_pictures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise MemoryError

    done = fedbr.diagnose(one_class_each(), "mlp", {"FedAvg": []}, **SHORT)
    monkeypatch.setattr("fedbr.bias.figures.draw", fails)
    with pytest.raises(MemoryError):
        done.save(tmp_path)
    assert drawn(tmp_path) == []
    (tmp_path / "file").write_text("mine")
    with pytest.raises(fedbr.InputError, match=r"cannot write there \(.*file is not a folder\)"):
        done.save(tmp_path / "file" / "inside")


def test_aggregated_is_the_mean_of_the_local_models(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def local_round(*arguments: object) -> object:
        seen.append(real(*arguments))  # type: ignore[arg-type]
        return seen[-1]

    real = module.local_round
    monkeypatch.setattr(module, "local_round", local_round)
    net = fedbr.FedModel(nn.Sequential(nn.Linear(6, 8), nn.Tanh()), 8, 4)
    done = fedbr.diagnose(
        one_class_each(), net, {"FedAvg": []}, lr=0.1, **SHORT | {"local_steps": 20}
    )
    models, _ = seen[0]
    net.set_weights({k: sum(m[k] for m in models) / len(models) for k in models[0]})
    right = (net.predict(done.view.x) == done.view.y).double()
    expected = np.mean([float(right[done.view.y == c].mean()) for c in range(4)])
    (found,) = done.numbers["methods"]
    assert found["accuracy_aggregated"] == pytest.approx(expected)
    assert expected not in [one["accuracy"] for one in found["clients"]]


def test_drift_of_one_step_is_the_gradient() -> None:
    """Every client has one sample, many times: all batches are the same."""
    x, y = blobs(classes=2, per_class=1)
    each = [(x[[c] * 9], y[[c] * 9]) for c in (0, 1)]
    federation = fedbr.Federation.from_clients(each, test=(x, y))
    net = fedbr.FedModel(nn.Sequential(nn.Linear(6, 5), nn.Tanh()), 5, 2).double()
    how = {"local_steps": 1, "lr": 0.5, "dtype": "float64", "samples": 2}
    drift = fedbr.diagnose(federation, net, {"FedAvg": []}, **how).numbers["methods"][0]["drift"]  # type: ignore[arg-type]
    grads = []
    for c in (0, 1):
        net.zero_grad()
        nn.functional.cross_entropy(
            net(torch.tensor(x[[c]])).logits, torch.tensor(y[[c]])
        ).backward()
        grads.append(torch.cat([p.grad.flatten() for p in net.parameters() if p.grad is not None]))
    assert drift["length"] == pytest.approx(0.5 * np.mean([float(g.norm()) for g in grads]))
    assert drift["cosine"] == pytest.approx(float(torch.cosine_similarity(*grads, dim=0)))
    assert drift["layers"]["classifier.bias"]["cosine"] == pytest.approx(
        -1
    )  # two classes: one up, one down


def test_own_test_sets_are_one() -> None:
    one, many = (
        fedbr.diagnose(
            one_class_each(own_tests=own), "mlp", {"FedAvg": []}, **SHORT | {"samples": 1000}
        )
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
    assert drawn(tmp_path) == [
        "features",
        "before-after",
        "predictions",
        "drift",
    ]  # without panels of X2


def test_how_little_was_seen() -> None:
    never, hardly, all_of_it = (
        {"unseen": unseen, "scarce": scarce}
        for unseen, scarce in (([1], False), ([1], True), ([], False))
    )
    assert kind([never, all_of_it]) == "never"
    assert kind([hardly, all_of_it]) == "hardly"
    assert kind([hardly, never]) == "never or hardly"
    assert kind([all_of_it]) == ""


def test_some_clients_have_everything() -> None:
    x, y = blobs(classes=2)
    federation = fedbr.Federation.from_clients([(x, y), (x[y == 0], y[y == 0])], test=(x, y))
    said = fedbr.diagnose(federation, "mlp", {"FedAvg": []}, **SHORT).sentences()[0]
    assert "has never seen, of which 1 of 2 clients have some, its model takes" in said


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
    keep = np.flatnonzero(
        (y != 2) | (np.arange(len(y)) % 10 == 0)
    )  # three samples of the last class
    federation = fedbr.Federation.from_clients([(x, y)], test=(x[keep], y[keep]))
    probe = balanced(federation, 1000, 0, torch.float32)
    assert torch.bincount(probe.y).tolist() == [10, 10, 3]
    assert (probe.per_class, probe.available) == ([3, 10], 63)
    assert torch.bincount(balanced(federation, 6, 0, torch.float32).y).tolist() == [2, 2, 2]


@pytest.mark.parametrize("start", ["features", "scratch"])
def test_where_clients_begin(start: str, monkeypatch: pytest.MonkeyPatch) -> None:
    federation = one_class_each()
    net = fedbr.FedModel(nn.Sequential(nn.Linear(6, 8), nn.Tanh()), 8, 4)
    trained = {k: v + torch.randn(v.shape) for k, v in net.weights().items()}
    monkeypatch.setattr(module, "centrally", lambda *_: trained)
    done = fedbr.diagnose(
        federation, net, {"FedAvg": []}, pretrain=1, start=start, lr=1e-9, **SHORT
    )  # type: ignore[arg-type]
    before, after, shift = (
        done.view.before,
        done.view.after["FedAvg"],
        side(done, "FedAvg")["shift"],
    )
    if start == "features":  # nothing is learnt: the same features, another classifier
        assert shift == pytest.approx(0, abs=1e-6)
        assert not torch.allclose(before.logits, after.logits, atol=0.1)
    else:
        with torch.no_grad():
            assert shift == pytest.approx(
                cosine_shift(before.features, net(done.view.x).features), abs=1e-6
            )
        assert shift > 0.1


def test_epochs_become_steps() -> None:
    done = fedbr.diagnose(
        one_class_each(), "mlp", {"FedAvg": []}, epochs=2, batch_size=16, samples=20
    )
    assert done.numbers["about"]["local_steps"] == 2 * 3  # 40 samples in batches of 16


def test_workers_change_nothing() -> None:
    sides = {"FedBR": [fedbr.FedBR(mean_of=2)]}
    one, two = (
        fedbr.diagnose(one_class_each(), "mlp", sides, workers=n, **SHORT).numbers for n in (1, 2)
    )
    assert one["methods"] == two["methods"]


def test_the_components_share_all_else() -> None:
    sides = before_and_after(fedbr.FedBR(**TOY))  # type: ignore[arg-type]
    assert sides["FedAvg"] == []
    assert [
        m.components for m in (sides["Component 1"][0], sides["Component 2"][0], sides["FedBR"][0])
    ] == [
        1,
        2,
        "both",
    ]  # type: ignore[attr-defined]
    assert all(variant[0].mean_of == 2 for label, variant in sides.items() if label != "FedAvg")  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"clients": 0}, "diagnose.clients = 0"),
        ({"client": 9}, "client = 9: there are clients 0 to 3"),
        ({"start": "nowhere"}, "diagnose.start = 'nowhere'"),
        ({"start": "scratch"}, "add pretrain epochs"),
        ({"methods": []}, "methods: wants lists of methods by label"),
        ({"methods": {"FedBR": fedbr.FedBR()}}, "methods['FedBR'] = "),
        ({"methods": {"": []}}, "methods: '' is no label"),
        ({"local_step": 5}, "did you mean 'local_steps'?"),
        ({"widht": 1}, "did you mean 'width'?"),
        ({"methods": {"Moon": [fedbr.Moon()]}}, "moon: builds another model"),
        ({"workers": 0}, "workers = 0"),
        ({"model": fedbr.FedModel(nn.Linear(6, 3), 3, 4), "ephochs": 2}, "did you mean 'epochs'?"),
    ],
)
def test_wrong_input_is_one_line(arguments: dict[str, object], words: str) -> None:
    with pytest.raises(fedbr.InputError) as error:
        fedbr.diagnose(
            one_class_each(), **{"model": "mlp", "methods": {"FedAvg": []}} | SHORT | arguments
        )  # type: ignore[arg-type]
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_wrong_share() -> None:
    with pytest.raises(fedbr.InputError, match=r"share = 0.6"):
        two_halves(one_class_each(), 0.6)
