"""Where to compute, and in what precision: chosen once, before anything runs."""

from __future__ import annotations

import subprocess
import sys
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache

import torch

from ..util.errors import InputError
from .wire import Payload

PROBE = """
import sys, torch
from torch import nn
device = torch.device(sys.argv[1])
net = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 36, 10)).to(device)
with torch.autocast(device.type, torch.bfloat16):
    loss = net(torch.ones(32, 3, 8, 8, device=device)).float().logsumexp(-1).sum()
    loss = loss + torch.baddbmm(*(torch.ones(4, 64, 64, device=device, requires_grad=True) for _ in range(3))).sum()
loss.backward()
print("works" if all(p.grad.isfinite().all() for p in net.parameters()) else "gives values that are not finite")
"""


def choose(wanted: str) -> torch.device:
    """Return the device to compute on; "auto" is a GPU if PyTorch sees one."""
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
    """Say why mixed precision cannot be used ("": it can); a child process tries, since the CPU may
    kill it.
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
    return (
        torch.autocast(device.type, torch.bfloat16, cache_enabled=False) if amp else nullcontext()
    )


def autocasts(device: torch.device) -> bool:
    """Say whether somebody computes in mixed precision here."""
    return torch.amp.is_autocast_available(device.type) and torch.is_autocast_enabled(device.type)


def default(device: torch.device) -> AbstractContextManager[object]:
    """Let what is created from nothing lie on the device; on a CPU it does anyway."""
    return nullcontext() if device.type == "cpu" else device


def moved(payload: Payload, device: torch.device) -> Payload:
    """Return the payload on a device; what is there already is not copied. On the way back it is
    waited for.
    """
    away = device.type != "cpu"
    return {
        s: {k: v.to(device, non_blocking=away) for k, v in state.items()}
        for s, state in payload.items()
    }
