"""Where a run was made: versions, hardware, threads."""

from __future__ import annotations

import contextlib
import os
import platform
from importlib import metadata
from pathlib import Path

import torch

from ..util.tables import Json

PACKAGES = ("fedbr", "torch", "numpy", "scikit-learn", "safetensors", "pydantic")


def describe_environment() -> Json:
    """Return what a result may depend on beside the recipe."""
    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "system": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": 1,  # of torch, in every process: see util.processes.one_thread
        "gpus": gpus,  # that there are; run.json says which one was used
        "torch_capability": torch.backends.cpu.get_cpu_capability(),
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()
