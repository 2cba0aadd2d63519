"""Products of matrices for several clients, by the library that has the faster ones on this
processor.

PyTorch's come from MKL, which does not use the AVX-512 units of AMD's processors. OpenBLAS, with
which NumPy computes, does: on a Zen 5 it takes half of the time (0.88 with AVX2 alone). What is
loaded here is a copy of our own, with one thread and the kernels that we ask for, whatever NumPy's
is told.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ...util.errors import InputError

SWITCH = "FEDBR_PRODUCTS"  # in the environment; "torch" turns OpenBLAS off
ROWS_FIRST, AS_IT_IS, TURNED = 101, 111, 112  # of cblas.h
KERNELS = {
    "AVX2": "Haswell",
    "AVX512": "SkylakeX",
}  # of OpenBLAS, by what PyTorch itself uses of this processor
# Multiplications of one client's product from which OpenBLAS is ahead; below, MKL's one call for
# all clients decides.
LARGE = 200_000


def multiply(a: Tensor, b: Tensor, plus: Tensor | None = None) -> Tensor:
    """Return each client's own product, [C, n, k] and [C, k, m] make [C, n, m], and add what
    broadcasts to it.
    """
    library = _openblas()
    if library is None or not _fit(a, b, plus):
        return torch.bmm(a, b) if plus is None else torch.baddbmm(plus, a, b)
    out = library.multiply(a, b, a.new_empty(len(a), a.shape[1], b.shape[2]), 0.0)
    return out if plus is None else out.add_(plus)


def add_product(to: Tensor, a: Tensor, b: Tensor) -> None:
    """Add each client's own product to [C, n, m], where that lies."""
    library = _openblas()
    if library is None or not (
        _fit(a, b, to) and to.shape == (*a.shape[:2], b.shape[2]) and to.is_contiguous()
    ):
        to.baddbmm_(a, b)
    else:
        library.multiply(a, b, to, 1.0)
        torch.autograd.graph.increment_version(
            to
        )  # autograd has to notice that a weight has changed


def maker() -> str:
    """Name the library, for the books: the last bits of a result depend on it."""
    library = _openblas()
    return "PyTorch" if library is None else f"OpenBLAS ({library.kernels})"


def follow(chosen: str) -> None:
    """Multiply with PyTorch if the process that started this one does: both have to get the same
    bits.
    """
    if chosen == "PyTorch":
        os.environ[SWITCH] = "torch"
        _openblas.cache_clear()


def _fit(a: Tensor, b: Tensor, more: Tensor | None) -> bool:
    """Say whether OpenBLAS, which checks nothing, may be asked; whatever else it is, PyTorch does
    it or refuses it.
    """
    if torch.is_grad_enabled() or a.dim() != 3 or b.dim() != 3:
        return False
    (clients, n, k), m = a.shape, b.shape[2]
    return (
        n * k * m >= LARGE
        and b.shape[:2] == (clients, k)
        and all(
            t.dtype == torch.float32
            and t.is_cpu
            and type(t) in (Tensor, nn.Parameter)
            and torch._C._has_storage(t)
            for t in (a, b, *(() if more is None else (more,)))
        )
    )


class _OpenBLAS:
    def __init__(self, path: Path) -> None:
        library = ctypes.CDLL(str(path))
        name = library.scipy_openblas_get_corename64_
        name.restype = ctypes.c_char_p
        self.kernels: str = name().decode()
        self.threads: int = library.scipy_openblas_get_num_threads64_()
        self.product: Any = library.scipy_cblas_sgemm64_
        flag, size, number, place = ctypes.c_int, ctypes.c_int64, ctypes.c_float, ctypes.c_void_p
        self.product.argtypes = [
            flag, flag, flag, size, size, size, number, place, size, place, size, number, place, size,
        ]  # fmt: skip
        self.product.restype = None

    def multiply(self, a: Tensor, b: Tensor, out: Tensor, keep: float) -> Tensor:
        """Write ``keep`` times what is there plus the product; call only with what fits."""
        (a, turn_a, step_a), (b, turn_b, step_b) = _lie(a), _lie(b)
        (clients, n, k), m = a.shape, b.shape[2]
        left, right, made = a.data_ptr(), b.data_ptr(), out.data_ptr()
        far_a, far_b, far_out = (4 * t.stride(0) for t in (a, b, out))  # bytes to the next client's
        for c in range(clients):
            self.product(
                ROWS_FIRST, turn_a, turn_b, n, m, k,
                1.0, left + c * far_a, step_a, right + c * far_b, step_b, keep, made + c * far_out, m,
            )  # fmt: skip
        return out


def _lie(x: Tensor) -> tuple[Tensor, int, int]:
    """Say how matrices lie in memory: as they are or turned, and how far the next row (or column)
    is.
    """
    (_, rows, columns), (_, down, right) = x.shape, x.stride()
    if right == 1 and down >= columns:
        return x, AS_IT_IS, down
    if down == 1 and right >= rows:
        return x, TURNED, right
    return x.contiguous(), AS_IT_IS, columns


@cache
def _openblas() -> _OpenBLAS | None:
    """Load OpenBLAS where it is faster. Decided by what is there, not by a stopwatch: bits depend
    on it.
    """
    if (wish := os.environ.get(SWITCH, "")) not in ("", "torch"):
        raise InputError(f"{SWITCH} = {wish!r}: 'torch' (PyTorch multiplies) or nothing is wanted")
    kernels = KERNELS.get(torch.backends.cpu.get_cpu_capability())
    found = find_spec("scipy_openblas64")
    if wish or kernels is None or found is None or not _is_amd():
        return None
    for folder in found.submodule_search_locations or ():
        with (
            suppress(OSError, AttributeError),
            _told(OPENBLAS_CORETYPE=kernels, OPENBLAS_NUM_THREADS="1"),
        ):
            library = _OpenBLAS(Path(folder, "lib", "libscipy_openblas64_.so"))
            # If somebody has loaded it before us, it is as they wanted it.
            return library if (library.kernels, library.threads) == (kernels, 1) else None
    return None


def _is_amd() -> bool:
    with suppress(OSError):
        return "AuthenticAMD" in Path("/proc/cpuinfo").read_text("utf-8")
    return False


_LOCK = threading.Lock()


@contextmanager
def _told(**wishes: str) -> Iterator[None]:
    """Set variables that a library reads while it is loaded."""
    with _LOCK:
        before = {key: os.environ.get(key) for key in wishes}
        os.environ.update(wishes)
        try:
            yield
        finally:
            for key, value in before.items():
                if value is None:
                    del os.environ[key]
                else:
                    os.environ[key] = value
