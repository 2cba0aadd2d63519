"""What the picture of a split shows: what the clients have."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import fedbr
from fedbr.core.samples import Augment
from fedbr.data import DataOptions, load
from fedbr.report import gallery

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
    counts = gallery.count_samples(federation(), named(3))
    assert counts.table.tolist() == [[3, 0, 1], [0, 2, 0], [0, 0, 12]]
    assert counts.sizes == [4, 2, 12]
    assert counts.effective == pytest.approx(
        [np.exp(-0.75 * np.log(0.75) - 0.25 * np.log(0.25)), 1, 1], abs=1e-4
    )
    assert (counts.clients, counts.classes) == (named(3), ["0", "1", "2"])
    words = replace(federation(), class_names=["cat", "dog", "a bird that has a very long name"])
    assert gallery.count_samples(words, named(3)).classes == [
        "cat",
        "dog",
        "a bird that has a very l…",
    ]


def test_samples_and_pseudo_samples_are_of_the_client_of_their_row() -> None:
    shown = federation()
    public = torch.rand(20, 1, 6, 6, dtype=torch.float64) + 100
    strips = gallery.choose_samples(
        replace(shown, proxy=replace(shown.train.samples, x=public, y=torch.zeros(20))), 10
    )
    assert [len(s.samples) for s in strips] == [4, 2, 8]
    assert [len(s.means) for s in strips] == [0, 0, 2]  # fewer than ten samples hide nothing
    assert [len(s.mixtures) for s in strips] == [2, 2, 2]
    for client, strip in enumerate(strips):
        for x in (strip.samples, strip.means, 2 * strip.mixtures - 100):
            assert all(10 * client + 1 <= float(v) < 10 * client + 3 for v in x.flatten())
        assert len({image.numpy().tobytes() for image in strip.samples}) == len(strip.samples)
    assert [len(s.mixtures) for s in gallery.choose_samples(shown, 10)] == [0, 0, 0]
    assert len(gallery.choose_samples(federation([(0, 1)] * 50), 10)) == 10
    assert gallery.choose_samples(federation(shape=(5,)), 10) == []


def test_samples_are_augmented_as_the_model_sees_them() -> None:
    plain = federation()
    assert all(bool((s.samples > 0).all()) for s in gallery.choose_samples(plain, 10))
    samples = replace(plain.train.samples, augment=Augment(pad=3, flip=True))
    moved = replace(plain, train=replace(plain.train, samples=samples))
    edges = [
        bool((image == 0).any()) for s in gallery.choose_samples(moved, 10) for image in s.samples
    ]
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
    assert gallery.label_clients(DataOptions(), shown) == named(3)
    turned = ["client 0, 0°", "client 1, 15°", "client 2, 30°"]
    assert gallery.label_clients(DataOptions(name="rotated-digits"), shown) == turned
    mix = torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.5, 0.5]])
    spun = gallery.label_clients(DataOptions(name="rotated-cifar10"), replace(shown, mix=mix))
    assert spun[:2] == ["client 0, 90 % at 0°", "client 1, 80 % at 15°"]
    assert gallery.label_clients(DataOptions(), replace(shown, client_names=["a", "b", "c"])) == [
        "a",
        "b",
        "c",
    ]
