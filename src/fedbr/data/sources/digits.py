"""scikit-learn's 1,797 handwritten digits of 8 x 8 pixels: real data that comes with its wheel."""

from __future__ import annotations

import numpy as np
import torch

from ...core.rng import stream
from ...core.samples import Samples
from ..dataset import Dataset
from ..holdout import TEST_SHARE, hold_out
from ..source import Source
from ..transforms import turn_clients

PAPER = "Alpaydin, Kaynak. Optical Recognition of Handwritten Digits, UCI 1998"


def load() -> Source:
    """Return the digits with a fixed, stratified fifth held out for testing."""
    from sklearn.datasets import load_digits  # two seconds that other commands need not wait

    bunch = load_digits()
    x = torch.from_numpy(bunch.images.astype(np.uint8)).unsqueeze(1)  # 17 grey levels
    y = torch.from_numpy(bunch.target.astype(np.int64))
    rng = stream(0, "digits", "test")  # the same test for every seed
    train, test = hold_out(Samples(x, y, scale=1 / 16), TEST_SHARE, rng)
    return Source(train, test, num_classes=10, peak=16.0, class_names=[str(c) for c in range(10)])


DIGITS = Dataset(
    summary="1,797 handwritten digits, 8 x 8 pixels; comes with scikit-learn",
    load=lambda options: load(),
    paper=PAPER,
)
ROTATED = Dataset(
    summary="digits; client i and its test set are rotated by 15 * i degrees",
    load=lambda options: load(),
    arrange=turn_clients,
    paper=PAPER,
)
