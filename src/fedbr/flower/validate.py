"""Check what clients send before it is used: what cannot be right is refused, with the reason."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor

from ..core.evaluation import Pairs, Piece, Right, RightByClass
from ..core.wire import Payload, Reply, State
from .rehearsal import Rehearsal

SAMPLE_COUNTS = (
    Right.name,
    RightByClass.name,
    Pairs.name,
)  # tallies that count each sample once at most


def find_problem(reply: Reply, kind: str, expected: Rehearsal) -> str | None:
    """Say why a reply must not be used; None if it may be.

    Args:
        reply: as a node sent it.
        kind: what the client was asked to do, "contribute" or "train".
        expected: what a client sends of these methods.
    """
    if kind == "contribute":
        sections: dict[str, State] = {}
        for payload in expected.contributed.values():
            sections |= payload
        return (
            _compare(reply.payload, sections, first=1, partial=True)
            or _check_rows(reply.payload)
            or _check_finite(reply.payload)
        )
    step = reply.metrics.get("bad_step", -1)
    if step != -1:
        return f"its loss is not finite at local step {step + 1:.0f}"
    if reply.metrics.get("bad_weights"):
        return "a weight of it is not finite"
    if not math.isfinite(reply.metrics.get("loss", math.nan)):
        return "its loss is not finite"
    return _compare(reply.payload, expected.replied) or _check_finite(reply.payload)


def is_plausible(
    counts: Sequence[Sequence[float]],
    pieces: Sequence[Piece],
    tallies: Sequence[str],
    sizes: Sequence[int],
) -> bool:
    """Say whether a node can have counted this.

    Args:
        counts: of every piece, all tallies one behind the other.
        pieces: of the test sets, on which models were tested.
        tallies: the names of what was counted.
        sizes: how many numbers each tally has.

    >>> is_plausible([[3.0]], [Piece(0, 0, 5)], ["right"], [1])
    True
    >>> is_plausible([[6.0]], [Piece(0, 0, 5)], ["right"], [1])
    False
    """
    if len(counts) != len(pieces):
        return False
    for row, piece in zip(counts, pieces, strict=True):
        if len(row) != sum(sizes) or not all(map(math.isfinite, row)):
            return False
        start = 0
        for name, size in zip(tallies, sizes, strict=True):
            numbers = row[start : start + size]
            start += size
            samples = piece.stop - piece.start
            if name in SAMPLE_COUNTS and not _can_count_samples(numbers, samples):
                return False
    return True


def _can_count_samples(numbers: Sequence[float], samples: int) -> bool:
    """Say whether numbers can have counted each of some samples at most once."""
    are_counts = all(number >= 0 and number == int(number) for number in numbers)
    return are_counts and sum(numbers) <= samples


def _compare(
    payload: Payload, expected: Payload, first: int = 0, partial: bool = False
) -> str | None:
    """Compare names, types and shapes with what a client must send.

    Args:
        payload: what it sent.
        expected: what it must send.
        first: the dimension from which on shapes count.
        partial: whether sections may be missing; with nothing expected, any may be there.

    Returns:
        The first difference; None if there is none.
    """
    if expected or not partial:
        for name in payload.keys() - expected.keys():
            return f"it has an unexpected section {name!r}"
    for name, section in expected.items():
        if name in payload:
            reason = _compare_section(payload[name], section, name, first)
            if reason is not None:
                return reason
        elif not partial:
            return f"it has no section {name!r}"
    return None


def _compare_section(section: State, expected: State, name: str, first: int) -> str | None:
    different = sorted(section.keys() ^ expected.keys())
    if different:
        key = different[0]
        return f"{name}: {key} is {'unexpected' if key in section else 'missing'}"
    for key, value in expected.items():
        sent = section[key]
        same_form = sent.dtype == value.dtype and sent.dim() == value.dim()
        if not same_form or sent.shape[first:] != value.shape[first:]:
            return f"{name}: {key} is {_describe(sent)}, not {_describe(value)}"
    return None


def _describe(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


def _check_rows(payload: Payload) -> str | None:
    """Refuse contributions whose tensors are not of the same samples, or of none."""
    for name, section in payload.items():
        rows = {key: value.shape[0] if value.dim() else 0 for key, value in section.items()}
        if len(set(rows.values())) != 1 or 0 in rows.values():
            counts = ", ".join(f"{count} of {key}" for key, count in rows.items())
            return f"{name}: has {counts or 'nothing'}"
    return None


def _check_finite(payload: Payload) -> str | None:
    for name, section in payload.items():
        for key, value in section.items():
            if value.is_floating_point() and not value.isfinite().all():
                return f"{name}: {key} is not finite"
    return None
