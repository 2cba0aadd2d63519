"""scikit-learn's 1,797 handwritten digits of 8 x 8 pixels: real data that comes with its wheel."""

from __future__ import annotations

import numpy as np
import torch

from ..core.data import Samples
from ..core.rng import stream
from .federation import Source

TEST_SHARE = 0.2


def load() -> Source:
    """Return the digits with a fixed, stratified fifth held out for testing."""
    from sklearn.datasets import load_digits  # two seconds that other commands need not wait

    bunch = load_digits()
    x = torch.from_numpy(bunch.images.astype(np.uint8)).unsqueeze(1)  # 17 grey levels
    y = torch.from_numpy(bunch.target.astype(np.int64))
    rng = stream(0, "digits", "test")  # the same test for every seed
    held = np.zeros(len(y), dtype=bool)
    for c in range(10):
        members = rng.permutation(np.flatnonzero(bunch.target == c))
        held[members[: round(TEST_SHARE * len(members))]] = True
    mask = torch.from_numpy(held)
    train, test = (Samples(x[m], y[m], scale=1 / 16) for m in (~mask, mask))
    return Source(train, test, num_classes=10, peak=16.0)
