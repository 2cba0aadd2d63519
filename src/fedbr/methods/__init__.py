"""The methods: one file each, and the table by which recipes name them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.errors import unknown
from ..core.method import Method
from ..core.validation import validated
from .fedbr import FedBR

__all__ = ["METHODS", "FedBR", "build"]

METHODS: dict[str, type[Method]] = {cls.name: cls for cls in (FedBR,)}


def build(name: str, options: Mapping[str, Any], where: str = "method") -> Method:
    """Make a method by its name in the table."""
    if name not in METHODS:
        raise unknown(where, name, [*METHODS, "fedavg"])
    return validated(METHODS[name], options, name)
