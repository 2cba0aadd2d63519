"""Every random number of the package comes from here, so every backend draws the same ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from hashlib import blake2b

import numpy as np
import torch


def stream(seed: int, *path: str | int) -> np.random.Generator:
    """Return the independent stream of a path such as ("batches", round, client).

    >>> bool(stream(0, "batches", 1, 2).random() == stream(0, "batches", 1, 2).random())
    True
    >>> bool(stream(0, "batches", 1, 2).random() == stream(0, "batches", 1, 3).random())
    False
    """
    name = "/".join([str(seed), *map(str, path)])
    digest = blake2b(name.encode(), digest_size=16).digest()
    return np.random.default_rng(int.from_bytes(digest, "big"))


@contextmanager
def torch_stream(seed: int, *path: str | int) -> Iterator[None]:
    """Let PyTorch's own generators draw from a path, and restore them at the end.

    From them come the weights of the start, and dropout.
    """
    seed = _number(seed, *path)
    # Not torch.manual_seed: it imports the compiler, two seconds, and takes two milliseconds each
    # time.
    generators = _generators()
    states = [generator.get_state() for generator in generators]
    for generator in generators:
        generator.manual_seed(seed)
    try:
        yield
    finally:
        for generator, state in zip(generators, states, strict=True):
            generator.set_state(state)


_DRAWING: ContextVar[Callable[[], Sequence[torch.Generator]]] = ContextVar(
    "generators of clients", default=tuple
)


@contextmanager
def layer_streams(
    seed: int, round: int, clients: Sequence[int], device: torch.device
) -> Iterator[None]:
    """Let layers that draw (dropout) draw for every client what they would draw for it alone.

    A client alone draws from torch's own generator; of several, whatever else asks that one gets
    numbers of the round.
    """

    @cache  # hardly any model asks
    def generators() -> list[torch.Generator]:
        place = "cpu" if device.type == "meta" else device
        return [
            torch.Generator(place).manual_seed(_number(seed, "layers", round, c)) for c in clients
        ]

    token = _DRAWING.set(generators)
    try:
        with torch_stream(seed, "layers", round, clients[0] if len(clients) == 1 else "together"):
            yield
    finally:
        _DRAWING.reset(token)


def client_generators() -> Sequence[torch.Generator]:
    """Return the generators of the clients that train together, for layers that draw."""
    return _DRAWING.get()()


def _number(seed: int, *path: str | int) -> int:
    return int(stream(seed, "torch", *path).integers(2**63))


def _generators() -> list[torch.Generator]:
    """Return torch's own generators: the one of the CPU, and those of the GPUs in use."""
    cuda: tuple[torch.Generator, ...] = torch.cuda.default_generators  # empty until it is used
    return [torch.default_generator, *cuda]
