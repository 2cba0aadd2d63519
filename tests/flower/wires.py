"""A federation without Flower: nodes are called, and tests may change their answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from fedbr.flower.node import NodeSettings, reply_to
from fedbr.flower.site import site_of
from fedbr.flower.types import Blobs

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

            edited = self.edit(node, kind, blobs, answer) if self.edit else answer()
            if edited is not None:
                answers[node] = edited
        return answers


def three_nodes(folder: Path, *parts: tuple[int, ...]) -> dict[int, NodeSettings]:
    """Three nodes with two clients each, or with these."""
    shares = parts or ((0, 1), (2, 3), (4, 5))
    return {
        100 + i: NodeSettings(ids, state_dir=folder / f"node{i}") for i, ids in enumerate(shares)
    }
