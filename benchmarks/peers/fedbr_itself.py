"""fedbr in the same table: timed as the others are."""

from __future__ import annotations

from fedbr import bench
from fedbr.bench import Workload
from fedbr.data import Federation

from .common import RoundDone, nothing


def rounds(work: Workload, clients: Federation, round_done: RoundDone = nothing) -> None:
    """Train through the Python interface, as a user would."""
    bench.fedbr_rounds(work, clients, [], watch=lambda line: round_done())
