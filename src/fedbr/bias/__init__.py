"""The study of local learning bias: what local training does to a global model.

Here live a diagnosis (who trains, from which weights, on which samples it is looked at), its
measures and its figures. It plays no round of its own (``core.round``); what is measured while a
run trains is in ``metrics``, what lies in a folder in ``run.diagnosis``, and how it is put into
words in ``report.diagnosis``.
"""

from __future__ import annotations

from .case import Options, before_and_after
from .diagnosis import Diagnosis
from .study import diagnose
from .toy import two_halves

__all__ = ["Diagnosis", "Options", "before_and_after", "diagnose", "two_halves"]
