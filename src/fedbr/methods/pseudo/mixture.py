"""Mixture (the paper's equation 4): a mean of public samples, mixed with the client's own."""

from __future__ import annotations

from torch import Tensor


def mix(pseudo: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return (x_p + sum of K local) / (K + 1) and its label (1/C + sum of y) / (K + 1).

    ``pseudo`` is [n, ...]; ``x`` is [clients, n, K, ...] and ``y`` [clients, n, K, C].
    """
    parts = y.shape[2] + 1
    return (pseudo + x.sum(dim=2)) / parts, (1 / y.shape[-1] + y.sum(dim=2)) / parts
