"""What is checked of methods before a run: names, hooks, and which of them go together."""

from __future__ import annotations

import ast
import difflib
import inspect
import re
import textwrap
from collections.abc import Sequence

from ..util.errors import InputError
from .method import Method, overrides

# The methods and properties that the runtime calls or reads.
HOOKS = tuple(name for name in vars(Method) if not name.startswith(("_", "model_")))
# Hooks that only one of the methods of a run may have.
ONLY_ONE = {
    "weigh": "choose the aggregation weights",
    "combine": "make the average",
    "personal": "keep a client's own model",
}
# Names that recipes, overrides and payloads use already.
RESERVED = ("compare", "data", "fedavg", "metrics", "model", "name", "train")


def check_methods(methods: Sequence[Method]) -> None:
    """Refuse methods that cannot be used, or not together.

    Raises:
        InputError: with the reason.
    """
    for method in methods:
        if not isinstance(method, Method):
            raise InputError(
                f"methods: {method!r} is not a method; list instances, such as "
                "[fedbr.FedBR(lam=0.1)]"
            )
        check_name(type(method))
        _check_hooks(type(method))
    names = [method.name for method in methods]
    listed = "+".join(names)
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"methods = {listed}: duplicate {name!r}; list a method once")
    for method in methods:
        if method.alone and len(methods) > 1:
            raise InputError(
                f"methods = {listed}: with {method.name!r} clients train alone; it cannot be "
                "combined with other methods"
            )
    for hook, what in ONLY_ONE.items():
        rivals = [method.name for method in methods if overrides(method, hook)]
        if len(rivals) > 1:
            raise InputError(f"methods = {listed}: {' and '.join(rivals)} both {what}; keep one")


def check_name(cls: type[Method]) -> None:
    """Refuse a name by which a method could not be found again.

    Raises:
        InputError: the class has no name, or one that is reserved or not a word.
    """
    name = getattr(cls, "name", None)
    if not isinstance(name, str) or not re.fullmatch(r"[\w-]+", name) or name in RESERVED:
        value = "" if name is None else f" = {name!r}"
        raise InputError(
            f"methods: {cls.__name__}.name{value} must consist of letters, digits, - and _, and "
            f"must not be one of {', '.join(RESERVED)}"
        )


def _check_hooks(cls: type[Method]) -> None:
    """Refuse what is nearly a hook, and hooks that cannot be called."""
    for name, member in vars(cls).items():
        if not callable(member) or name.startswith("_"):
            continue
        if name in HOOKS:
            _check_parameters(cls, name)
            continue
        close = difflib.get_close_matches(name, HOOKS, n=1, cutoff=0.75)
        if close:
            raise InputError(
                f"methods: {cls.__name__}.{name} is no hook; did you mean {close[0]!r}?"
            )


def _check_parameters(cls: type[Method], hook: str) -> None:
    """Refuse a hook that cannot be called as the runtime calls it."""
    parameters = inspect.signature(getattr(Method, hook)).parameters
    try:
        inspect.signature(getattr(cls, hook)).bind(*parameters)
    except TypeError:
        raise InputError(
            f"methods: {cls.__name__}.{hook} is called with ({', '.join(parameters)}), which it "
            "does not accept"
        ) from None


def without_neutral(methods: Sequence[Method]) -> list[Method]:
    """Leave out the methods whose settings make them do nothing."""
    return [method for method in methods if not (method.neutral and _knows_all_hooks(method))]


def _knows_all_hooks(method: Method) -> bool:
    """Say whether ``neutral`` was written for this class.

    A subclass may have hooks of its own, of which the ``neutral`` that it inherits knows nothing.
    """
    for cls in type(method).__mro__:
        if "neutral" in vars(cls):
            return True
        if any(hook in vars(cls) for hook in HOOKS):
            return False
    return False


def loss_returns_nothing(method: Method) -> bool:
    """Say whether ``loss`` has no return statement, as when its last line was forgotten."""
    try:
        (hook,) = ast.parse(textwrap.dedent(inspect.getsource(type(method).loss))).body
    except (OSError, TypeError, SyntaxError):  # typed in, or not written in Python
        return False
    return isinstance(hook, ast.FunctionDef) and not _returns(hook)


def _returns(node: ast.AST) -> bool:
    """Say whether a function can return or raise; functions inside it do not count."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.Lambda | ast.ClassDef):
            continue
        if isinstance(child, ast.Return | ast.Raise) or _returns(child):
            return True
    return False
