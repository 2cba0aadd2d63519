"""Replies are looked at before anything is made of them: what cannot be right is refused, with the
reason.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..core.evaluation import Pairs, Piece, Right, RightByClass
from ..core.wire import Payload, Reply, State
from .rehearsal import Rehearsal

COUNTS = (Right.name, RightByClass.name, Pairs.name)  # tallies that count each sample once at most


def objection(reply: Reply, kind: str, expected: Rehearsal) -> str | None:
    """Say why a reply must not be used; None if it may be."""
    if kind == "contribute":
        known = {
            name: section
            for payload in expected.contributed.values()
            for name, section in payload.items()
        }
        payload = reply.payload
        return (
            _unexpected(payload, known, first=1, partial=True)
            or _ragged(payload)
            or _infinite(payload)
        )
    if (step := reply.metrics.get("bad_step", -1)) != -1:
        return f"its loss is not finite at local step {step + 1:.0f}"
    if reply.metrics.get("bad_weights"):
        return "a weight of it is not finite"
    if not math.isfinite(reply.metrics.get("loss", math.nan)):
        return "its loss is not finite"
    return _unexpected(reply.payload, expected.replied) or _infinite(reply.payload)


def plausible(
    counts: Sequence[Sequence[float]],
    pieces: Sequence[Piece],
    tallies: Sequence[str],
    sizes: Sequence[int],
) -> bool:
    """Say whether a node can have counted this.

    counts: of every piece, all tallies one behind the other. sizes: how many numbers each tally
    has.

    >>> plausible([[3.0]], [Piece(0, 0, 5)], ["right"], [1])
    True
    >>> plausible([[6.0]], [Piece(0, 0, 5)], ["right"], [1])
    False
    """
    if len(counts) != len(pieces):
        return False
    for row, piece in zip(counts, pieces, strict=True):
        if len(row) != sum(sizes) or not all(map(math.isfinite, row)):
            return False
        start = 0
        for name, size in zip(tallies, sizes, strict=True):
            own = row[start : start + size]
            start += size
            if name in COUNTS and not _counted_once(own, piece.stop - piece.start):
                return False
    return True


def _counted_once(numbers: Sequence[float], samples: int) -> bool:
    whole = all(n >= 0 and n == int(n) for n in numbers)
    return whole and sum(numbers) <= samples


def _unexpected(
    payload: Payload, expected: Payload, first: int = 0, partial: bool = False
) -> str | None:
    """Compare names, types and shapes with what a client must send.

    first: the dimension from which on shapes count. partial: whether sections may be missing.
    """
    for name in payload.keys() - expected.keys() if expected or not partial else ():
        return f"it has a section {name!r} that nobody asked for"
    for name, section in expected.items():
        if name not in payload:
            if not partial:
                return f"it has no section {name!r}"
        elif reason := _differs(payload[name], section, name, first):
            return reason
    return None


def _differs(section: State, expected: State, name: str, first: int) -> str | None:
    if section.keys() != expected.keys():
        odd = sorted(section.keys() ^ expected.keys())[0]
        return f"{name}: {odd} is {'not wanted' if odd in section else 'missing'}"
    for key, wanted in expected.items():
        given = section[key]
        if (
            given.dtype != wanted.dtype
            or given.dim() != wanted.dim()
            or given.shape[first:] != wanted.shape[first:]
        ):
            return (
                f"{name}: {key} is {str(given.dtype).removeprefix('torch.')} {list(given.shape)}, "
                f"not {str(wanted.dtype).removeprefix('torch.')} {list(wanted.shape)}"
            )
    return None


def _ragged(payload: Payload) -> str | None:
    """Refuse contributions whose tensors are not of the same samples, or of none."""
    for name, section in payload.items():
        rows = {key: value.shape[0] if value.dim() else 0 for key, value in section.items()}
        if len(set(rows.values())) != 1 or 0 in rows.values():
            counts = ", ".join(f"{n} of {key}" for key, n in rows.items())
            return f"{name}: has {counts or 'nothing'}"
    return None


def _infinite(payload: Payload) -> str | None:
    for name, section in payload.items():
        for key, value in section.items():
            if value.is_floating_point() and not value.isfinite().all():
                return f"{name}: {key} is not finite"
    return None
