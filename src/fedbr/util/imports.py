"""Imports that depend on the user: packages of an extra, and the user's own code by name."""

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


def require(*packages: str, extra: str, needed_by: str) -> None:
    """Check that packages of an extra can be imported, before work is done that needs them.

    Args:
        packages: their import names.
        extra: the name in ``pip install 'fedbr[extra]'``.
        needed_by: the command, option or key that needs them.

    Raises:
        InputError: for the first package that is missing.

    >>> require("torch", extra="report", needed_by="fedbr report")
    >>> require("nothing", extra="wandb", needed_by="--log wandb")
    Traceback (most recent call last):
        ...
    fedbr.util.errors.InputError: --log wandb: nothing is not installed; pip install 'fedbr[wandb]'
    """
    for package in packages:
        try:
            importlib.import_module(package)
        except ImportError as error:
            problem = "is not installed"
            if error.name != package:  # it is, but something that it needs is not
                problem = f"cannot be imported ({' '.join(str(error).split())})"
            raise InputError(
                f"{needed_by}: {package} {problem}; pip install 'fedbr[{extra}]'"
            ) from error


def import_object(name: str, where: str) -> Any:
    """Import a model's factory or a method that a recipe names as "package.module:name".

    The module may be in the current folder.

    Args:
        where: the key that has the name.

    Raises:
        InputError: the module cannot be imported, whatever it does, or has no such name.

    >>> import_object("fractions:Fraction", "model.name")
    <class 'fractions.Fraction'>
    """
    module_name, _, attribute = name.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # whatever the module does while it is imported
        reason = " ".join(str(error).split())
        if not isinstance(error, ImportError | ValueError):
            reason = f"{type(error).__name__}: {reason}"
        raise InputError(
            f"{where} = {name!r}: cannot import it ({reason}); looked in {here} too"
        ) from error
    if not hasattr(module, attribute):
        close = difflib.get_close_matches(attribute, vars(module), n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        file = module.__file__ or module_name
        raise InputError(f"{where} = {name!r}: {file} has no {attribute!r}{hint}")
    return getattr(module, attribute)


def source_hash(thing: Any) -> str:
    """Hash the source of a function, or of a class and its bases in the same module."""
    text = ""
    for part in getattr(thing, "__mro__", [thing]):
        if getattr(part, "__module__", "") != thing.__module__:
            continue
        with suppress(OSError, TypeError):  # made in a notebook, or by a program
            text += inspect.getsource(part)
    return sha256(text.encode()).hexdigest()[:16]
