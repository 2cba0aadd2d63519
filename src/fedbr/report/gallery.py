"""What the picture of a federation shows: who has which classes, what the model sees, and
pseudo-data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..core.rng import stream
from ..data import DataOptions, Federation
from ..methods.pseudo.mixture import mix
from ..methods.pseudo.rsm import sample_means

SEEN, MADE = 8, 2  # samples and pseudo-samples of each client
MEAN_OF = 10  # FedBR's default
LONGEST = 25  # letters of a name


@dataclass(frozen=True)
class Counts:
    """The numbers of the picture."""

    clients: Sequence[str]
    classes: Sequence[str]
    table: NDArray[np.int64]  # [clients, classes]: samples
    effective: Sequence[float]  # number of classes, of each client

    @property
    def sizes(self) -> list[int]:
        return [int(n) for n in self.table.sum(axis=1)]


@dataclass(frozen=True)
class Strip:
    """What a row shows of a client, as the model sees it."""

    seen: Tensor  # [n, ...]: samples of its own
    means: Tensor  # of several of its samples (RSM); none where it has too few
    mixtures: Tensor  # of a sample and public ones; none without those


def title(options: DataOptions, federation: Federation, seed: int) -> str:
    """Say what was split, how, and with which parameters."""
    name = Path(options.path).name if options.name in ("npz", "folder") else options.name
    alpha = f" (alpha {options.alpha:g})"
    shards = f" ({options.shards_per_client} per client)"
    knobs = {"lda": alpha, "lda-prior": alpha, "quantity": alpha, "shards": shards}
    parts = [
        f"{len(federation.train.parts):,} clients",
        options.partition + knobs.get(options.partition, ""),
    ]
    parts += [f"angles from Dir({options.rotation:g})"] if federation.mix is not None else []
    parts += [f"{options.unseen} unseen"] if options.unseen else []
    parts += [f"{options.holdout:.0%} held out for tuning"] if options.holdout else []
    return f"{name}: {', '.join(parts)}, seed {seed}"


def labels(options: DataOptions, federation: Federation) -> list[str]:
    """Name the clients: as the data do, or by number, with the angle where they are rotated."""
    if federation.client_names is not None:
        return list(federation.client_names)
    numbered = [f"client {client}" for client in federation.train.parts]
    if federation.mix is not None:  # of tests at 0, 15, 30, ... degrees
        share, test = (values.tolist() for values in federation.mix.max(dim=1))
        return [
            f"{c}, {100 * s:.0f} % at {15 * t}°"
            for c, s, t in zip(numbered, share, test, strict=True)
        ]
    if options.name in ("rotated-digits", "rotated-mnist"):
        return [f"{c}, {15 * i % 360}°" for i, c in enumerate(numbered)]
    return numbered


def counts(federation: Federation, clients: Sequence[str]) -> Counts:
    """Count each client's samples of each class."""
    y, size = federation.train.samples.y.numpy(), federation.num_classes
    table = np.stack(
        [np.bincount(y[part], minlength=size) for part in federation.train.parts.values()]
    )
    names = federation.class_names or list(map(str, range(size)))
    effective = federation.census.split.effective_classes
    return Counts(_shorten(clients), _shorten(names), table, effective)


def _shorten(names: Sequence[str]) -> list[str]:
    return [name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…" for name in names]


def samples(federation: Federation, clients: int) -> list[Strip]:
    """Return some samples of the first clients, and pseudo-data of both kinds.

    clients: how many. Nothing if samples are no images.
    """
    if len(federation.shape) != 3 or federation.shape[0] not in (1, 3):
        return []
    return [_strip(federation, client) for client in list(federation.train.parts)[:clients]]


def _strip(federation: Federation, client: int) -> Strip:
    """Draw what a row shows of a client."""
    train, rng = federation.train, stream(0, "gallery", client)
    chosen = torch.from_numpy(rng.permutation(train.parts[client])[:SEEN])
    moves = train.moves([rng], (len(chosen),))
    seen = train.samples.see(chosen, torch.float32, None if moves is None else moves[0])
    means = sample_means(train.of(client, torch.float32)[0], MADE, MEAN_OF, rng)
    if federation.proxy is None:
        return Strip(seen, means, seen[:0])
    public = federation.proxy.see(slice(None), torch.float32)
    public_means = sample_means(public, MADE, MEAN_OF, rng)
    own = train.draw([client], [rng], (len(public_means), 1), torch.float32)
    mixtures = mix(public_means, *own)[0][0]
    return Strip(seen, means, mixtures)
