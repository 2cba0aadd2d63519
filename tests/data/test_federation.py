"""Federations: nothing lost, nothing leaked, wrong arrays refused in words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedbr
from conftest import blobs
from fedbr.data import DataOptions, proxy
from fedbr.data import load as load_options
from fedbr.data.sources import digits
from fedbr.data.transforms import rotate


def load(
    name: str, clients: int, partition: str, proxy_name: str = "", seed: int = 0
) -> fedbr.Federation:
    return load_options(
        DataOptions(name=name, clients=clients, partition=partition, proxy=proxy_name), seed
    )


def test_digits_are_all_there_and_test_data_are_never_trained_on() -> None:
    source = digits.load()
    assert len(source.train) + len(source.test) == 1797
    counts = torch.bincount(source.test.y)
    assert counts.min() >= 35
    assert counts.max() <= 37  # stratified
    federation = load("digits", 10, "lda-prior", seed=4)
    trained = np.concatenate(list(federation.train.parts.values()))
    assert sorted(trained) == list(range(len(source.train)))
    seen = federation.train.samples.see(slice(0, 100), torch.float32)
    assert seen.min() == 0
    assert seen.max() == 1


def test_variants_share_a_split_and_seeds_do_not() -> None:
    hashes = [load("digits", 10, "lda", seed=seed).census.split.hash for seed in (0, 0, 1)]
    assert hashes[0] == hashes[1] != hashes[2]


def test_rotated_digits_turn_each_client_and_its_test_set() -> None:
    plain, turned = (load(name, 10, "iid") for name in ("digits", "rotated-digits"))
    assert turned.census.split == plain.census.split
    assert len(turned.tests) == 10
    for client, part in plain.train.parts.items():
        index = torch.from_numpy(part)
        assert torch.equal(
            turned.train.samples.x[index], rotate(plain.train.samples.x[index], 15.0 * client)
        )
        assert torch.equal(turned.tests[client].x, rotate(plain.tests[0].x, 15.0 * client))
        assert torch.equal(turned.tests[client].y, plain.tests[0].y)


def test_any_number_of_clients() -> None:
    for name in ("digits", "rotated-digits"):
        for clients in (1, 3, 100):
            assert len(load(name, clients, "lda-prior").train.parts) == clients


@pytest.mark.parametrize("name", sorted(proxy.PROXIES))
def test_public_samples_look_like_the_data(name: str) -> None:
    federation = load("digits", 10, "iid", name)
    assert federation.proxy is not None
    seen = federation.proxy.see(slice(None), torch.float32)
    assert seen.shape == (proxy.COUNT, 1, 8, 8)
    assert seen.min() >= 0
    assert 0.3 < seen.max() <= 1.0001
    assert seen.std(dim=0).min() > 0.05
    assert fedbr.train(
        federation, "mlp", [fedbr.FedBR(pseudo="mixture")], rounds=1, local_steps=2
    ).accuracy


def test_seeing_samples_leaves_them_as_they_are() -> None:
    federation = load("digits", 10, "iid", "noise")
    for samples in (federation.proxy, federation.train.samples, federation.tests[0]):
        assert samples is not None
        for dtype in (torch.float32, torch.float64):
            first, again = (samples.see(slice(None), dtype) for _ in range(2))
            assert torch.equal(first, again)


def test_arrays_of_users_numpy_or_torch_bytes_or_floats() -> None:
    x, y = blobs()
    for xs, ys in (
        (x, y),
        (torch.from_numpy(x), torch.from_numpy(y)),
        (x.astype(np.float32), y.astype(np.int32)),
    ):
        federation = fedbr.Federation.from_arrays(xs, ys, xs, ys, clients=3, partition="iid")
        assert federation.num_classes == 4
        assert sum(federation.sizes) == len(y)
    images = np.random.default_rng(0).integers(256, size=(40, 1, 4, 4), dtype=np.uint8)
    federation = fedbr.Federation.from_arrays(
        images, y[:40], images, y[:40], clients=2, partition="iid"
    )
    assert federation.train.samples.x.dtype == torch.uint8  # bytes stay bytes until the batch
    assert federation.train.samples.see(slice(None), torch.float32).max() <= 1


@pytest.mark.filterwarnings("ignore:labels")
def test_clients_keep_what_is_theirs() -> None:
    x, y = blobs()
    federation = fedbr.Federation.from_clients(
        [(x[:7], y[:7]), (x[7:9], y[7:9])], test=[(x, y), (x[:5], y[:5])]
    )
    own, classes = federation.train.of(1, torch.float64)
    assert np.array_equal(own.numpy(), x[7:9])
    assert np.array_equal(classes.numpy(), y[7:9])
    assert federation.sizes == [7, 2]
    assert len(federation.tests) == 2


X, Y = blobs()
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"y": Y[:-1]}, "one label for each"),
    ({"y": Y - 1}, "whole numbers from 0"),
    ({"y": Y.astype(str)}, "whole numbers from 0"),
    ({"y": Y * 10**7}, "number the classes from 0"),
    ({"x": Y[:, None]}, "bytes (pixels) or floats"),
    ({"clients": 2.5}, "data.clients = 2.5"),
    ({"proxy": (X * 0).astype(np.uint8)}, "proxy"),
    ({"y": Y.astype(float)}, "whole numbers from 0"),
    ({"x": X[:0], "y": Y[:0]}, "at least one"),
    ({"x": np.where(X > 1, np.nan, X)}, "not finite"),
    ({"clients": 0}, "data.clients = 0"),
    ({"clients": 161}, "data.clients = 161"),
    ({"alpha": 0.0}, "data.alpha = 0"),
    ({"partition": "ldaa"}, "'lda'"),
    ({"proxy": X[:, :2]}, "proxy"),
    ({"x_test": X[:, :2]}, "x_test"),
    ({"x": [[1.0], [1.0, 2.0]]}, "x: not an array of numbers"),
    ({"x": [None] * 160}, "x: samples of type object"),
    ({"x": torch.tensor(1.0)}, "x: shape ()"),
    ({"x": X[:, 0]}, "x: shape (160,)"),
    ({"x": X[:, :0]}, "x: shape (160, 0)"),
    ({"x": X.astype(">i4")}, "x: samples of type >i4; expected bytes (pixels) or floats"),
    ({"x": torch.from_numpy(Y)[:, None]}, "x: samples of type torch.int64"),
    ({"y": Y[:, None]}, "y: type int64, shape (160, 1)"),
    ({"y": torch.tensor(1)}, "y: type int64, shape ()"),
    ({"y": torch.from_numpy(Y).double().requires_grad_()}, "y: type float64"),
    ({"y": [[0], [0, 1]]}, "y: not an array of numbers"),
    ({"y": None}, "y: type object"),
    ({"y": Y - 1}, "y: has -1;"),
    ({"y_test": Y.astype(str)}, "y_test: type <U"),
    ({"clients": True}, "data.clients = True"),
    ({"partition": "shards", "shards_per_client": 1.5}, "data.shards_per_client = 1.5"),
    ({"proxy": [[1.0], [1.0, 2.0]]}, "proxy: not an array"),
]


@pytest.mark.parametrize(("wrong", "words"), REFUSED, ids=[words for _, words in REFUSED])
def test_wrong_arrays_are_refused(wrong: dict[str, Any], words: str) -> None:
    right = {"x": X, "y": Y, "x_test": X, "y_test": Y, "clients": 4, "partition": "lda"}
    with pytest.raises(fedbr.InputError) as caught:
        fedbr.Federation.from_arrays(**right | wrong)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_arrays_in_other_memory_are_taken_as_they_are() -> None:
    plain = fedbr.Federation.from_arrays(X, Y, X, Y, clients=3, partition="iid")
    for xs in (
        X.astype(">f8"),
        X.astype(np.longdouble),
        X[::-1][::-1],
        torch.from_numpy(X).requires_grad_(),
        X.tolist(),
    ):
        other = fedbr.Federation.from_arrays(xs, Y.astype(">i2"), X, Y, clients=3, partition="iid")
        assert other.content == plain.content
    half = torch.from_numpy(X).bfloat16()
    assert fedbr.Federation.from_arrays(half, Y, half, Y, clients=2, partition="iid").content


@pytest.mark.filterwarnings("ignore:labels")
def test_clients_and_tests_in_any_wrapping() -> None:
    pairs = [(X[:7], Y[:7]), (X[7:9], Y[7:9])]
    tests = [(X, Y), (X[:5], Y[:5])]
    plain = fedbr.Federation.from_clients(pairs, test=tests)
    for test in (tuple(tests), iter(tests)):
        other = fedbr.Federation.from_clients((pair for pair in pairs), test=test)
        assert (other.content, other.sizes) == (plain.content, plain.sizes)
        assert [len(t) for t in other.tests] == [160, 5]
    assert (
        len(fedbr.Federation.from_clients(tuple(pairs), test=(X.tolist(), Y.tolist())).tests) == 1
    )


def test_test_sets_that_stand_there_twice_are_looked_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    federation = load("digits", 10, "iid")
    looked = []
    whole = np.isin
    monkeypatch.setattr(np, "isin", lambda *a: looked.append(a) or whole(*a))
    replace(federation, tests=list(federation.tests) * 10)
    assert len(looked) == 1


@pytest.mark.parametrize("form", [np.asarray, torch.from_numpy])
def test_images_get_their_channels_first_wherever_they_come_from(
    form: Callable[[Any], Any], tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    y = np.arange(40) % 4
    shapes = {
        (6, 5, 3): (3, 6, 5),
        (6, 5, 1): (1, 6, 5),
        (6, 5): (1, 6, 5),
        (3, 6, 5): (3, 6, 5),
        (1, 6, 5): (1, 6, 5),
        (3, 5, 3): (3, 5, 3),
        (1, 5, 1): (1, 5, 1),
        (2, 6, 5): (2, 6, 5),
        (4, 6, 5): (4, 6, 5),
        (4, 4, 4): (4, 4, 4),
        (2, 4, 4): (2, 4, 4),
        (7,): (7,),
    }
    for shape, wanted in shapes.items():
        x = rng.integers(0, 256, (40, *shape), dtype=np.uint8)
        moved = len(shape) == 3 and wanted != shape
        expected = torch.from_numpy(np.moveaxis(x, -1, 1).copy() if moved else x).view(40, *wanted)
        arrays = fedbr.Federation.from_arrays(
            form(x), y, form(x), y, clients=2, partition="iid", proxy=form(x)
        )
        clients = fedbr.Federation.from_clients([(form(x), y)], test=(form(x), y))
        np.savez(tmp_path / "a.npz", x=x, y=y, x_test=x, y_test=y)
        npz = load_options(DataOptions(name="npz", path=str(tmp_path / "a.npz"), clients=2), 0)
        for federation in (arrays, clients, npz):
            for samples in (federation.train.samples, federation.tests[0]):
                assert torch.equal(samples.x, expected), shape
        assert torch.equal(arrays.proxy.x, expected)


def test_floats_get_their_channels_first_but_no_channel_of_their_own() -> None:
    x, y = np.random.default_rng(0).normal(size=(40, 6, 5, 3)), np.arange(40) % 4
    federation = fedbr.Federation.from_arrays(x, y, x, y, clients=2)
    assert torch.equal(federation.train.samples.x, torch.from_numpy(x).permute(0, 3, 1, 2))
    grey = fedbr.Federation.from_arrays(x[..., 0], y, x[..., 0], y, clients=2)
    assert grey.shape == (6, 5)


@pytest.mark.parametrize(("channels", "words"), [(4, "x[..., :3]"), (2, "x[..., :1]")])
def test_images_with_alpha_are_refused(channels: int, words: str) -> None:
    x, y = np.zeros((40, 8, 9, channels), np.uint8), np.arange(40) % 4
    with pytest.raises(fedbr.InputError) as caught:
        fedbr.Federation.from_arrays(x, y, x, y)
    assert (
        f"x: images of shape (8, 9, {channels}); expected 1 or 3 channels: without alpha, {words}"
        in str(caught.value)
    )
    fedbr.Federation.from_arrays(x / 1.0, y, x / 1.0, y)  # floats may be anything


def test_wrong_clients_are_refused() -> None:
    for test in (None, 3, X, (X, Y, X), [(X, Y, X)]):
        with pytest.raises(
            fedbr.InputError, match=r"^test: \w+ where a pair \(x, y\) is expected$"
        ):
            fedbr.Federation.from_clients([(X, Y)], test=test)
    with pytest.raises(fedbr.InputError, match="clients: int where a pair"):
        fedbr.Federation.from_clients(3, test=(X, Y))
    with pytest.raises(fedbr.InputError, match="clients: str where a pair"):
        fedbr.Federation.from_clients({"a": (X, Y)}, test=(X, Y))
    with pytest.raises(fedbr.InputError, match="at least one client"):
        fedbr.Federation.from_clients([], test=(X, Y))
    with pytest.raises(fedbr.InputError, match=r"clients\[1\]"):
        fedbr.Federation.from_clients([(X, Y), (X[:, :2], Y)], test=(X, Y))
    with pytest.raises(fedbr.InputError, match="pair"):
        fedbr.Federation.from_clients([(X, Y)], test=[X, Y])
    fedbr.Federation.from_clients([(X[::-1], Y[::-1].astype(np.uint16))], test=(X, Y))
    with pytest.raises(fedbr.InputError, match="tests = 3"):
        fedbr.Federation.from_clients([(X, Y)] * 2, test=[(X, Y)] * 3)
