"""How a process computes that trains or tests models: threads, memory, cores."""

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
    _tune(
        {M_MMAP_THRESHOLD: 32 << 20, M_TRIM_THRESHOLD: 256 << 20}
    )  # the first is the largest that glibc accepts


def share_memory_of_threads() -> None:
    """Let threads that take turns have one store of free memory, for what all of them need between
    their turns.
    """
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
    """Wait for the parent's end, however it ends, and end this process too; call it in a thread."""
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
    else:  # it was not started by multiprocessing
        began_under = os.getppid()
        while os.getppid() == began_under:
            time.sleep(1)
    os._exit(1)  # nothing is here that is not on disk too


def ending_with_us() -> Callable[[], None] | None:
    """Return what a program that is not ours does first to end with this process; Linux knows how.

    It is the ``preexec_fn`` of ``subprocess.Popen``. None: this system has no such thing.
    """
    if sys.platform != "linux":
        return None
    # Both are looked up here: little is safe between fork and exec.
    us, prctl = os.getpid(), ctypes.CDLL(None).prctl

    def begin() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != us:  # killed before that
            os._exit(1)

    return begin


def usable_cores() -> int:
    """Count the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
