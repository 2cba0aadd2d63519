"""Who holds which clients: nodes are asked when they appear, and forgotten when they are gone."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..util.errors import RunError
from .messages import Blobs, ask, ranges, read_answer

log = logging.getLogger("fedbr.flower")

POLL = 1.0  # seconds between looks for new nodes
PATIENCE = (
    30.0  # seconds until a node that could not answer is asked again; twice as many each time
)
BRIEF = (
    30.0  # seconds for a new node to answer while the others could go on; twice as many each time
)


class Carrier(Protocol):
    """Carries messages to nodes and brings their answers back; an answer may be a line that says
    what went wrong.
    """

    def nodes(self) -> list[int]: ...

    def exchange(
        self, kind: str, messages: Mapping[int, Blobs], timeout: float
    ) -> dict[int, Blobs | str]: ...


@dataclass(frozen=True)
class Settings:
    """How long the server waits, and for how many."""

    reply_timeout: float = 600.0  # seconds for a round's replies
    wait: float = 300.0  # seconds for nodes to appear
    min_share: float = 0.5  # of the clients asked, that must answer


@dataclass
class Known:
    """A node that answered."""

    clients: list[int]
    facts: dict[str, Any]
    held: set[str] = field(default_factory=set)  # shared payloads that are on its disk


Check = Callable[[list[int], dict[str, Any]], str | None]  # why the server cannot work with a node


class Roster:
    def __init__(self, carrier: Carrier, settings: Settings, order: Mapping[str, Any]) -> None:
        self.carrier, self.settings, self.order = carrier, settings, order
        self.known: dict[int, Known] = {}
        self.check: Check = lambda clients, facts: None
        self.troubles: dict[int, str] = {}  # node -> why it is of no use now
        self._again: dict[int, float] = {}  # node -> when to ask it again
        self._failures: dict[int, int] = {}  # node -> how often it could not answer

    def refresh(self, brief: bool = False) -> None:
        """Forget nodes that are gone; ask those that are new, ``brief`` if nobody depends on them."""
        here = self.carrier.nodes()
        for gone in self.known.keys() - set(here):
            log.warning("clients %s: their node is gone", ranges(self.known.pop(gone).clients))
        new = [
            n for n in here if n not in self.known and self._again.get(n, 0.0) <= time.monotonic()
        ]
        if not new:
            return
        question = ask({**self.order, "kind": "who"})
        failures = max(self._failures.get(node, 0) for node in new)
        timeout = (
            min(BRIEF * 2 ** min(10, failures), self.settings.wait) if brief else self.settings.wait
        )
        found = self.carrier.exchange("query", dict.fromkeys(new, question), timeout)
        for node in new:
            self._introduce(node, found.get(node, "it did not answer"))

    def recheck(self) -> None:
        """Look at the nodes that are known with a check that came later."""
        for node, known in list(self.known.items()):
            if reason := self._objection(known.clients, known.facts):
                self._refuse(node, f"clients {ranges(known.clients)}: {reason}")

    def wait_for_one(self) -> None:
        """Wait until some node answers."""
        end = time.monotonic() + self.settings.wait
        self.refresh()
        while not self.known:
            if time.monotonic() >= end:
                reasons = "".join(f"; {reason}" for reason in self.troubles.values())
                raise RunError(f"waited {self.settings.wait:.0f} s: no node is there{reasons}")
            time.sleep(POLL)
            self.refresh()

    def holders(self) -> dict[int, int]:
        """Return the node of each client; of two that claim one, the later, which is the first one
        restarted.
        """
        return {client: node for node, known in self.known.items() for client in known.clients}

    def wait(self, clients: Collection[int], enough: int, patient: bool) -> None:
        """Wait for the clients' nodes; if not ``patient``, only until there are enough."""
        end = time.monotonic() + self.settings.wait
        while True:
            there = len(set(clients) & self.holders().keys())
            self.refresh(brief=not patient and there >= enough)
            missing = set(clients) - self.holders().keys()
            present = len(clients) - len(missing)
            if not missing or (present >= enough and not patient):
                return
            if time.monotonic() >= end:
                break
            time.sleep(POLL)
        line = f"no node holds clients {ranges(missing)}; {present} of {len(clients)} are there"
        if present >= enough:
            log.warning("%s, which is enough", line)
            return
        reasons = "".join(f"; {reason}" for reason in self.troubles.values())
        raise RunError(f"waited {self.settings.wait:.0f} s: {line}, {enough} are needed{reasons}")

    def lose(self, node: int, reason: str) -> None:
        """Ask a node anew before it gets work again."""
        log.warning("%s", reason)
        self.troubles[node] = reason
        self.known.pop(node, None)

    def _introduce(self, node: int, found: Blobs | str) -> None:
        ours = self.order["version"]
        header: dict[str, Any] = {"version": ours, "error": found, "clients": []}
        try:
            if not isinstance(found, str):
                header, _ = read_answer(found)
            clients, held = (
                [int(client) for client in header["clients"]],
                set(header.get("held", [])),
            )
            reason: str | None = header.get("error") or self._objection(clients, header["facts"])
            if (theirs := header.get("version")) != ours:
                reason = f"has fedbr {theirs}, the server {ours}; all must have the same version"
        except Exception as error:  # nothing that a node sends may stop the server
            clients, reason = [], f"its answer makes no sense ({type(error).__name__}: {error})"
        if reason:
            whose = f"clients {ranges(clients)}" if clients else f"node {node}"
            self._refuse(node, f"{whose}: {reason}")
            return
        if taken := sorted(set(clients) & self.holders().keys()):
            log.warning("clients %s: another node holds them now", ranges(taken))
        self.troubles.pop(node, None)
        self._failures.pop(node, None)
        self.known[node] = Known(clients, header["facts"], held)
        log.info("clients %s: their node is here", ranges(clients))

    def _objection(self, clients: list[int], facts: dict[str, Any]) -> str | None:
        try:
            return self.check(clients, facts)
        except Exception as error:  # nothing that a node sends may stop the server
            return f"its facts make no sense ({type(error).__name__}: {error})"

    def _refuse(self, node: int, reason: str) -> None:
        self.lose(node, reason)
        self._again[node] = time.monotonic() + PATIENCE * 2 ** min(10, self._failures.get(node, 0))
        self._failures[node] = self._failures.get(node, 0) + 1
