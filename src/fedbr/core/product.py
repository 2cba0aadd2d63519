"""Products of matrices for several clients, by the library that has the faster ones on this processor.

PyTorch's come from MKL, which does not use the AVX-512 units of AMD's processors. OpenBLAS, with which NumPy computes,
does: on a Zen 5 it takes half of the time (0.88 with AVX2 alone). What is loaded here is a copy of our own, with one
thread and the kernels that we ask for, whatever NumPy's is told.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

ROWS_FIRST, AS_IT_IS, TURNED = 101, 111, 112  # of cblas.h
KERNELS = {"AVX2": "Haswell", "AVX512": "SkylakeX"}  # of OpenBLAS, by what PyTorch itself uses of this processor


def multiply(a: Tensor, b: Tensor, plus: Tensor | None = None) -> Tensor:
    """Return each client's own product, [C, n, k] and [C, k, m] make [C, n, m], and add what broadcasts to it."""
    library = _openblas()
    if library is None or not _fit(a, b):
        return torch.bmm(a, b) if plus is None else torch.baddbmm(plus, a, b)
    out = library.multiply(a, b)
    return out if plus is None else out.add_(plus)


def add_product(to: Tensor, a: Tensor, b: Tensor) -> None:
    """Add each client's own product to [C, n, m], where that lies."""
    library = _openblas()
    if library is None or not (_fit(a, b) and to.is_contiguous()):
        to.baddbmm_(a, b)
    else:
        library.multiply(a, b, to)
        torch.autograd.graph.increment_version(to)  # autograd has to notice that a weight has changed


def _fit(a: Tensor, b: Tensor) -> bool:
    return a.dtype == torch.float32 and a.device.type == "cpu" and a.numel() > 0 and b.numel() > 0


def maker() -> str:
    """Name the library, for the books: the last bits of a result depend on it."""
    library = _openblas()
    return "PyTorch" if library is None else f"OpenBLAS ({library.kernels})"


class _OpenBLAS:
    def __init__(self, path: Path) -> None:
        library = ctypes.CDLL(str(path))
        name = library.scipy_openblas_get_corename64_
        name.restype = ctypes.c_char_p
        self.kernels: str = name().decode()
        self.product: Any = library.scipy_cblas_sgemm_batch_strided64_
        flag, size, number, place = ctypes.c_int, ctypes.c_int64, ctypes.c_float, ctypes.c_void_p
        matrix: list[Any] = [place, size, size]  # where it is, how far to the next row, how far to the next client's
        self.product.argtypes = [flag, flag, flag, size, size, size, number, *matrix, *matrix, number, *matrix, size]
        self.product.restype = None

    def multiply(self, a: Tensor, b: Tensor, to: Tensor | None = None) -> Tensor:
        (a, turn_a, step_a), (b, turn_b, step_b) = _lie(a), _lie(b)
        (clients, n, k), m = a.shape, b.shape[2]
        out = a.new_empty(clients, n, m) if to is None else to
        self.product(
            ROWS_FIRST, turn_a, turn_b, n, m, k,
            1.0, a.data_ptr(), step_a, a.stride(0), b.data_ptr(), step_b, b.stride(0),
            0.0 if to is None else 1.0, out.data_ptr(), m, n * m, clients,
        )  # fmt: skip
        return out


def _lie(x: Tensor) -> tuple[Tensor, int, int]:
    """Say how matrices lie in memory: as they are or turned, and how far the next row (or column) is."""
    (_, rows, columns), (_, down, right) = x.shape, x.stride()
    if right == 1 and down >= columns:
        return x, AS_IT_IS, down
    if down == 1 and right >= rows:
        return x, TURNED, right
    return x.contiguous(), AS_IT_IS, columns


@cache
def _openblas() -> _OpenBLAS | None:
    """Load OpenBLAS where it is faster. Decided by what is there, not by a stopwatch: bits depend on it."""
    kernels = KERNELS.get(torch.backends.cpu.get_cpu_capability())
    found = find_spec("scipy_openblas64")
    if os.environ.get("FEDBR_PRODUCTS") == "torch" or kernels is None or found is None or not _is_amd():
        return None
    for folder in found.submodule_search_locations or ():
        with suppress(OSError, AttributeError), _told(OPENBLAS_CORETYPE=kernels, OPENBLAS_NUM_THREADS="1"):
            return _OpenBLAS(Path(folder, "lib", "libscipy_openblas64_.so"))
    return None


def _is_amd() -> bool:
    with suppress(OSError):
        return "AuthenticAMD" in Path("/proc/cpuinfo").read_text("utf-8")
    return False


@contextmanager
def _told(**wishes: str) -> Iterator[None]:
    """Set variables that a library reads while it is loaded."""
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
