"""Warnings of the package as lines: the one hook, for every command."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any


class WarningLines:
    """Shows the package's warnings as lines, each of them once; others go their usual way.

    Args:
        line: prints a line.

    >>> show = WarningLines(print)
    >>> for _ in range(2):
    ...     show("no test samples", RuntimeWarning)
    fedbr: no test samples
    """

    def __init__(self, line: Callable[[str], None]) -> None:
        self._line = line
        self._shown: set[str] = set()
        self._usual = warnings.showwarning

    def __call__(
        self, message: Warning | str, category: type[Warning], *place: Any, **more: Any
    ) -> None:
        if category is not RuntimeWarning:
            self._usual(message, category, *place, **more)
        elif str(message) not in self._shown:
            self._shown.add(str(message))
            self._line(f"fedbr: {message}")
