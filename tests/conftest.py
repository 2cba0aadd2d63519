"""Small federations that every test can afford."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import fedbr

torch.set_num_threads(1)


def blobs(
    classes: int = 4, features: int = 6, per_class: int = 40, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Make well separated clouds of points."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(0, 2, (classes, features))
    y = np.repeat(np.arange(classes), per_class)
    return centres[y] + rng.normal(0, 1, (len(y), features)), y


@pytest.fixture
def federation() -> fedbr.Federation:
    """Six clients with two classes or so each; float64, so that exactness can be tested."""
    x, y = blobs()
    x_test, y_test = blobs(per_class=10, seed=0)
    return fedbr.Federation.from_arrays(
        x, y, x_test, y_test, clients=6, partition="lda", alpha=0.5, seed=3
    )


@pytest.fixture
def command() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run the command line as a user does."""

    def call(
        *arguments: str, cwd: Path | None = None, timeout: float = 300
    ) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, "-m", "fedbr", *arguments]
        return subprocess.run(
            line, capture_output=True, text=True, timeout=timeout, cwd=cwd, check=False
        )

    return call
