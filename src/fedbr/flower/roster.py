"""Who holds which clients: nodes are asked when they appear, and forgotten when they are gone."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from .. import __version__
from ..recipe.schema import Recipe
from ..util.errors import InputError, RunError
from .facts import NodeFacts
from .messages import Answer, Blobs, Request, ranges

log = logging.getLogger("fedbr.flower")

POLL = 1.0  # seconds between looks for new nodes
# Seconds until a node that could not answer is asked again; twice as many each time.
PATIENCE = 30.0
# Seconds for a new node to answer while the others could go on; twice as many each time.
BRIEF = 30.0


class Transport(Protocol):
    """Carries messages to nodes and brings their answers back.

    An answer may be a line that says what went wrong.
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
class KnownNode:
    """A node that answered."""

    clients: Sequence[int]
    facts: NodeFacts
    held: set[str] = field(default_factory=set)  # shared payloads that are on its disk


# Says why the server cannot work with a node that has such clients; None if it can.
Check = Callable[[Sequence[int], NodeFacts], str | None]


class Roster:
    """The nodes that a server can work with."""

    def __init__(self, transport: Transport, settings: Settings, recipe: Recipe) -> None:
        self.transport, self.settings = transport, settings
        self.known: dict[int, KnownNode] = {}
        self.check: Check = lambda clients, facts: None
        self.problems: dict[int, str] = {}  # node -> why it is of no use now
        self._question = Request("who", recipe).write()
        self._again: dict[int, float] = {}  # node -> when to ask it again
        self._failures: dict[int, int] = {}  # node -> how often it could not answer

    def refresh(self, brief: bool = False) -> None:
        """Forget nodes that are gone, and ask those that are new.

        brief: whether nobody depends on the new ones, so that they get little time.
        """
        here = self.transport.nodes()
        for gone in self.known.keys() - set(here):
            log.warning("clients %s: their node is gone", ranges(self.known.pop(gone).clients))
        now = time.monotonic()
        new = [n for n in here if n not in self.known and self._again.get(n, 0.0) <= now]
        if not new:
            return
        timeout = self.settings.wait
        if brief:
            failures = max(self._failures.get(node, 0) for node in new)
            timeout = min(BRIEF * 2 ** min(10, failures), timeout)
        answers = self.transport.exchange("query", dict.fromkeys(new, self._question), timeout)
        for node in new:
            self._introduce(node, Answer.read(answers.get(node, "it did not answer")))

    def recheck(self, check: Check) -> None:
        """Look at all nodes, those that are known too, with another check."""
        self.check = check
        for node, known in list(self.known.items()):
            if reason := check(known.clients, known.facts):
                self._refuse(node, f"clients {ranges(known.clients)}: {reason}")

    def wait_for_one(self) -> None:
        """Wait until some node answers."""
        end = time.monotonic() + self.settings.wait
        self.refresh()
        while not self.known:
            if time.monotonic() >= end:
                waited = f"waited {self.settings.wait:.0f} s: no node is there"
                raise RunError(waited + self._reasons())
            time.sleep(POLL)
            self.refresh()

    def holders(self) -> dict[int, int]:
        """Return the node of each client.

        Of two that claim one it is the later, which is the first one restarted.
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
        waited = f"waited {self.settings.wait:.0f} s: {line}, {enough} are needed"
        raise RunError(waited + self._reasons())

    def lose(self, node: int, reason: str) -> None:
        """Ask a node anew before it gets work again."""
        log.warning("%s", reason)
        self.problems[node] = reason
        self.known.pop(node, None)

    def _reasons(self) -> str:
        return "".join(f"; {reason}" for reason in self.problems.values())

    def _introduce(self, node: int, answer: Answer) -> None:
        clients, facts = answer.clients, None
        reason = answer.error
        if answer.version != __version__:
            reason = (
                f"has fedbr {answer.version}, the server {__version__}; all must have the same "
                "version"
            )
        if reason is None:
            try:
                facts = _read_facts(answer.facts)
                reason = self.check(clients, facts)
            except InputError as error:
                reason = str(error)
            except Exception as error:  # nothing that a node sends may stop the server
                reason = f"its facts make no sense ({type(error).__name__}: {error})"
        if reason is not None or facts is None:
            whose = f"clients {ranges(clients)}" if clients else f"node {node}"
            self._refuse(node, f"{whose}: {reason}")
            return
        if taken := sorted(set(clients) & self.holders().keys()):
            log.warning("clients %s: another node holds them now", ranges(taken))
        self.problems.pop(node, None)
        self._failures.pop(node, None)
        self.known[node] = KnownNode(clients, facts, set(answer.held))
        log.info("clients %s: their node is here", ranges(clients))

    def _refuse(self, node: int, reason: str) -> None:
        self.lose(node, reason)
        failures = self._failures.get(node, 0)
        self._again[node] = time.monotonic() + PATIENCE * 2 ** min(10, failures)
        self._failures[node] = failures + 1


def _read_facts(values: object) -> NodeFacts:
    if not isinstance(values, Mapping):
        raise TypeError("they are no table")
    return NodeFacts.from_json(values)
