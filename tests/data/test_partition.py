"""Every split is disjoint, complete and never leaves a client empty; the Dirichlet ones match the
paper's.
"""

from __future__ import annotations

import hashlib
import struct
import time
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2_contingency

from fedbr.data.partition import (
    PARTITIONS,
    PartitionOptions,
    effective_classes,
    partition,
    split_hash,
)
from fedbr.util.errors import InputError

NAMES = sorted(set(PARTITIONS) - {"domains"})  # which splits nothing: below
EQUAL = {"iid", "lda", "lda-prior"}


def split(name, labels, clients, seed=0, alpha=0.1, shards=2):
    options = PartitionOptions(alpha, shards)
    return partition(name, np.asarray(labels), clients, np.random.default_rng(seed), options)


def check(parts, samples, clients):
    assert len(parts) == clients
    for part in parts:
        assert part.dtype == np.int64
        assert len(part) > 0
        assert (np.diff(part) > 0).all()
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(samples))


@st.composite
def cases(draw):
    values = draw(st.lists(st.integers(-3, 1000), min_size=1, max_size=8, unique=True))
    labels = np.array(draw(st.lists(st.sampled_from(values), min_size=1, max_size=80)))
    clients = draw(st.integers(1, len(labels)))
    shards = draw(st.integers(1, len(labels) // clients))
    alpha = draw(st.sampled_from([5e-324, 1e-6, 0.1, 1.0, 1e6, 1.7e308]))
    return labels, clients, draw(st.integers(0, 2**32)), alpha, shards


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None, max_examples=120)
@given(case=cases())
def test_disjoint_complete_not_empty_deterministic(name, case):
    labels, clients, _, _, shards = case
    parts = split(name, *case)
    check(parts, len(labels), clients)
    spread = np.ptp([len(part) for part in parts])
    if name in EQUAL:
        assert spread <= 1
    if name == "shards":
        assert spread <= shards
    assert split_hash(parts) == split_hash(split(name, *case))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("alpha", [1e-6, 1e6])
@pytest.mark.parametrize(
    ("labels", "clients"),
    [
        ([0, 1, 2] * 10, 1),
        ([0, 1, 2] * 10, 30),
        ([4] * 30, 7),
        (list(range(30)), 11),
        (list(range(30)), 30),
        ([0] * 50 + [3, 9, -2], 20),
        ([7], 1),
    ],
    ids=[
        "one client",
        "one sample each",
        "one class",
        "all classes single",
        "30 of 30",
        "gaps",
        "one sample",
    ],
)
def test_corners(name, labels, clients, alpha):
    check(split(name, labels, clients, alpha=alpha, shards=1), len(labels), clients)


@pytest.mark.parametrize("name", NAMES)
def test_seeds_differ(name):
    labels = np.repeat(np.arange(10), 20)
    assert len({split_hash(split(name, labels, 20, seed)) for seed in range(10)}) == 10


@pytest.mark.parametrize("name", NAMES)
def test_the_samples_of_a_class_are_exchangeable(name):
    first = np.zeros(6)
    for seed in range(2000):
        first[split(name, [0] * 6, 2, seed, alpha=1.0)[0]] += 1
    expected = first.mean()  # 5 standard deviations of a coin thrown 2,000 times
    np.testing.assert_allclose(first, expected, atol=5 * 0.5 * 2000**0.5)
    assert abs(expected - 1000) < 100


@pytest.mark.parametrize(
    ("name", "expected", "tolerance"), [("lda", 2.6, 0.3), ("lda-prior", 1.3, 0.2)]
)
def test_effective_classes_of_the_dirichlet_splits(name, expected, tolerance):
    labels = np.repeat(np.arange(10), 600)
    splits = [split(name, labels, 10, seed) for seed in range(40)]
    mean = np.mean([effective_classes(labels[part]) for parts in splits for part in parts])
    assert mean == pytest.approx(expected, abs=tolerance)


def slow_lda(counts, clients, rng, alpha, prior):
    """Return the class counts [clients, classes], drawn sample by sample."""
    left = np.array(counts)
    table = np.zeros((clients, len(left)), int)
    for client in range(clients):
        rest = left > 0
        q = np.zeros(len(left))
        q[rest] = rng.dirichlet(
            alpha * left[rest] / left.sum() if prior else alpha * np.ones(rest.sum())
        )
        for _ in range(sum(counts) // clients):
            q = np.where(left > 0, q, 0)
            q = q / q.sum() if q.sum() > 0 else left / left.sum()
            label = rng.choice(len(left), p=q)
            left[label] -= 1
            table[client, label] += 1
    return table


@pytest.mark.parametrize("name", ["lda", "lda-prior"])
def test_dirichlet_splits_agree_with_the_slow_version(name):
    counts, clients, alpha, repeats = [5, 3, 4], 3, 0.8, 3000
    labels = np.repeat([2, 5, 11], counts)
    fast = [
        [
            np.bincount(labels[part], minlength=12)[[2, 5, 11]]
            for part in split(name, labels, clients, s, alpha)
        ]
        for s in range(repeats)
    ]
    rng = np.random.default_rng(12345)
    slow = [slow_lda(counts, clients, rng, alpha, name == "lda-prior") for _ in range(repeats)]
    for client in range(clients):
        tables = [Counter(tuple(table[client]) for table in tables) for tables in (fast, slow)]
        common = [key for key in tables[0] | tables[1] if tables[0][key] + tables[1][key] >= 20]
        rows = np.array(
            [[t[key] for key in common] + [repeats - sum(t[key] for key in common)] for t in tables]
        )
        assert chi2_contingency(rows[:, rows.any(axis=0)]).pvalue > 0.001


def test_lda_limits():
    labels = np.repeat(np.arange(5), 200)
    for part in split("lda", labels, 5, alpha=1e-6)[:1]:
        assert (
            effective_classes(labels[part]) == 1
        )  # a client is as large as a class: one class fills it
    for part in split("lda", labels, 5, alpha=1e6):
        assert effective_classes(labels[part]) > 4.5


def test_classwise_blocks_are_contiguous():
    labels = np.random.default_rng(0).integers(0, 7, 300)
    first, second = split("classwise", labels, 2)
    assert set(labels[first]) == {0, 1, 2, 3}
    assert set(labels[second]) == {4, 5, 6}


@pytest.mark.parametrize(
    ("counts", "clients", "sharers"),
    [
        ([20, 20, 20], 9, [3, 3, 3]),
        ([20, 20, 20], 10, [3, 3, 4]),
        ([1, 20, 20], 9, [1, 4, 4]),
        ([20, 2, 3], 11, [6, 2, 3]),
        ([5, 2, 1], 8, [5, 2, 1]),
    ],
)
def test_classwise_shares_classes_evenly(counts, clients, sharers):
    labels = np.repeat(np.arange(len(counts)), counts)
    parts = split("classwise", labels, clients)
    check(parts, len(labels), clients)
    owned = [np.unique(labels[part]) for part in parts]
    assert all(len(classes) == 1 for classes in owned)
    assert np.bincount(np.concatenate(owned)).tolist() == sharers
    for label in range(len(counts)):
        assert (
            np.ptp([len(p) for p, classes in zip(parts, owned, strict=True) if classes[0] == label])
            <= 1
        )


def test_shards_hold_few_classes():
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 100))
    for part in split("shards", labels, 10, shards=2):
        assert len(part) == 100
        assert len(np.unique(labels[part])) <= 2


