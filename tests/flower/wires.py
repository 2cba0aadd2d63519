"""A federation without Flower: nodes that are called, so that what the backend makes of their
answers can be tested.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from fedbr.flower.messages import Blobs
from fedbr.flower.node import NodeSettings, reply_to
from fedbr.flower.site import site_of

Edit = Callable[[int, str, Blobs, Callable[[], Blobs]], Blobs | str | None]


class Wires:
    """Calls nodes one after the other; ``edit`` may replace an answer, or leave it out."""

    def __init__(self, nodes: Mapping[int, NodeSettings], edit: Edit | None = None) -> None:
        self.sites = dict(nodes)
        self.edit = edit
        self.sent: list[tuple[int, str, Blobs]] = []

    def nodes(self) -> list[int]:
        return list(self.sites)

    def exchange(
        self, kind: str, messages: Mapping[int, Blobs], timeout: float
    ) -> dict[int, Blobs | str]:
        answers: dict[int, Blobs | str] = {}
        for node, blobs in messages.items():
            self.sent.append((node, kind, blobs))
            settings = self.sites.get(node)
            if settings is None:
                continue

            def answer(blobs: Blobs = blobs, settings: NodeSettings = settings) -> Blobs:
                return reply_to(blobs, settings, site_of(settings))

            given = self.edit(node, kind, blobs, answer) if self.edit else answer()
            if given is not None:
                answers[node] = given
        return answers


def three_nodes(folder: Path, *parts: tuple[int, ...]) -> dict[int, NodeSettings]:
    """Three nodes with two clients each, or as said."""
    shares = parts or ((0, 1), (2, 3), (4, 5))
    return {
        100 + i: NodeSettings(ids, state_dir=folder / f"node{i}") for i, ids in enumerate(shares)
    }
