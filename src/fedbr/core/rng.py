"""Every random number of the package comes from here, so every backend draws the same ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b

import numpy as np
import torch


def stream(seed: int, *path: str | int) -> np.random.Generator:
    """Return the independent stream of a path such as ("batches", round, client)."""
    name = "/".join([str(seed), *map(str, path)])
    return np.random.default_rng(int.from_bytes(blake2b(name.encode(), digest_size=16).digest(), "big"))


@contextmanager
def torch_stream(seed: int, *path: str | int) -> Iterator[None]:
    """Let torch's own generator (weights at the start, dropout) draw from a path, then restore it."""
    gpus = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    with torch.random.fork_rng(devices=gpus):
        torch.manual_seed(int(stream(seed, "torch", *path).integers(2**63)))
        yield
