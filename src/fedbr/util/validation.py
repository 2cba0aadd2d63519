"""Validation with errors of one line, which names the key, the value and what is allowed."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from .errors import InputError, unknown

T = TypeVar("T", bound=BaseModel)


def validate(
    cls: type[T],
    values: Mapping[str, object],
    where: str,
    context: Mapping[str, object] | None = None,
) -> T:
    """Validate values with a pydantic model.

    Args:
        cls: the model.
        values: its fields by name.
        where: the section of the values, as errors name it.
        context: facts for the validators of the model.

    Raises:
        InputError: the line names the first key that is wrong.

    >>> from pydantic import Field
    >>> class Train(BaseModel):
    ...     rounds: int = Field(40, ge=1)
    >>> validate(Train, {"rounds": 0}, "train")
    Traceback (most recent call last):
        ...
    fedbr.util.errors.InputError: train.rounds = 0: input should be greater than or equal to 1
    """
    try:
        return cls.model_validate(dict(values), context=context)
    except ValidationError as error:
        raise explain(cls, error, where) from None


def explain(cls: type[BaseModel], error: ValidationError, where: str) -> InputError:
    """Turn the first error of pydantic (unknown keys first) into one line."""
    first: Any = min(error.errors(), key=lambda e: e["type"] != "extra_forbidden")
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, InputError):
        return cause
    path = [str(part) for part in first["loc"]]
    is_unknown_key = first["type"] == "extra_forbidden"
    if not is_unknown_key:  # leave out pydantic's own names for the members of a union
        path = [part for part in path if not re.search(r"[-\[]|^(int|float|str)$", part)]
    key = ".".join([where, *path] if where else path)
    value = "" if first["type"] == "missing" else f" = {reprlib.repr(first['input'])}"
    if is_unknown_key:
        allowed = _list_fields(cls, path[:-1])
        hint = str(unknown("", path[-1], allowed)).split("; ", 1)[1]
        return InputError(f"{key}{value}: unknown key; {hint}")
    message = first["msg"]
    return InputError(f"{key}{value}: {message[:1].lower()}{message[1:]}")


def _list_fields(cls: type[BaseModel], path: Iterable[str]) -> list[str]:
    """List the keys that are allowed at a place of the recipe."""
    for part in path:
        if part in cls.model_fields:
            inner = cls.model_fields[part].annotation
            inner = next(iter(get_args(inner)), inner)  # the members of a list
            if isinstance(inner, type) and issubclass(inner, BaseModel):
                cls = inner
    return list(cls.model_fields)
