"""Turn what pydantic complains about into one line that names the key, the value and what is
allowed.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from .errors import InputError, unknown

T = TypeVar("T", bound=BaseModel)


def validated(
    cls: type[T], values: Mapping[str, Any], where: str, context: Mapping[str, object] | None = None
) -> T:
    """Validate, and complain in one line; ``context`` is what validators may ask for."""
    try:
        return cls.model_validate(dict(values), context=context)
    except ValidationError as error:
        raise explain(cls, error, where) from None


def explain(cls: type[BaseModel], error: ValidationError, where: str) -> InputError:
    """Turn the first complaint (unknown keys first) into one line."""
    first: Any = min(error.errors(), key=lambda e: e["type"] != "extra_forbidden")
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, InputError):
        return cause
    path = [str(part) for part in first["loc"]]
    extra = first["type"] == "extra_forbidden"
    if not extra:  # leave out pydantic's own words for the members of a union
        path = [part for part in path if not re.search(r"[-\[]|^(int|float|str)$", part)]
    key = ".".join([where, *path] if where else path)
    shown = "" if first["type"] == "missing" else f" = {reprlib.repr(first['input'])}"
    if extra:
        hint = str(unknown("", path[-1], _fields(cls, path[:-1]))).split("; ", 1)[1]
        return InputError(f"{key}{shown}: unknown key; {hint}")
    return InputError(f"{key}{shown}: {first['msg'][:1].lower()}{first['msg'][1:]}")


def _fields(cls: type[BaseModel], path: Iterable[str]) -> list[str]:
    """Name the keys that are allowed at a place of the recipe."""
    for part in path:
        if part in cls.model_fields:
            inner = cls.model_fields[part].annotation
            inner = next(iter(get_args(inner)), inner)  # the members of a list
            if isinstance(inner, type) and issubclass(inner, BaseModel):
                cls = inner
    return list(cls.model_fields)
