"""Counting the clients of a federation: what is known of them without their samples."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256

import numpy as np
import torch
from torch import Tensor

from ..core.census import Census
from ..core.records import ClassCounts, Split
from ..core.samples import Index, Samples, TrainData
from .partition import effective_classes, split_hash

SHOWN = 200  # clients whose classes are written down with every run


def take_census(
    train: TrainData,
    class_names: Sequence[str] | None = None,
    client_names: Sequence[str] | None = None,
) -> Census:
    """Count the samples of every client.

    >>> samples = Samples(torch.zeros(3, 2), torch.tensor([0, 1, 1]))
    >>> train = TrainData(samples, {0: np.array([0]), 1: np.array([1, 2])}, num_classes=2)
    >>> census = take_census(train)
    >>> census.sizes, census.distinct, census.label_mix.tolist()
    ((1, 2), [1, 1], [[1.0, 0.0], [0.0, 1.0]])
    """
    samples, parts = train.samples, list(train.parts.values())
    y = samples.y.numpy()
    effective = tuple(round(effective_classes(y[part]), 4) for part in parts)
    is_bytes = samples.x.dtype == torch.uint8
    return Census(
        shape=tuple(samples.x.shape[1:]),
        num_classes=train.num_classes,
        split=Split(split_hash(parts), tuple(map(len, parts)), effective),
        classes=ClassCounts(
            number=train.num_classes,
            names=None if class_names is None else tuple(class_names),
            clients=None if client_names is None else tuple(client_names)[:SHOWN],
            counts=tuple(_count_classes(y[part]) for part in parts[:SHOWN]),
        ),
        distinct=_distinct(samples.x, parts),
        label_mix=_label_mix(y, parts, train.num_classes),
        byte_scale=_as_list(samples.scale) if is_bytes else 1 / 255,
        byte_shift=_as_list(samples.shift) if is_bytes else 0.0,
    )


def hash_samples(parts: Iterable[Samples]) -> str:
    """Return 16 hex digits that identify the samples themselves."""
    digest = sha256()
    for samples in parts:
        for tensor in (samples.x, samples.y):
            digest.update(f"{tensor.dtype} {tuple(tensor.shape)} ".encode())
            digest.update(tensor.contiguous().numpy().data)
    return digest.hexdigest()[:16]


def _count_classes(y: Index) -> str:
    classes, counts = np.unique(y, return_counts=True)
    return " ".join(f"{label}:{count}" for label, count in zip(classes, counts, strict=True))


def _distinct(x: Tensor, parts: Sequence[Index]) -> list[int]:
    """Count the samples of each client that differ in single precision."""
    stored = x.flatten(1)
    single = stored.float() if stored.dtype == torch.float64 else stored
    rows = single.numpy() + 0  # -0.0 is no other pixel
    return [len({rows[i].tobytes() for i in part}) for part in parts]


def _label_mix(y: Index, parts: Sequence[Index], num_classes: int) -> Tensor:
    """Return the share of each class among each client's samples: [clients, classes]."""
    owners = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    cells = owners * num_classes + y[np.concatenate(parts)]
    counts = np.bincount(cells, minlength=len(parts) * num_classes).reshape(len(parts), -1)
    return torch.from_numpy(counts) / torch.from_numpy(counts.sum(axis=1, keepdims=True))


def _as_list(value: float | Tensor) -> float | list[float]:
    return value.tolist() if isinstance(value, Tensor) else value
