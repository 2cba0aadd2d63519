"""Warnings of the package as lines: the one hook, for every command."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any


class WarningLines:
    """Shows the package's warnings as lines, each of them once; others go their usual way."""

    def __init__(self, line: Callable[[str], None]) -> None:
        self._line = line
        self._said: set[str] = set()
        self._usual = warnings.showwarning

    def __call__(
        self, message: Warning | str, category: type[Warning], *place: Any, **more: Any
    ) -> None:
        if category is not RuntimeWarning:
            self._usual(message, category, *place, **more)
        elif str(message) not in self._said:
            self._said.add(str(message))
            self._line(f"fedbr: {message}")
