"""Products of matrices for several clients.

PyTorch's come from MKL, which leaves the AVX-512 units of AMD's processors alone. oneDNN, which
PyTorch has too, uses them: on a Zen 5 a large product takes half of the time, FedAvg and FedBR on
a small MLP take 0.8.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

# Multiplications of one client's product from which oneDNN is ahead (0.8 at two million, 1.15 at
# one); below, MKL's one call for all clients decides.
LARGE = 2_000_000


def multiply(a: Tensor, b: Tensor, plus: Tensor | None = None) -> Tensor:
    """Multiply each client's own matrices.

    Args:
        a: [C, n, k].
        b: [C, k, m].
        plus: is added to the product; it broadcasts.

    Returns:
        The products, [C, n, m].
    """
    if not _suits_onednn(a, b):
        return torch.bmm(a, b) if plus is None else torch.baddbmm(plus, a, b)
    out = torch.stack([_product(own, other) for own, other in zip(a, b, strict=True)])
    return out if plus is None else out.add_(plus)


def add_product(to: Tensor, a: Tensor, b: Tensor) -> None:
    """Add each client's own product to [C, n, m], where that lies."""
    if not _suits_onednn(a, b):
        to.baddbmm_(a, b)
        return
    for target, own, other in zip(to, a, b, strict=True):
        target += _product(own, other)


def _product(a: Tensor, b: Tensor) -> Tensor:
    linear = _onednn()
    assert linear is not None
    out: Tensor = linear(a, b.mT, None, "none", [], "")
    return out


def _suits_onednn(a: Tensor, b: Tensor) -> bool:
    (_, n, k), m = a.shape, b.shape[2]
    if n * k * m < LARGE or _onednn() is None or torch.is_grad_enabled():  # it has no gradient
        return False
    return _is_plain(a) and _is_plain(b)


def _is_plain(t: Tensor) -> bool:
    return t.dtype == torch.float32 and t.is_cpu and type(t) in (Tensor, nn.Parameter)


@cache
def _onednn() -> Callable[..., Any] | None:
    """Return oneDNN's linear layer where it is faster.

    That is decided by the processor, not by a stopwatch: the last bits of results depend on it.
    """
    available = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    if available and torch.backends.cpu.get_cpu_capability() == "AVX512":
        with suppress(OSError):
            if "AuthenticAMD" in Path("/proc/cpuinfo").read_text("utf-8"):
                linear: Callable[..., Any] | None
                linear = getattr(torch.ops.mkldnn, "_linear_pointwise", None)
                return linear
    return None
