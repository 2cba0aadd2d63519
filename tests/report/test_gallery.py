"""The picture of a split: what it shows is what the clients have."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

import fedbr
from fedbr.core.samples import Augment
from fedbr.data import DataOptions, load
from fedbr.report import canvas, gallery

OWN = [(0, 0, 0, 2), (1, 1), (2,) * 12]  # classes of three clients' samples


def federation(
    own: list[tuple[int, ...]] = OWN, shape: tuple[int, ...] = (1, 6, 6)
) -> fedbr.Federation:
    """Every client's samples are a little brighter than 10 times its number, and no two are the
    same.
    """
    pairs = [
        (np.stack([np.full(shape, 10 * i + j / 100 + 1) for j in range(len(y))]), np.array(y))
        for i, y in enumerate(own)
    ]
    return fedbr.Federation.from_clients(pairs, test=pairs[0])


def named(clients: int) -> list[str]:
    return [f"client {i}" for i in range(clients)]


def test_the_numbers_are_those_of_the_clients() -> None:
    counts = gallery.counts(federation(), named(3))
    assert counts.table.tolist() == [[3, 0, 1], [0, 2, 0], [0, 0, 12]]
    assert counts.sizes == [4, 2, 12]
    assert counts.effective == pytest.approx(
        [np.exp(-0.75 * np.log(0.75) - 0.25 * np.log(0.25)), 1, 1], abs=1e-4
    )
    assert (counts.clients, counts.classes) == (named(3), ["0", "1", "2"])
    words = replace(federation(), class_names=["cat", "dog", "a bird that has a very long name"])
    assert gallery.counts(words, named(3)).classes == ["cat", "dog", "a bird that has a very l…"]


def test_samples_and_pseudo_samples_are_of_the_client_of_their_row() -> None:
    shown = federation()
    public = torch.rand(20, 1, 6, 6, dtype=torch.float64) + 100
    strips = gallery.samples(
        replace(shown, proxy=replace(shown.train.samples, x=public, y=torch.zeros(20))), 10
    )
    assert [len(s.seen) for s in strips] == [4, 2, 8]
    assert [len(s.means) for s in strips] == [0, 0, 2]  # fewer than ten samples hide nothing
    assert [len(s.mixtures) for s in strips] == [2, 2, 2]
    for client, strip in enumerate(strips):
        for x in (strip.seen, strip.means, 2 * strip.mixtures - 100):
            assert all(10 * client + 1 <= float(v) < 10 * client + 3 for v in x.flatten())
        assert len({image.numpy().tobytes() for image in strip.seen}) == len(strip.seen)
    assert [len(s.mixtures) for s in gallery.samples(shown, 10)] == [0, 0, 0]
    assert len(gallery.samples(federation([(0, 1)] * 50), 10)) == 10
    assert gallery.samples(federation(shape=(5,)), 10) == []


def test_samples_are_augmented_as_the_model_sees_them() -> None:
    plain = federation()
    assert all(bool((s.seen > 0).all()) for s in gallery.samples(plain, 10))
    samples = replace(plain.train.samples, augment=Augment(pad=3, flip=True))
    moved = replace(plain, train=replace(plain.train, samples=samples))
    edges = [bool((image == 0).any()) for s in gallery.samples(moved, 10) for image in s.seen]
    assert sum(edges) > 10  # of 14: moved, and zeros moved in


def test_the_title_has_every_parameter() -> None:
    digits = load(DataOptions(clients=3, partition="iid"), 0)
    for options, words in (
        ({"partition": "lda", "alpha": 0.5}, "digits: 3 clients, lda (alpha 0.5), seed 7"),
        ({"partition": "lda-prior"}, "lda-prior (alpha 0.1)"),
        ({"partition": "quantity", "alpha": 2.0}, "quantity (alpha 2)"),
        ({"partition": "shards", "shards_per_client": 3}, "shards (3 per client), seed"),
        ({"partition": "iid", "holdout": 0.25}, "iid, 25% held out for tuning"),
        (
            {"name": "pacs", "unseen": "sketch", "partition": "domains"},
            "pacs: 3 clients, domains, sketch unseen",
        ),
        ({"name": "npz", "path": "a/words.npz", "partition": "iid"}, "words.npz: 3 clients, iid"),
    ):
        assert words in gallery.title(DataOptions(**options), digits, 7)
    spun = replace(digits, mix=torch.ones(3, 1))
    assert "angles from Dir(0.3)" in gallery.title(
        DataOptions(name="rotated-cifar10", rotation=0.3), spun, 0
    )


def test_labels_name_clients_and_angles() -> None:
    shown = load(DataOptions(clients=3, partition="iid"), 0)
    assert gallery.labels(DataOptions(), shown) == named(3)
    turned = ["client 0, 0°", "client 1, 15°", "client 2, 30°"]
    assert gallery.labels(DataOptions(name="rotated-digits"), shown) == turned
    mix = torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.5, 0.5]])
    spun = gallery.labels(DataOptions(name="rotated-cifar10"), replace(shown, mix=mix))
    assert spun[:2] == ["client 0, 90 % at 0°", "client 1, 80 % at 15°"]
    assert gallery.labels(DataOptions(), replace(shown, client_names=["a", "b", "c"])) == [
        "a",
        "b",
        "c",
    ]


def test_the_area_of_a_bubble_is_the_count() -> None:
    axes = Figure().add_subplot()
    counts = gallery.counts(federation(), named(3))
    canvas._bubbles(axes, counts, 0.5)
    bubbles = axes.collections[2]
    assert (np.asarray(bubbles.get_sizes()) / bubbles.get_sizes()[0]).tolist() == pytest.approx(
        [1, 1 / 3, 2 / 3, 4]
    )
    where = np.asarray(bubbles.get_offsets()) / (canvas.COLUMN, 0.5) - 0.5
    assert where.round().astype(int).tolist() == [[0, 0], [2, 0], [1, 1], [2, 2]]
    written = [text.get_text() for text in axes.texts]
    assert written[-4:] == ["1", "2", "10", "samples"]  # and the sizes beside them
    sizes = [float(c.get_sizes()[0]) for c in axes.collections[3:]]
    assert sizes == pytest.approx([bubbles.get_sizes()[0] * n / 3 for n in (1, 2, 10)])


def test_a_heat_map_has_the_counts() -> None:
    axes = Figure().add_subplot()
    counts = gallery.counts(federation(), named(3))
    canvas._heat(axes, counts, 0.5)
    assert np.array_equal(axes.images[0].get_array(), counts.table)
    many = np.arange(2200).reshape(1100, 2)
    table, each = canvas.grouped(many)
    assert each == 3
    assert np.allclose(table[0], many[:3].mean(axis=0))
    assert np.allclose(table[-1], many[1098:].mean(axis=0))


def test_scales_are_whole_numbers() -> None:
    assert [canvas.legend(n) for n in (1, 8, 22, 5958)] == [
        [1],
        [1, 8],
        [1, 4, 20],
        [200, 1000, 5000],
    ]
    assert [canvas.ticks(n) for n in (1, 3, 60)] == [[0, 1], [0, 1, 2, 3], [0, 15, 30, 45, 60]]


def written(path: Path) -> list[str]:
    """Return the texts of an SVG: matplotlib notes each beside its letters."""
    return re.findall(r"<!-- (.*?) -->", path.read_text("utf-8"))


@pytest.mark.parametrize(
    ("shown", "words"),
    [
        (
            federation(),
            [
                "client 1",
                "12",
                "1.8",
                "RSM of 10",
                "fewer than 10",
                "samples as the model sees them",
            ],
        ),
        (federation([(0, 1)] * 12), ["client 11", "clients 0 to 9", "of 12"]),
        (
            federation([(0,) * (i + 1) for i in range(41)]),
            ["clients 0 to 9", "of 41", "41", "client 9", "RSM of 10"],
        ),
        (federation([tuple(range(30))] * 2), ["class", "samples", "30.0"]),
    ],
)
def test_what_is_written_in_the_picture(
    tmp_path: Path, shown: fedbr.Federation, words: list[str]
) -> None:
    clients = len(shown.train.parts)
    canvas.picture(shown, tmp_path / "a.svg", "a $title$ of mine", named(clients))
    texts = written(tmp_path / "a.svg")
    assert "a $title$ of mine" in texts
    assert [word for word in words if word not in texts] == []
    assert ("client 10" in texts) == (11 <= clients <= canvas.BUBBLES[0])
    canvas.picture(shown, tmp_path / "a.png", "title", named(clients))
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_samples_that_are_no_images_are_left_out(tmp_path: Path) -> None:
    canvas.picture(federation(shape=(5,)), tmp_path / "a.svg", "title", named(3))
    assert "client 2" in written(tmp_path / "a.svg")
    assert not [
        text for text in written(tmp_path / "a.svg") if "RSM" in text or "model sees" in text
    ]
