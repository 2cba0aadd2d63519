"""Federations: nothing lost, nothing leaked, wrong arrays refused in words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import fedbr
from conftest import blobs
from fedbr.data import DataOptions, digits, proxy
from fedbr.data import load as load_options
from fedbr.data.rotation import rotate


def load(name: str, clients: int, partition: str, proxy_name: str = "", seed: int = 0) -> fedbr.Federation:
    return load_options(DataOptions(name=name, clients=clients, partition=partition, proxy=proxy_name), seed)


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


def test_stacks_share_a_split_and_seeds_do_not() -> None:
    hashes = [load("digits", 10, "lda", seed=seed).describe()["hash"] for seed in (0, 0, 1)]
    assert hashes[0] == hashes[1] != hashes[2]


def test_rotated_digits_turn_each_client_and_its_test_set() -> None:
    plain, turned = (load(name, 10, "iid") for name in ("digits", "rotated-digits"))
    assert turned.describe()["hash"] == plain.describe()["hash"]
    assert len(turned.tests) == 10
    for client, part in plain.train.parts.items():
        index = torch.from_numpy(part)
        assert torch.equal(turned.train.samples.x[index], rotate(plain.train.samples.x[index], 15.0 * client))
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
    assert fedbr.train(federation, "mlp", [fedbr.FedBR(pseudo="mixture")], rounds=1, local_steps=2).accuracy


def test_seeing_samples_leaves_them_as_they_are() -> None:
    federation = load("digits", 10, "iid", "noise")
    for samples in (federation.proxy, federation.train.samples, federation.tests[0]):
        assert samples is not None
        for dtype in (torch.float32, torch.float64):
            first, again = (samples.see(slice(None), dtype) for _ in range(2))
            assert torch.equal(first, again)


def test_arrays_of_users_numpy_or_torch_bytes_or_floats() -> None:
    x, y = blobs()
    for xs, ys in ((x, y), (torch.from_numpy(x), torch.from_numpy(y)), (x.astype(np.float32), y.astype(np.int32))):
        federation = fedbr.Federation.from_arrays(xs, ys, xs, ys, clients=3, partition="iid")
        assert federation.num_classes == 4
        assert sum(federation.sizes) == len(y)
    images = np.random.default_rng(0).integers(256, size=(40, 1, 4, 4), dtype=np.uint8)
    federation = fedbr.Federation.from_arrays(images, y[:40], images, y[:40], clients=2, partition="iid")
    assert federation.train.samples.x.dtype == torch.uint8  # bytes stay bytes until the batch
    assert federation.train.samples.see(slice(None), torch.float32).max() <= 1


def test_clients_keep_what_is_theirs() -> None:
    x, y = blobs()
    federation = fedbr.Federation.from_clients([(x[:7], y[:7]), (x[7:9], y[7:9])], test=[(x, y), (x[:5], y[:5])])
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
]


@pytest.mark.parametrize(("wrong", "words"), REFUSED, ids=[words for _, words in REFUSED])
def test_wrong_arrays_are_refused(wrong: dict[str, Any], words: str) -> None:
    right = {"x": X, "y": Y, "x_test": X, "y_test": Y, "clients": 4, "partition": "lda"}
    with pytest.raises(fedbr.InputError) as caught:
        fedbr.Federation.from_arrays(**right | wrong)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_wrong_clients_are_refused() -> None:
    with pytest.raises(fedbr.InputError, match="at least one client"):
        fedbr.Federation.from_clients([], test=(X, Y))
    with pytest.raises(fedbr.InputError, match=r"clients\[1\]"):
        fedbr.Federation.from_clients([(X, Y), (X[:, :2], Y)], test=(X, Y))
    with pytest.raises(fedbr.InputError, match="pair"):
        fedbr.Federation.from_clients([(X, Y)], test=[X, Y])
    fedbr.Federation.from_clients([(X[::-1], Y[::-1].astype(np.uint16))], test=(X, Y))
    with pytest.raises(fedbr.InputError, match="tests = 3"):
        fedbr.Federation.from_clients([(X, Y)] * 2, test=[(X, Y)] * 3)
