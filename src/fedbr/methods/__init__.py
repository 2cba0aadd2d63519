"""The methods: one file each, and the table by which recipes name them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import resources
from typing import Any

from ..core.errors import unknown
from ..core.method import Method
from ..core.validation import validated
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
    Local, FedProx, SCAFFOLD, Moon, DANN, GroupDRO, FedBR, Mixup, NaiveMix, FedMix, VHL, FedCM, FedDecorr, FedNTD,
)  # fmt: skip
METHODS: dict[str, type[Method]] = {cls.name: cls for cls in TABLE}
# Bytes of a client against FedAvg on the recipe digits: counted by `make traffic`, held true by a test.
TRAFFIC: dict[str, dict[str, float]] = json.loads((resources.files(__package__) / "traffic.json").read_text("utf-8"))
__all__ = [
    "DANN", "METHODS", "SCAFFOLD", "TRAFFIC", "VHL", "FedBR", "FedCM", "FedDecorr", "FedMix", "FedNTD", "FedProx",
    "GroupDRO", "Local", "Mixup", "Moon", "NaiveMix", "build",
]  # fmt: skip


def build(name: str, options: Mapping[str, Any], where: str = "method") -> Method:
    """Make a method by its name in the table."""
    if name not in METHODS:
        raise unknown(where, name, [*METHODS, "fedavg"])
    return validated(METHODS[name], options, name)
