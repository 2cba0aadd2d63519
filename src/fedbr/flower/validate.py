"""Replies are looked at before anything is made of them: what cannot be right is refused, with the
reason.
"""

from __future__ import annotations

import math

from ..core.wire import Payload, Reply, State
from .rehearsal import Rehearsal


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
            _strange(payload, known, first=1, partial=True)
            or _ragged(payload)
            or _infinite(payload)
        )
    if (step := reply.metrics.get("bad_step", -1)) != -1:
        return f"its loss is not finite at local step {step + 1:.0f}"
    if reply.metrics.get("bad_weights"):
        return "a weight of it is not finite"
    if not math.isfinite(reply.metrics.get("loss", math.nan)):
        return "its loss is not finite"
    return _strange(reply.payload, expected.replied) or _infinite(reply.payload)


def _strange(
    payload: Payload, expected: Payload, first: int = 0, partial: bool = False
) -> str | None:
    """Compare names, types and shapes (from dimension ``first`` on) with what a client must send."""
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
        found = section[key]
        if (
            found.dtype != wanted.dtype
            or found.dim() != wanted.dim()
            or found.shape[first:] != wanted.shape[first:]
        ):
            return (
                f"{name}: {key} is {str(found.dtype).removeprefix('torch.')} {list(found.shape)}, "
                f"not {str(wanted.dtype).removeprefix('torch.')} {list(wanted.shape)}"
            )
    return None


def _ragged(payload: Payload) -> str | None:
    """Refuse contributions whose tensors are not of the same samples, or of none."""
    for name, section in payload.items():
        rows = {key: value.shape[0] if value.dim() else 0 for key, value in section.items()}
        if len(set(rows.values())) != 1 or 0 in rows.values():
            return (
                f"{name}: has {', '.join(f'{n} of {key}' for key, n in rows.items()) or 'nothing'}"
            )
    return None


def _infinite(payload: Payload) -> str | None:
    for name, section in payload.items():
        for key, value in section.items():
            if value.is_floating_point() and not value.isfinite().all():
                return f"{name}: {key} is not finite"
    return None
