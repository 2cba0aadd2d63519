"""Where to compute, and in which precision."""

from __future__ import annotations

import subprocess
import sys
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache

import torch

from ..util.errors import InputError
from .wire import Payload

# A program that computes in bfloat16 what models compute.
PROBE = """
import sys, torch
from torch import nn
device = torch.device(sys.argv[1])
net = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 36, 10)).to(device)
with torch.autocast(device.type, torch.bfloat16):
    loss = net(torch.ones(32, 3, 8, 8, device=device)).float().logsumexp(-1).sum()
    cubes = [torch.ones(4, 64, 64, device=device, requires_grad=True) for _ in range(3)]
    loss = loss + torch.baddbmm(*cubes).sum()
loss.backward()
finite = all(p.grad.isfinite().all() for p in net.parameters())
print("works" if finite else "gives values that are not finite")
"""


def choose(wanted: str) -> torch.device:
    """Return the device to compute on; "auto" is a GPU if PyTorch sees one.

    >>> choose("cpu")
    device(type='cpu')

    Raises:
        InputError: PyTorch has no such device here.
    """
    if wanted == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(wanted)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InputError(
            f"train.device = {wanted!r}: PyTorch has no such device here; 'auto' or 'cpu'"
        ) from error
    return device


@lru_cache
def bfloat16_obstacle(device: str) -> str:
    """Say why mixed precision cannot be used; "" if it can.

    A child process tries it, since some CPUs kill the process that does.
    """
    try:
        child = subprocess.run(
            [sys.executable, "-c", PROBE, device], capture_output=True, text=True, timeout=120
        )
    except subprocess.TimeoutExpired:
        return "a trial did not end within two minutes"
    if child.returncode < 0:
        return f"a trial was killed by signal {-child.returncode}"
    if child.returncode:
        return (child.stderr.strip().splitlines() or ["a trial failed"])[-1]
    return "" if child.stdout.strip() == "works" else f"a trial {child.stdout.strip()}"


def autocast(device: torch.device, amp: bool) -> AbstractContextManager[object]:
    """Let a step compute in mixed precision. Nothing is cached: weights change within a step."""
    if not amp:
        return nullcontext()
    return torch.autocast(device.type, torch.bfloat16, cache_enabled=False)


def autocasts(device: torch.device) -> bool:
    """Say whether computations on the device are in mixed precision now."""
    return torch.amp.is_autocast_available(device.type) and torch.is_autocast_enabled(device.type)


def default_device(device: torch.device) -> AbstractContextManager[object]:
    """Let what is created from nothing lie on the device; on a CPU it does anyway."""
    return nullcontext() if device.type == "cpu" else device


def to_device(payload: Payload, device: torch.device) -> Payload:
    """Return the payload on a device; what is there already is not copied.

    Nobody waits for copies to a device, but for those to main memory.
    """
    non_blocking = device.type != "cpu"
    return {
        section: {key: value.to(device, non_blocking=non_blocking) for key, value in state.items()}
        for section, state in payload.items()
    }
