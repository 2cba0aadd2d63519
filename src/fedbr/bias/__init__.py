"""Local learning bias, made visible: what local training does to a global model, and what FedBR
does about it.
"""

from __future__ import annotations

from .case import Options, before_and_after
from .study import diagnose
from .toy import two_halves

__all__ = ["Options", "before_and_after", "diagnose", "two_halves"]
