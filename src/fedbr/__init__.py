"""fedbr: federated learning on heterogeneous data."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from .api import Run as Run
    from .api import train as train
    from .core.errors import Diverged as Diverged
    from .core.errors import InputError as InputError
    from .core.method import Batch as Batch
    from .core.method import ClientContext as ClientContext
    from .core.method import Method as Method
    from .core.method import ServerContext as ServerContext
    from .core.model import FedModel as FedModel
    from .core.model import Output as Output
    from .data import Federation as Federation
    from .methods import FedBR as FedBR

# Loaded when first used, so that `fedbr --help` does not wait for torch.
_HOME = {
    "Batch": ".core.method",
    "ClientContext": ".core.method",
    "Diverged": ".core.errors",
    "FedBR": ".methods",
    "FedModel": ".core.model",
    "Federation": ".data",
    "InputError": ".core.errors",
    "Method": ".core.method",
    "Output": ".core.model",
    "Run": ".api",
    "ServerContext": ".core.method",
    "train": ".api",
}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name], __name__), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
