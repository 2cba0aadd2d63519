"""What is held out is a share of every class and client, also of small ones; nobody is left without
samples.
"""

from __future__ import annotations

import time
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import fedbr
from fedbr.core.rng import stream
from fedbr.core.samples import Samples
from fedbr.data import DataOptions, load
from fedbr.data.holdout import choose_held_out, choose_share
from fedbr.data.sources import digits, npz


def save(path: Path, count: int, clients: int, classes: int) -> str:
    """Save samples that are their own number; their clients and classes come by turns."""
    i = np.arange(count)
    np.savez(path, x=i[:, None].astype(float), y=i // clients % classes, client=i % clients)
    return str(path)


def numbers(samples: Samples) -> set[int]:
    return set(samples.x.flatten().int().tolist())


@given(
    pairs=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 4)), min_size=1, max_size=60),
    share=st.sampled_from([0.05, 0.2, 0.5, 0.9]),
    seed=st.integers(0, 99),
)
@settings(deadline=None)
def test_the_share_holds_and_every_class_and_client_still_trains(
    pairs: list[tuple[int, int]], share: float, seed: int
) -> None:
    owner, classes = np.array(pairs).T
    raw = choose_share(classes, share, np.random.default_rng(seed), owner)
    assert abs(raw.sum() - share * len(raw)) <= 1
    for client in np.unique(owner):
        mine = owner == client
        assert abs(raw[mine].sum() - share * mine.sum()) <= 1
    held = choose_held_out(classes, share, np.random.default_rng(seed), owner)
    assert not (held & ~raw).any()
    assert set(owner[~held]) == set(owner)
    assert set(classes[~held]) == set(classes)


def test_many_small_clients_hold_out_their_share_of_every_class() -> None:
    owner, classes = (part.ravel().repeat(2) for part in np.indices((3500, 62)))
    start = time.process_time()
    held = choose_held_out(classes, 0.2, stream(0, "test"), owner)
    assert time.process_time() - start < 5
    assert held.mean() == pytest.approx(0.2, abs=1e-3)
    assert np.ptp(np.bincount(owner[held])) <= 1
    assert np.bincount(classes[held]) / 7000 == pytest.approx(
        0.2, abs=0.03
    )  # none is always left out


def test_small_classes_that_are_all_alike_are_not_chosen_by_their_order() -> None:
    owner, classes = (
        part.ravel() for part in np.indices((500, 5))
    )  # one sample each: every client holds out one
    held = choose_held_out(classes, 0.2, stream(0, "test"), owner)
    assert np.bincount(owner[held]).tolist() == [1] * 500
    assert np.bincount(classes[held], minlength=5).min() > 60


