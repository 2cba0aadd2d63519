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
from fedbr.bias import Options, before_and_after, drift_figures, outcome, study, two_halves
from fedbr.bias.bar_figures import GLOBAL, model_of, with_title
from fedbr.bias.diagnosis import Diagnosis
from fedbr.bias.features import cosine_shift
from fedbr.bias.folder import TOY, from_toy
from fedbr.bias.sample import choose_clients, draw_balanced
from fedbr.bias.study import examine
from fedbr.core.records import Drift, LocalBias, RoundRecord
from fedbr.report.local_models import Rounds
from fedbr.report.style import figure_style
from fedbr.run.diagnosis import FIGURES, read
from fedbr.util.errors import RunError

SHORT = {"local_steps": 5, "batch_size": 8, "samples": 40}


def one_class_each(clients: int = 4, own_tests: bool = False) -> fedbr.Federation:
    x, y = blobs(classes=clients)
    each = [(x[y == c], y[y == c]) for c in range(clients)]
    return fedbr.Federation.from_clients(each, test=each if own_tests else (x, y))


def mean_of(diagnosis: Diagnosis, label: str) -> dict[str, float]:
    variants = {variant["label"]: variant for variant in diagnosis.numbers["methods"]}
    mean: dict[str, float] = variants[label]["mean"]
    return mean


def toy(model: list[str], seed: int) -> Diagnosis:
    case = from_toy(0.0, model, [], seed)
    variants = {label: methods for label, methods in case.variants.items() if label != "FedBR"}
    return examine(replace(case, variants=variants), Options(pretrain=5, epochs=10))


