"""Code of the user's that a recipe names as "package.module:name": a factory of models, a method."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from .errors import InputError


def imported(name: str, where: str) -> Any:
    """Return what is called so; the module may lie in the current folder."""
    module, _, attribute = name.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    try:
        return getattr(importlib.import_module(module), attribute)
    except Exception as error:  # whatever the module does while it is imported
        kind = "" if isinstance(error, ImportError | AttributeError | ValueError) else f"{type(error).__name__}: "
        raise InputError(f"{where} = {name!r}: cannot import it ({kind}{error})") from error