def test_quantity_sizes_follow_alpha():
    labels = np.zeros(10000, int)
    sizes = {a: [len(p) for p in split("quantity", labels, 10, alpha=a)] for a in (1e-6, 0.5, 1e6)}
    assert max(sizes[1e-6]) == 10000 - 9
    assert 1500 < max(sizes[0.5]) < 9000
    assert np.ptp(sizes[1e6]) < 20


@pytest.mark.parametrize("name", sorted(PARTITIONS))
def test_a_thousand_clients_in_less_than_a_second(name):
    rng = np.random.default_rng(0)
    labels, owner = rng.integers(0, 10, 60000), rng.permutation(np.arange(60000) % 1000)
    start = time.process_time()
    parts = partition(name, labels, 1000, rng, PartitionOptions(owner=owner))
    assert time.process_time() - start < 1
    check(parts, 60000, 1000)


def test_domains_cost_no_more_for_many_clients():
    rng = np.random.default_rng(0)
    owner = rng.permutation(np.arange(600000) % 30000)
    start = time.process_time()
    partition("domains", np.zeros(600000, int), None, rng, PartitionOptions(owner=owner))
    assert time.process_time() - start < 3  # clients times samples took 10


@pytest.mark.parametrize(
    ("name", "clients", "alpha", "shards", "words"),
    [
        ("ldaa", 2, 0.1, 2, ["data.partition = 'ldaa'", "did you mean 'lda'"]),
        *[(name, 0, 0.1, 2, ["data.clients = 0:", "at least 1"]) for name in NAMES],
        *[(name, 31, 0.1, 1, ["data.clients = 31:", "only 30 training samples"]) for name in NAMES],
        *[
            (name, 2, alpha, 2, [f"data.alpha = {alpha}:", "above 0"])
            for name in ("lda", "lda-prior", "quantity")
            for alpha in (0.0, -1.0, float("nan"), float("inf"))
        ],
        ("shards", 2, 0.1, 0, ["data.shards_per_client = 0:", "at least 1"]),
        ("shards", 2, 0.1, 1.5, ["data.shards_per_client = 1.5:", "whole number"]),
        ("shards", 2, 0.1, True, ["data.shards_per_client = True:", "whole number"]),
        ("iid", True, 0.1, 2, ["data.clients = True:", "whole number"]),
        ("iid", 2.5, 0.1, 2, ["data.clients = 2.5:", "whole number"]),
        ("iid", "3", 0.1, 2, ["data.clients = '3':", "whole number"]),
        ("shards", 4, 0.1, 8, ["data.shards_per_client = 8:", "32 shards", "at most 7"]),
    ],
)
def test_refusals_name_the_key_and_the_value(name, clients, alpha, shards, words):
    with pytest.raises(InputError) as error:
        split(name, [0, 1, 2] * 10, clients, alpha=alpha, shards=shards)
    message = str(error.value)
    assert "\n" not in message
    for word in words:
        assert word in message


