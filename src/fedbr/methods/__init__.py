"""The methods: one file each, and the table by which recipes name them.

A method is some of the hooks of ``core.method.Method``. It reads no files and no recipe, draws from
no generator but those that it is given, and remembers nothing by itself. To add one: a file beside
these, and a line in METHODS.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import resources

from ..core.method import Method
from ..core.method_checks import check_name
from ..util.errors import InputError, unknown
from ..util.imports import import_object
from ..util.validation import validate
from .dann import DANN
from .fedbr import FedBR
from .fedcm import FedCM
from .feddecorr import FedDecorr
from .fedmix import FedMix
from .fedntd import FedNTD
from .fedprox import FedProx
from .groupdro import GroupDRO
from .local import Local
from .mixup import Mixup
from .moon import Moon
from .naivemix import NaiveMix
from .scaffold import SCAFFOLD
from .vhl import VHL

# In the order of the paper's tables.
TABLE = (
    Local,
    FedProx,
    SCAFFOLD,
    Moon,
    DANN,
    GroupDRO,
    FedBR,
    Mixup,
    NaiveMix,
    FedMix,
    VHL,
    FedCM,
    FedDecorr,
    FedNTD,
)
METHODS: dict[str, type[Method]] = {cls.name: cls for cls in TABLE}
# Bytes of a client against FedAvg on the recipe digits: counted by `make traffic`, checked by a
# test.
TRAFFIC: dict[str, dict[str, float]] = json.loads(
    (resources.files(__package__) / "traffic.json").read_text("utf-8")
)
__all__ = [
    "DANN",
    "METHODS",
    "SCAFFOLD",
    "TRAFFIC",
    "VHL",
    "FedBR",
    "FedCM",
    "FedDecorr",
    "FedMix",
    "FedNTD",
    "FedProx",
    "GroupDRO",
    "Local",
    "Mixup",
    "Moon",
    "NaiveMix",
    "build",
    "find",
]


def find(name: str, where: str = "method") -> type[Method]:
    """Return a method's class by its name in the table, or by "package.module:Class".

    >>> find("fedprox").__name__
    'FedProx'

    Args:
        name: the name.
        where: what the error message says of where the name comes from.

    Raises:
        InputError: there is no such method.
    """
    if ":" in name:
        return _import_method(name, where)
    if name not in METHODS:
        raise InputError(
            f"{unknown(where, name, [*METHODS, 'fedavg'])}, or yours: package.module:Class"
        )
    return METHODS[name]


def build(name: str, options: Mapping[str, object], where: str = "method") -> Method:
    """Make a method, named as for ``find``.

    >>> build("fedprox", {"mu": 0.5})
    FedProx(mu=0.5)

    Raises:
        InputError: there is no such method, or it does not have such parameters.
    """
    cls = find(name, where)
    return validate(cls, options, cls.name)


def _import_method(name: str, where: str) -> type[Method]:
    """Import a user's method."""
    cls = import_object(name, where)
    if not isinstance(cls, type) or not issubclass(cls, Method) or cls is Method:
        raise InputError(
            f"{where} = {name!r}: {cls!r} is not a class of methods, a subclass of fedbr.Method"
        )
    check_name(cls)
    if METHODS.get(cls.name, cls) is not cls:
        raise InputError(
            f"{where} = {name!r}: its name, {cls.name!r}, is already in use by a method of fedbr; "
            "choose another"
        )
    return cls
