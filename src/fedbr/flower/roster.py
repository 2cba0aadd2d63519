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
from .messages import Answer, Request, ranges
from .types import Blobs

log = logging.getLogger("fedbr.flower")

POLL = 1.0  # seconds between looks for new nodes
# Seconds until a node that could not answer is asked again; twice as many each time.
PATIENCE = 30.0
# Seconds for a new node to answer while the others could go on; twice as many each time.
BRIEF = 30.0


class Transport(Protocol):
    """Carries messages to nodes and brings their answers back."""

    def nodes(self) -> list[int]:
        """Return the nodes that are connected, the oldest first."""
        ...

    def exchange(
        self, kind: str, messages: Mapping[int, Blobs], timeout: float
    ) -> dict[int, Blobs | str]:
        """Send one message to each node, and wait for answers.

        Returns:
            The answers that came in time, or in a line what is wrong with them, by node.
        """
        ...


@dataclass(frozen=True)
class Settings:
    """How long the server waits, and for how many."""

    reply_timeout: float = 600.0  # seconds for a round's replies
    wait: float = 300.0  # seconds for nodes to appear
    min_share: float = 0.5  # of the clients asked, that must answer


@dataclass
class Node:
    """A node that the server can work with."""

    clients: Sequence[int]
    facts: NodeFacts
    held: set[str] = field(default_factory=set)  # shared payloads that are on its disk


# Says why the server cannot work with a node that has such clients; None if it can.
Check = Callable[[Sequence[int], NodeFacts], str | None]


class Roster:
    """The nodes that a server can work with.

    Args:
        transport: carries messages to them.
        settings: how long to wait for them.
        recipe: what is trained; nodes must know which samples it is about.
    """

    def __init__(self, transport: Transport, settings: Settings, recipe: Recipe) -> None:
        self.transport, self.settings = transport, settings
        self.nodes: dict[int, Node] = {}
        self.check: Check = lambda clients, facts: None
        self.problems: dict[int, str] = {}  # node -> why it is of no use now
        self._question = Request("who", recipe).write()
        self._retry_at: dict[int, float] = {}  # node -> when to ask it again
        self._failures: dict[int, int] = {}  # node -> how often it could not answer

    def refresh(self, brief: bool = False) -> None:
        """Forget nodes that are gone, and ask those that are new.

        Args:
            brief: whether nobody depends on the new ones, so that they get little time.
        """
        connected = self.transport.nodes()
        for gone in self.nodes.keys() - set(connected):
            log.warning("clients %s: their node is gone", ranges(self.nodes.pop(gone).clients))
        now = time.monotonic()
        new = []
        for node in connected:
            if node not in self.nodes and self._retry_at.get(node, 0.0) <= now:
                new.append(node)
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
        """Check all nodes, now and later, in another way.

        Args:
            check: says why a node is refused, given its clients and its facts.
        """
        self.check = check
        for number, node in list(self.nodes.items()):
            reason = check(node.clients, node.facts)
            if reason is not None:
                self._refuse(number, f"clients {ranges(node.clients)}: {reason}")

    def wait_for_one(self) -> None:
        """Wait until some node answers.

        Raises:
            RunError: none did in time.
        """
        end = time.monotonic() + self.settings.wait
        self.refresh()
        while not self.nodes:
            if time.monotonic() >= end:
                raise RunError(
                    f"waited {self.settings.wait:.0f} s: no node is there{self._reasons()}"
                )
            time.sleep(POLL)
            self.refresh()

    def holders(self) -> dict[int, int]:
        """Return the node of each client.

        Of two nodes that claim a client it is the later, which is the first one restarted.
        """
        holders = {}
        for number, node in self.nodes.items():
            for client in node.clients:
                holders[client] = number
        return holders

    def wait(self, clients: Collection[int], enough: int, patient: bool) -> None:
        """Wait for the nodes of clients.

        Args:
            clients: who are needed.
            enough: how many of them will do when the time is over.
            patient: whether to wait for all of them; otherwise only until there are enough.

        Raises:
            RunError: there are not enough in time.
        """
        end = time.monotonic() + self.settings.wait
        while True:
            present = len(set(clients) & self.holders().keys())
            self.refresh(brief=not patient and present >= enough)
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
        raise RunError(
            f"waited {self.settings.wait:.0f} s: {line}, {enough} are needed{self._reasons()}"
        )

    def lose(self, node: int, reason: str) -> None:
        """Forget a node; it is asked anew before it gets work again."""
        log.warning("%s", reason)
        self.problems[node] = reason
        self.nodes.pop(node, None)

    def _reasons(self) -> str:
        return "".join(f"; {reason}" for reason in self.problems.values())

    def _introduce(self, node: int, answer: Answer) -> None:
        """Take in a new node, or refuse it."""
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
                reason = f"its facts are invalid ({type(error).__name__}: {error})"
        if reason is not None or facts is None:
            whose = f"clients {ranges(clients)}" if clients else f"node {node}"
            self._refuse(node, f"{whose}: {reason}")
            return
        if taken := sorted(set(clients) & self.holders().keys()):
            log.warning("clients %s: another node holds them now", ranges(taken))
        self.problems.pop(node, None)
        self._failures.pop(node, None)
        self.nodes[node] = Node(clients, facts, set(answer.held))
        log.info("clients %s: their node is here", ranges(clients))

    def _refuse(self, node: int, reason: str) -> None:
        self.lose(node, reason)
        failures = self._failures.get(node, 0)
        self._retry_at[node] = time.monotonic() + PATIENCE * 2 ** min(10, failures)
        self._failures[node] = failures + 1


def _read_facts(values: object) -> NodeFacts:
    if not isinstance(values, dict):
        raise TypeError("expected a table")
    return NodeFacts.from_json(values)
