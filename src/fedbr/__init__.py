"""fedbr: federated learning on heterogeneous data.

>>> import fedbr
>>> short = ["train.rounds=1", "train.local_steps=1"]
>>> results = fedbr.run_recipe("digits", overrides=short, methods=["fedavg", "fedbr"])
>>> results.labels
['FedAvg', 'FedBR']
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from .api import Run as Run
    from .api import compare as compare
    from .api import load_model as load_model
    from .api import run_recipe as run_recipe
    from .api import train as train
    from .bias import diagnose as diagnose
    from .core.method import Batch as Batch
    from .core.method import ClientContext as ClientContext
    from .core.method import Method as Method
    from .core.method import ServerContext as ServerContext
    from .core.model import FedModel as FedModel
    from .core.model import Output as Output
    from .core.spec import Spec as Spec
    from .core.wire import Reply as Reply
    from .core.wire import State as State
    from .data import Federation as Federation
    from .methods import DANN as DANN
    from .methods import SCAFFOLD as SCAFFOLD
    from .methods import VHL as VHL
    from .methods import FedBR as FedBR
    from .methods import FedCM as FedCM
    from .methods import FedDecorr as FedDecorr
    from .methods import FedMix as FedMix
    from .methods import FedNTD as FedNTD
    from .methods import FedProx as FedProx
    from .methods import GroupDRO as GroupDRO
    from .methods import Local as Local
    from .methods import Mixup as Mixup
    from .methods import Moon as Moon
    from .methods import NaiveMix as NaiveMix
    from .metrics import Metric as Metric
    from .util.errors import Diverged as Diverged
    from .util.errors import InputError as InputError

# Where each public name is defined. It is imported when it is first used, so that `fedbr --help`
# does not wait for torch.
_HOME = {
    "Batch": ".core.method",
    "ClientContext": ".core.method",
    "DANN": ".methods",
    "Diverged": ".util.errors",
    "FedBR": ".methods",
    "FedCM": ".methods",
    "FedDecorr": ".methods",
    "FedMix": ".methods",
    "FedModel": ".core.model",
    "FedNTD": ".methods",
    "FedProx": ".methods",
    "Federation": ".data",
    "GroupDRO": ".methods",
    "InputError": ".util.errors",
    "Local": ".methods",
    "Method": ".core.method",
    "Metric": ".metrics",
    "Mixup": ".methods",
    "Moon": ".methods",
    "NaiveMix": ".methods",
    "Output": ".core.model",
    "Reply": ".core.wire",
    "Run": ".api",
    "SCAFFOLD": ".methods",
    "ServerContext": ".core.method",
    "Spec": ".core.spec",
    "State": ".core.wire",
    "VHL": ".methods",
    "compare": ".api",
    "diagnose": ".bias",
    "load_model": ".api",
    "run_recipe": ".api",
    "train": ".api",
}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name], __name__), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