def test_options_of_other_partitioners_are_not_checked():
    check(split("iid", [0, 1, 2], 3, alpha=-1.0, shards=0), 3, 3)
    check(split("lda", [0, 1, 2], 3, shards=9), 3, 3)
    check(split("shards", [0, 1, 2], 3, alpha=float("nan"), shards=1), 3, 3)


def test_every_partitioner_has_a_line_for_the_user():
    for function in PARTITIONS.values():
        first, *_ = (function.__doc__ or "").strip().split("\n\n")
        assert first.endswith(".")


@pytest.mark.parametrize(
    ("labels", "expected"),
    [([3, 3, 3], 1), ([0, 5], 2), (list(range(10)) * 3, 10), ([0, 0, 0, 1], 1.7547654)],
)
def test_effective_classes(labels, expected):
    assert effective_classes(np.array(labels)) == pytest.approx(expected)


def test_split_hash():
    parts = [np.array([0, 2]), np.array([1])]
    assert (
        split_hash(parts) == hashlib.sha256(struct.pack("<qqqqq", 2, 0, 2, 1, 1)).hexdigest()[:16]
    )
    assert split_hash([part.astype(">i4") for part in parts]) == split_hash(parts)
    assert split_hash(parts[::-1]) != split_hash(parts)
    assert split_hash([np.array([0]), np.array([2, 1])]) != split_hash(parts)


def test_domains_leave_every_sample_where_it_is():
    owner = np.array([2, 0, 1, 1, 0, 2, 2])
    options = PartitionOptions(owner=owner)
    for clients in (None, 3):
        parts = partition("domains", np.zeros(7, int), clients, np.random.default_rng(0), options)
        check(parts, 7, 3)
        assert [p.tolist() for p in parts] == [[1, 4], [2, 3], [0, 5, 6]]
    with pytest.raises(InputError, match=r"data.clients = 4: these data name 3 clients"):
        partition("domains", np.zeros(7, int), 4, np.random.default_rng(0), options)
    with pytest.raises(InputError, match=r"data.clients = True"):
        partition(
            "domains",
            np.zeros(7, int),
            True,
            np.random.default_rng(0),
            PartitionOptions(owner=owner * 0),
        )
    with pytest.raises(InputError, match=r"these data name no clients"):
        partition("domains", np.zeros(7, int), None, np.random.default_rng(0), PartitionOptions())
