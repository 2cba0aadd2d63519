"""What the picture of a split shows: who has which classes, samples, and pseudo-data."""

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

SHOWN, MADE = 8, 2  # samples and pseudo-samples of each client
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
        """How many samples each client has."""
        return [int(n) for n in self.table.sum(axis=1)]


@dataclass(frozen=True)
class Strip:
    """What a row shows of a client, as the model sees it."""

    samples: Tensor  # [n, ...]: some of its own
    means: Tensor  # of several of its samples (RSM); none where it has too few
    mixtures: Tensor  # of a sample and public ones; none without those


def title(options: DataOptions, federation: Federation, seed: int) -> str:
    """Say what was split, how, and with which parameters."""
    name = options.name
    if name in ("npz", "folder"):
        name = Path(options.path).name
    partition = options.partition
    if partition in ("lda", "lda-prior", "quantity"):
        partition += f" (alpha {options.alpha:g})"
    elif partition == "shards":
        partition += f" ({options.shards_per_client} per client)"
    parts = [f"{len(federation.train.parts):,} clients", partition]
    if federation.mix is not None:
        parts.append(f"angles from Dir({options.rotation:g})")
    if options.unseen:
        parts.append(f"{options.unseen} unseen")
    if options.holdout:
        parts.append(f"{options.holdout:.0%} held out for tuning")
    return f"{name}: {', '.join(parts)}, seed {seed}"


def label_clients(options: DataOptions, federation: Federation) -> list[str]:
    """Name the clients: as the data do, or by number, with the angle where they are rotated."""
    if federation.client_names is not None:
        return list(federation.client_names)
    clients = [f"client {client}" for client in federation.train.parts]
    angles = []
    if federation.mix is not None:  # of tests at 0, 15, 30, ... degrees
        shares, tests = federation.mix.max(dim=1)
        for share, test in zip(shares.tolist(), tests.tolist(), strict=True):
            angles.append(f"{100 * share:.0f} % at {15 * test}°")
    elif options.name in ("rotated-digits", "rotated-mnist"):
        angles = [f"{15 * i % 360}°" for i in range(len(clients))]
    if not angles:
        return clients
    return [f"{client}, {angle}" for client, angle in zip(clients, angles, strict=True)]


def count_samples(federation: Federation, clients: Sequence[str]) -> Counts:
    """Count each client's samples of each class.

    Args:
        federation: whose samples are counted.
        clients: their names.
    """
    y, classes = federation.train.samples.y.numpy(), federation.num_classes
    rows = []
    for part in federation.train.parts.values():
        rows.append(np.bincount(y[part], minlength=classes))
    names = federation.class_names or [str(i) for i in range(classes)]
    effective = federation.census.split.effective_classes
    return Counts(_shorten(clients), _shorten(names), np.stack(rows), effective)


def _shorten(names: Sequence[str]) -> list[str]:
    return [name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…" for name in names]


def choose_samples(federation: Federation, clients: int) -> list[Strip]:
    """Choose some samples of the first clients, and make pseudo-data of both kinds.

    Args:
        federation: whose samples are chosen.
        clients: of how many clients.

    Returns:
        A row for each client; nothing if samples are no images.
    """
    if len(federation.shape) != 3 or federation.shape[0] not in (1, 3):
        return []
    first = list(federation.train.parts)[:clients]
    return [_make_strip(federation, client) for client in first]


def _make_strip(federation: Federation, client: int) -> Strip:
    """Draw what a row shows of a client."""
    train, rng = federation.train, stream(0, "gallery", client)
    index = torch.from_numpy(rng.permutation(train.parts[client])[:SHOWN])
    moves = train.moves([rng], (len(index),))
    samples = train.samples.see(index, torch.float32, None if moves is None else moves[0])
    means = sample_means(train.of(client, torch.float32)[0], MADE, MEAN_OF, rng)
    if federation.proxy is None:
        return Strip(samples, means, samples[:0])
    public = federation.proxy.see(slice(None), torch.float32)
    public_means = sample_means(public, MADE, MEAN_OF, rng)
    drawn = train.draw([client], [rng], (len(public_means), 1), torch.float32)
    mixtures = mix(public_means, *drawn)[0][0]
    return Strip(samples, means, mixtures)