def test_large_classes_are_rounded_one_by_one_as_ever() -> None:
    """What was published on digits and PACS rests on these counts."""
    sizes = [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    held = choose_share(np.repeat(np.arange(10), sizes), 0.2, stream(0, "digits", "test"))
    assert np.bincount(np.repeat(np.arange(10), sizes)[held]).tolist() == [
        36,
        36,
        35,
        37,
        36,
        36,
        36,
        36,
        35,
        36,
    ]
    assert torch.bincount(digits.load().test.y).tolist() == [36, 36, 35, 37, 36, 36, 36, 36, 35, 36]
    tuning = load(DataOptions(name="digits", holdout=0.2), 0)
    assert torch.bincount(tuning.tests[0].y).tolist() == [28, 29, 28, 29, 29, 29, 29, 29, 28, 29]


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
def test_tuning_leaves_every_natural_client_something(tmp_path: Path, share: float) -> None:
    i = np.arange(30)
    client = np.where(i < 1, 0, np.where(i < 4, 1, 2))  # one sample, three, and 26
    path = tmp_path / "a.npz"
    np.savez(
        path, x=i[:, None] / 1.0, y=i % 3, client=client, x_test=i[:, None] / 1.0, y_test=i % 3
    )
    federation = load(
        DataOptions(name="npz", path=str(path), partition="domains", holdout=share), 0
    )
    assert len(federation.train.parts) == len(federation.tests) == 3
    assert federation.sizes[0] == 1
    assert min(federation.sizes) >= 1
    assert sum(federation.sizes) + sum(len(t) for t in federation.tests) == 30
    for c, part in federation.train.parts.items():
        trained, tested = (
            set(federation.train.samples.x[part].flatten().int().tolist()),
            numbers(federation.tests[c]),
        )
        assert trained | tested == set(i[client == c])
        assert not trained & tested


def test_tuning_takes_the_share_of_every_client(tmp_path: Path) -> None:
    options = DataOptions(
        name="npz", path=save(tmp_path / "a.npz", 600, 6, 10), partition="domains", holdout=0.25
    )
    federation = load(options, 0)  # 8 of every client and class are left of 10 to tune with
    assert federation.sizes == [60] * 6
    assert [len(t) for t in federation.tests] == [20] * 6


def test_every_seed_tunes_on_others_but_is_tested_on_the_same(tmp_path: Path) -> None:
    path = save(tmp_path / "a.npz", 200, 2, 4)
    tuned, tested = [], []
    for seed in (0, 0, 1):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tuned.append(
                numbers(load(DataOptions(name="npz", path=path, holdout=0.2), seed).tests[0])
            )
            tested.append(numbers(load(DataOptions(name="npz", path=path), seed).tests[0]))
    assert tuned[0] == tuned[1] != tuned[2]
    assert tested[0] == tested[1] == tested[2]
    assert tuned[0].isdisjoint(tested[0])


def test_nothing_to_tune_on_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path / "a.npz", 12, 3, 2)
    with pytest.raises(
        fedbr.InputError, match=r"data.holdout = 0.01: leaves nothing to test on, of \d+ training"
    ):
        load(DataOptions(name="npz", path=path, partition="domains", holdout=0.01), 0)


def test_a_client_too_small_for_a_test_set_has_an_empty_one(tmp_path: Path) -> None:
    path = save(tmp_path / "a.npz", 60, 20, 3)  # twenty clients of three samples
    federation = load(DataOptions(name="npz", path=path, partition="domains"), 0)
    sizes = [len(test) for test in federation.tests]
    assert len(sizes) == 20
    assert sum(sizes) == 12
    assert set(sizes) == {0, 1}
    assert min(federation.sizes) >= 2
    assert [test.part for test in federation.test_plan(1, 0).sets] == [None] * 20  # that is all


def test_some_samples_of_tests_of_which_one_is_empty() -> None:
    x, y = np.arange(20.0)[:, None], np.arange(20) % 2
    federation = fedbr.Federation.from_clients([(x, y)] * 3, test=[(x, y), (x[:0], y[:0]), (x, y)])
    plan = federation.test_plan(4, 0)
    assert [plan.size(test, quick=True) for test in plan.order] == [4, 0, 4]
    assert plan.shares == [{0: 1.0}, {1: 1.0}, {2: 1.0}]


@pytest.mark.filterwarnings("ignore:labels")
def test_a_test_set_without_samples_is_called_empty() -> None:
    x, y = np.zeros((4, 2)), np.arange(4) % 2
    with pytest.raises(
        fedbr.InputError, match=r"^test: has no samples; at least one client must have some$"
    ):
        fedbr.Federation.from_clients([(x, y)] * 2, test=[(x[:0], y[:0])] * 2)
    with pytest.raises(
        fedbr.InputError, match=r"none of its classes is among those of the training samples"
    ):
        fedbr.Federation.from_clients([(x, y * 0)] * 2, test=[(x[:0], y[:0]), (x, y * 0 + 1)])


def test_a_fifth_of_a_small_data_set(tmp_path: Path) -> None:
    i = np.arange(20)
    np.savez(
        tmp_path / "a.npz", x=i[:, None] / 1.0, y=i % 10
    )  # two of every class, of which 0.4 is nothing
    source = npz.load(str(tmp_path / "a.npz"))
    assert len(source.test) == 4
    assert len(source.train.y.unique()) == 10
