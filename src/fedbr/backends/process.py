"""How a process computes that trains or tests models: threads, memory, cores."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import torch

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of malloc.h


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one thread: the last bits of a sum depend on how many share it."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    keep_memory()
    try:
        yield
    finally:
        torch.set_num_threads(before)


def keep_memory() -> None:
    """Let the C library keep what a step frees for the next step.

    Otherwise it returns blocks of megabytes to the system and gets them back page by page, each page cleared: up to
    a third of a step.
    """
    with suppress(OSError, AttributeError, TypeError):  # another C library: nothing to tune
        library = ctypes.CDLL(None)
        library.gnu_get_libc_version  # noqa: B018 (asks whether it is there)
        library.mallopt(M_MMAP_THRESHOLD, 32 << 20)  # the largest that glibc accepts
        library.mallopt(M_TRIM_THRESHOLD, 256 << 20)


def usable_cores() -> int:
    """Count the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
