"""RSM never sends what would be a raw sample, and Mixture is the paper's formula."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import fedbr
from fedbr.core.rng import stream
from fedbr.methods.pseudo.mixture import mix
from fedbr.methods.pseudo.rsm import sample_means


@settings(deadline=None, max_examples=60)
@given(
    samples=st.integers(1, 30),
    distinct=st.integers(1, 30),
    mean_of=st.integers(2, 12),
    seed=st.integers(0, 99),
)
def test_means_are_of_m_distinct_samples_or_there_are_none(
    samples: int, distinct: int, mean_of: int, seed: int
) -> None:
    # One-hot samples: the mean shows exactly which samples are in it, and how often.
    kinds = min(samples, distinct)
    x = torch.eye(kinds, dtype=torch.float64)[torch.arange(samples) % kinds]
    means = sample_means(x, 5, mean_of, stream(seed, "test"))
    if kinds < mean_of:
        assert len(means) == 0
    else:
        assert len(means) == 5
        for mean in means:
            assert (mean > 0).sum() == mean_of
            assert torch.allclose(mean[mean > 0], torch.tensor(1 / mean_of, dtype=torch.float64))


def test_copies_of_one_image_are_never_sent() -> None:
    image = torch.rand(1, 1, 8, 8)
    assert len(sample_means(image.repeat(50, 1, 1, 1), 3, 10, stream(0, "test"))) == 0


def test_balanced_means_take_classes_in_turn() -> None:
    y = torch.tensor([0] * 90 + [1] * 5 + [2] * 5)
    x = torch.nn.functional.one_hot(y).double() + 1e-6 * torch.arange(100)[:, None]
    for mean in sample_means(x, 4, 9, stream(0, "test"), y):
        assert torch.allclose(mean, torch.full((3,), 1 / 3, dtype=torch.float64), atol=1e-3)
    for mean in sample_means(x, 4, 20, stream(0, "test"), y):  # the rare classes run out
        assert torch.allclose(mean, torch.tensor([0.5, 0.25, 0.25], dtype=torch.float64), atol=1e-3)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_mixture_is_equation_4(k: int) -> None:
    rng = np.random.default_rng(0)
    pseudo, own = (
        torch.from_numpy(rng.random((5, 2, 3))),
        torch.from_numpy(rng.random((4, 5, k, 2, 3))),
    )
    labels = torch.nn.functional.one_hot(
        torch.from_numpy(rng.integers(7, size=(4, 5, k))), 7
    ).double()
    x, y = mix(pseudo, own, labels)
    for client in range(4):
        for j in range(5):
            image, label = pseudo[j].clone(), torch.full((7,), 1 / 7, dtype=torch.float64)
            for i in range(k):
                image += own[client, j, i]
                label += labels[client, j, i]
            assert torch.allclose(x[client, j], image / (k + 1))
            assert torch.allclose(y[client, j], label / (k + 1))
            assert y[client, j].sum() == pytest.approx(1)


def test_samples_that_differ_by_rounding_only_hide_nothing() -> None:
    """They would be told apart in double precision, and their mean would still be the sample."""
    sample = torch.linspace(0.13, 0.87, 6, dtype=torch.float64)
    x = sample + 1e-12 * torch.arange(30, dtype=torch.float64)[:, None]
    assert not len(sample_means(x, 2, 10, np.random.default_rng(0)))
    federation = fedbr.Federation.from_arrays(
        x, torch.arange(30) % 2, x, torch.arange(30) % 2, clients=2
    )
    assert federation.census.distinct == [1, 1]
    with pytest.raises(
        fedbr.InputError, match=r"no client has so many distinct samples \(at most 1\)"
    ):
        fedbr.train(federation, "mlp", [fedbr.FedBR()], rounds=1, dtype="float64")
