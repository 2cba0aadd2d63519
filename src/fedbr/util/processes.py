"""Settings of a process that trains or tests models: threads, memory, cores, its end."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import parent_process
from multiprocessing.connection import wait

import torch

PR_SET_PDEATHSIG = 1  # of linux/prctl.h
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8  # of malloc.h


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

    Otherwise it returns blocks of megabytes to the system and gets them back page by page, each
    page cleared: up to a third of a step.
    """
    largest = 32 << 20  # that glibc accepts for M_MMAP_THRESHOLD
    _tune({M_MMAP_THRESHOLD: largest, M_TRIM_THRESHOLD: 256 << 20})


def share_memory_of_threads() -> None:
    """Let threads that take turns use the same free memory."""
    _tune({M_ARENA_MAX: 1, M_TRIM_THRESHOLD: 1 << 30})


_tuned: dict[int, int] = {}


def _tune(settings: dict[int, int]) -> None:
    """Set the C library's values; one that is larger already stays."""
    with suppress(OSError, AttributeError, TypeError):  # another C library: nothing to tune
        library = ctypes.CDLL(None)
        library.gnu_get_libc_version  # noqa: B018 (asks whether it is there)
        for key, value in settings.items():
            _tuned[key] = max(value, _tuned.get(key, value))
            library.mallopt(key, _tuned[key])


def end_with_parent() -> None:
    """Wait until the parent ends, however it ends, and end this process; call it in a thread."""
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
    else:  # this process was not started by multiprocessing
        parent_id = os.getppid()
        while os.getppid() == parent_id:
            time.sleep(1)
    os._exit(1)  # all that matters is on disk


def make_child_setup() -> Callable[[], None] | None:
    """Make the ``preexec_fn`` for ``subprocess.Popen`` that ends a child with this process.

    Returns:
        None on other systems than Linux, which cannot do so.
    """
    if sys.platform != "linux":
        return None
    # Both are looked up here: little is safe between fork and exec.
    parent_id, prctl = os.getpid(), ctypes.CDLL(None).prctl

    def set_up() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent_id:  # the parent was killed before that
            os._exit(1)

    return set_up


def usable_cores() -> int:
    """Count the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
