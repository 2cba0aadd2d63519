"""Code of the user's that a recipe names as "package.module:name": a factory of models, a method."""

from __future__ import annotations

import difflib
import importlib
import inspect
import sys
from contextlib import suppress
from hashlib import sha256
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
        found = importlib.import_module(module)
    except (Exception, SystemExit) as error:  # whatever the module does while it is imported
        kind = "" if isinstance(error, ImportError | ValueError) else f"{type(error).__name__}: "
        words = " ".join(str(error).split())
        raise InputError(
            f"{where} = {name!r}: cannot import it ({kind}{words}); looked in {here} too"
        ) from error
    if not hasattr(found, attribute):
        close = difflib.get_close_matches(attribute, vars(found), n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise InputError(
            f"{where} = {name!r}: {found.__file__ or module} has no {attribute!r}{hint}"
        )
    return getattr(found, attribute)


def source_hash(thing: Any) -> str:
    """Hash the source of a function or a class, with that of the classes of the same module which
    it is made of.
    """
    parts = [
        c
        for c in getattr(thing, "__mro__", [thing])
        if getattr(c, "__module__", "") == thing.__module__
    ]
    text = ""
    for part in parts:
        with suppress(OSError, TypeError):  # made in a notebook, or by a program
            text += inspect.getsource(part)
    return sha256(text.encode()).hexdigest()[:16]
