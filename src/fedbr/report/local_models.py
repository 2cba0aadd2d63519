"""Local models beside the aggregated one, as logged with metrics.bias_every: the paper's table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..core.records import RoundRecord
from ..run.results import Results
from ..util.estimate import Estimate
from .tables import Table

Rounds = Mapping[str, Sequence[Sequence[RoundRecord]]]  # by label, of every seed: all with a bias

COLUMNS = {  # value of a LocalBias -> its header, and how to show it: a factor and digits
    "accuracy_local": ("local %", 100, 1),
    "accuracy_aggregated": ("aggregated %", 100, 1),
    "share_present_unseen": ("unseen to seen %", 100, 1),
    "entropy": ("entropy", 1, 2),
    "cosine": ("cosine of updates", 1, 2),
    "distance": ("distance of updates", 1, 2),
}
NOTE = (
    "In the last round that was looked at; mean over clients, and over the seeds that have not "
    "diverged. Both accuracies are on all test data, every class counting the same."
)


def rounds_with_bias(results: Results) -> Rounds:
    """Return the rounds in which clients' models were looked at.

    Runs that diverged are left out, and variants that have no such round.
    """
    by_label: dict[str, list[Sequence[RoundRecord]]] = {}
    for run in results.runs:
        rounds = [record for record in run.rounds if record.bias is not None]
        if rounds and not run.diverged:
            by_label.setdefault(run.label, []).append(rounds)
    return by_label


def table(rounds: Rounds) -> Table:
    """Make the table of the last round that was looked at, a row for each variant."""
    header = ["", "round", *(name for name, _, _ in COLUMNS.values())]
    return header, [_row(label, seeds) for label, seeds in rounds.items()]


def _row(label: str, seeds: Sequence[Sequence[RoundRecord]]) -> list[str]:
    last = [rounds[-1] for rounds in seeds]
    by_seed = [record.bias.values() for record in last if record.bias is not None]
    cells = []
    for key, (_, factor, digits) in COLUMNS.items():
        estimate = Estimate.of(values[key] for values in by_seed)
        cells.append(estimate.show(digits, factor) if estimate else "-")
    first = min(record.round for record in last)
    latest = max(record.round for record in last)
    when = str(first) if first == latest else f"{first} to {latest}"
    return [label, when, *cells]