def claims(diagnosis: Diagnosis) -> None:
    avg, first, second = (
        mean_of(diagnosis, label) for label in ("FedAvg", "Component 1", "Component 2")
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
    mean = mean_of(done, "FedAvg")
    assert mean["shift"] == pytest.approx(0, abs=1e-6)
    assert mean["cka"] == pytest.approx(1)
    assert mean["accuracy"] == done.numbers["global"]["mean"]["accuracy"]


def test_a_folder_of_figures_and_numbers(tmp_path: Path) -> None:
    assert read(tmp_path) is None
    variants = {"FedAvg": [], "FedBR": [fedbr.FedBR(mean_of=2, hidden=8, width=8)]}
    done = fedbr.diagnose(one_class_each(), "mlp", variants, pretrain=1, **SHORT)
    where = done.save(tmp_path, logged())
    saved = read(tmp_path)
    assert saved is not None
    numbers = json.loads((where / "diagnosis.json").read_text())
    assert saved.record.to_json() == numbers == done.numbers
    assert [picture.name for picture in saved.pictures] == list(FIGURES)
    for picture in saved.pictures:
        assert picture.path.stat().st_size > 1000
        assert picture.path.with_suffix(".svg").exists()
    labels = [m["label"] for m in numbers["methods"]]
    assert labels == list(variants)
    header, rows = done.table()
    assert header == ["", "global", *labels]
    assert all(len(row) == len(header) for row in rows)
    assert "never seen" in done.sentences()[0]
    keys = set(numbers["methods"][0]["clients"][0]) - {"client"}
    defined = " ".join([*numbers["metrics"], *numbers["metrics"].values()])
    assert all(key in defined for key in keys)
    assert "without the pictures" in numbers["metrics"]["seconds"]
    words = [row[0] for row in rows]
    assert "X1 | X2 by nearest mean %" in words
    groups = f"{mean_of(done, 'FedBR')['centroid_groups'] * 100:.1f}"
    assert rows[words.index("X1 | X2 by nearest mean %")][3] == groups


def logged(cosine: float | None = 0.01) -> Rounds:
    """What metrics.bias_every leaves: of two seeds, whose updates are as alike as noise is."""
    layer = Drift(1.0, 0.9, cosine)
    bias = LocalBias(0.3, 0.5, 0.7, 0.9, 0.5, layer, {"a.weight": layer})
    records = [RoundRecord(round=r, clients=(0, 1), loss=1.0, bias=bias) for r in (5, 10)]
    return {"FedAvg": [records, records[:1]], "FedBR": [records]}


def test_noise_does_not_look_like_a_trend() -> None:
    _, share, cosine, distance = drift_figures.by_round(logged()).axes
    assert share.get_ylim()[1] - share.get_ylim()[0] >= 20
    assert cosine.get_ylim()[1] - cosine.get_ylim()[0] == pytest.approx(0.5)
    assert distance.get_ylim()[1] - distance.get_ylim()[0] == pytest.approx(0.5)
    maps = drift_figures.by_layer(logged())
    assert maps is not None
    assert [image.get_clim() for axes in maps.axes for image in axes.images] == [
        (-0.5, 0.5)
    ] * 2 + [(0, 0.9)] * 2
    assert drift_figures.by_layer(logged(cosine=None)) is None


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
    assert mean_of(done, "Alone")["shift"] > mean_of(done, "FedProx")["shift"] > 0


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
    saved = read(folder)
    assert saved is not None
    return [picture.name for picture in saved.pictures]


def test_titles_are_as_wide_as_their_figure() -> None:
    with figure_style(figure_titlesize=11):
        figure = with_title(
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
    mean = mean_of(done, "FedAvg")
    assert (mean["shift"], mean["cka"]) == (0, None)
    with pytest.warns(RuntimeWarning, match="the same features: there are no maps"):
        done.save(tmp_path)
    assert drawn(tmp_path) == ["classifier", "predictions", "drift"]


def test_a_variant_that_diverges_leaves_the_others(tmp_path: Path) -> None:
    variants = {"Prox": [fedbr.FedProx(mu=1e30)], "FedAvg": []}
    done = fedbr.diagnose(one_class_each(), "mlp", variants, **SHORT)
    lost, *others = done.numbers["methods"]
    assert lost["diverged"].startswith("round 1, client 0: ")
    assert all(one["diverged"] is None and one["mean"]["shift"] > 0 for one in others)
    assert done.table()[1][0][2] == "diverged"
    assert done.sentences()[0].startswith("Prox: diverged (round 1, client 0")
    assert done.sentences()[1].startswith("FedAvg: of samples")
    done.save(tmp_path)
    assert drawn(tmp_path) == list(FIGURES)[:5]
    with pytest.raises(RunError, match=r"every variant diverged \(FedAvg: round 1, client 0"):
        fedbr.diagnose(one_class_each(), "mlp", {"FedAvg": []}, lr=1e30, **SHORT)


def test_labels_of_all_kinds(tmp_path: Path) -> None:
    variants = {r"_a $\frac$ b": [], "global model": [fedbr.FedProx()]}
    x, y = blobs()
    federation = fedbr.Federation.from_clients(
        [(x[y < 2], y[y < 2]), (x[y > 1], y[y > 1])], test=(x, y)
    )
    names = replace(federation, class_names=["", "_b", "$", r"$\frac$"])
    done = fedbr.diagnose(names, "mlp", variants, **SHORT)
    done.save(tmp_path, {label: logged()["FedBR"] for label in variants})
    assert drawn(tmp_path) == list(FIGURES)
    assert model_of(done.record, GLOBAL, 1) is done.record.global_model.clients[1]
    assert model_of(done.record, "global model", 1) is done.record.variants[1].models.clients[1]


def test_all_is_refused_before_anything_is_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    def trains(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(study, "train_centrally", trains)
    monkeypatch.setattr(outcome, "play_from", trains)
    net = fedbr.FedModel(nn.Linear(6, 3), 3, 4)
    net.classifier = Untouchable(3, 4)
    for variants, model, start, words in (
        ({"FedAvg": [], "Moon": [fedbr.Moon()]}, "mlp", "model", "builds another model"),
        ({"FedAvg": []}, net, "features", "has no reset_parameters"),
    ):
        with pytest.raises(fedbr.InputError, match=words):
            fedbr.diagnose(one_class_each(), model, variants, pretrain=1, start=start, **SHORT)  # type: ignore[arg-type]


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
    played = []

    def play_from(*arguments: object) -> object:
        played.append(real(*arguments))  # type: ignore[arg-type]
        return played[-1]

    real = outcome.play_from
    monkeypatch.setattr(outcome, "play_from", play_from)
    net = fedbr.FedModel(nn.Sequential(nn.Linear(6, 8), nn.Tanh()), 8, 4)
    done = fedbr.diagnose(
        one_class_each(), net, {"FedAvg": []}, lr=0.1, **SHORT | {"local_steps": 20}
    )
    models = played[0].local
    net.set_weights({k: sum(m[k] for m in models) / len(models) for k in models[0]})
    right = (net.predict(done.view.x) == done.view.y).double()
    expected = np.mean([float(right[done.view.y == c].mean()) for c in range(4)])
    (variant,) = done.record.variants
    assert variant.accuracy_aggregated == pytest.approx(expected)
    assert expected not in [model.measures.accuracy for model in variant.models.clients]


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
    assert mean_of(done, "FedAvg")["share_present_unseen"] is None
    assert "no unseen data" in done.sentences()[0]
    done.save(tmp_path)
    assert drawn(tmp_path) == [
        "features",
        "before-after",
        "predictions",
        "drift",
    ]  # without panels of X2


def test_some_clients_have_everything() -> None:
    x, y = blobs(classes=2)
    federation = fedbr.Federation.from_clients([(x, y), (x[y == 0], y[y == 0])], test=(x, y))
    sentence = fedbr.diagnose(federation, "mlp", {"FedAvg": []}, **SHORT).sentences()[0]
    assert "has never seen, of which 1 of 2 clients have some, its model takes" in sentence


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
    probe = draw_balanced(federation, 1000, 0, torch.float32)
    assert torch.bincount(probe.y).tolist() == [10, 10, 3]
    assert (probe.per_class, probe.available) == ((3, 10), 63)
    assert torch.bincount(draw_balanced(federation, 6, 0, torch.float32).y).tolist() == [2, 2, 2]


@pytest.mark.parametrize("start", ["features", "scratch"])
def test_where_clients_begin(start: str, monkeypatch: pytest.MonkeyPatch) -> None:
    federation = one_class_each()
    net = fedbr.FedModel(nn.Sequential(nn.Linear(6, 8), nn.Tanh()), 8, 4)
    trained = {k: v + torch.randn(v.shape) for k, v in net.weights().items()}
    monkeypatch.setattr(study, "train_centrally", lambda *_: trained)
    done = fedbr.diagnose(
        federation, net, {"FedAvg": []}, pretrain=1, start=start, lr=1e-9, **SHORT
    )  # type: ignore[arg-type]
    before, after, shift = (
        done.view.before,
        done.view.after["FedAvg"],
        mean_of(done, "FedAvg")["shift"],
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
    variants = {"FedBR": [fedbr.FedBR(mean_of=2)]}
    one, two = (
        fedbr.diagnose(one_class_each(), "mlp", variants, workers=n, **SHORT).numbers
        for n in (1, 2)
    )
    assert one["methods"] == two["methods"]


def test_the_components_share_all_else() -> None:
    variants = before_and_after(fedbr.FedBR(**TOY))  # type: ignore[arg-type]
    assert variants["FedAvg"] == []
    assert [
        m.components
        for m in (variants["Component 1"][0], variants["Component 2"][0], variants["FedBR"][0])
    ] == [
        1,
        2,
        "both",
    ]  # type: ignore[attr-defined]
    assert all(variant[0].mean_of == 2 for label, variant in variants.items() if label != "FedAvg")  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"clients": 0}, "diagnose.clients = 0"),
        ({"client": 9}, "client = 9: there are clients 0 to 3"),
        ({"start": "nowhere"}, "diagnose.start = 'nowhere'"),
        ({"start": "scratch"}, "add pretrain epochs"),
        ({"methods": []}, "methods: expected lists of methods by label"),
        ({"methods": {"FedBR": fedbr.FedBR()}}, "methods['FedBR'] = "),
        ({"methods": {"": []}}, "methods: expected a label, not ''"),
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
