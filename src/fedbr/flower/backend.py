"""The backend of a real federation: messages go to the nodes that hold the clients.

What comes back is checked before it is used.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ..backends.memory import ClientMemory
from ..core.broadcast import Broadcast
from ..core.evaluation import Answers, Exam, TestPlan
from ..core.setup import Setup
from ..core.wire import Reply
from ..recipe.schema import Recipe
from ..util.errors import Diverged, RunError
from .messages import (
    PAYLOAD,
    SHARED,
    Answer,
    Assignment,
    Request,
    name_of,
    ranges,
    write_sections,
)
from .rehearsal import Rehearsal, rehearse
from .roster import Roster
from .types import Blobs
from .validate import find_problem

log = logging.getLogger("fedbr.flower")


class Examiner(Protocol):
    """Who tests: this process on the recipe's samples, or the nodes on their own."""

    plan: TestPlan

    def test(self, exams: Sequence[Exam]) -> list[Answers]:
        """Count how models do on the tests of the plan."""
        ...


@dataclass
class Collected:
    """What came back of a broadcast so far."""

    replies: dict[int, Reply] = field(default_factory=dict)
    refused: dict[int, str] = field(default_factory=dict)  # client -> why there is no reply


class FlowerBackend:
    """Carries broadcasts to nodes. What clients remember stays there.

    Args:
        setup: the methods and the model.
        roster: the nodes.
        recipe: what is trained.
        run: as its nodes know it.
        sizes: how many samples each client has.
        examiner: who tests.
    """

    def __init__(
        self,
        setup: Setup,
        roster: Roster,
        recipe: Recipe,
        run: Assignment,
        sizes: Sequence[int],
        examiner: Examiner,
    ) -> None:
        self.setup, self.roster, self.recipe, self.assignment = setup, roster, recipe, run
        self.sizes, self.examiner, self.plan = sizes, examiner, examiner.plan
        self.states = ClientMemory()
        self.expected: Rehearsal = rehearse(setup)
        self._patient = True  # all nodes get a chance to appear before the first round

    def run(self, broadcast: Broadcast) -> list[Reply]:
        """Let clients answer.

        Returns:
            The replies that came and may be used, in the order of the clients.

        Raises:
            RunError: there are too few of them.
            Diverged: there are none, as no client has finite weights.
        """
        clients, collected = broadcast.clients, Collected()
        enough = max(1, math.ceil(self.roster.settings.min_share * len(clients) - 1e-9))
        waiting = set(clients)
        for _ in range(2):
            self.roster.wait(waiting, max(0, enough - len(collected.replies)), self._patient)
            self._patient = False
            asked = [client for client in clients if client in waiting]
            waiting = self._ask(broadcast.to(asked), collected)
            if len(collected.replies) < enough:
                waiting = set(clients) - collected.replies.keys()
            if not waiting:
                break
        self._check_enough(broadcast, collected, enough)
        return [collected.replies[client] for client in clients if client in collected.replies]

    def test(self, exams: Sequence[Exam]) -> list[Answers]:
        """Test models, here or at the nodes."""
        return self.examiner.test(exams)

    def close(self) -> None:
        """Let the nodes remove what they keep of this run."""
        message = Request("forget", self.recipe, self.assignment).write()
        self.roster.transport.exchange("query", dict.fromkeys(self.roster.nodes, message), 60.0)

    def _ask(self, broadcast: Broadcast, collected: Collected) -> set[int]:
        """Send one message to every node and use the answers.

        Returns:
            The clients that should be asked again.
        """
        holders = self.roster.holders()
        by_node: dict[int, list[int]] = {}
        for client in broadcast.clients:
            if client in holders:
                by_node.setdefault(holders[client], []).append(client)
            else:
                collected.refused[client] = "no node holds it"
        messages = self._messages(broadcast, by_node)
        begin = time.perf_counter()
        timeout = self.roster.settings.reply_timeout
        answers = self.roster.transport.exchange("train", messages, timeout)
        seconds, training_seconds = time.perf_counter() - begin, 0.0
        ask_again: set[int] = set()
        for node, clients in by_node.items():
            answer = Answer.read(answers.get(node, "no answer in time"))
            training_seconds = max(training_seconds, answer.seconds)
            ask_again |= self._use(answer, node, broadcast.to(clients), collected)
        log.info(
            "round %d, %s: %d of %d nodes answered; %.1f MB down, %.1f MB up, %.1f s, "
            "of which clients %.1f s",
            broadcast.round,
            broadcast.kind,
            len(answers),
            len(messages),
            _megabytes(messages.values()),
            _megabytes(answers.values()),
            seconds,
            training_seconds,
        )
        return ask_again

    def _messages(
        self, broadcast: Broadcast, by_node: Mapping[int, Sequence[int]]
    ) -> dict[int, Blobs]:
        """Write one message for each node.

        What all receive is written once, and what a node holds is left out.
        """
        if not by_node:
            return {}
        payload = write_sections(broadcast.payload)
        shared: dict[str, bytes] = {}
        if broadcast.kind == "train":
            for name, state in broadcast.shared.items():
                blob = write_sections({name: state})
                shared[name_of(blob)] = blob
        messages = {}
        for number, clients in by_node.items():
            node = self.roster.nodes[number]
            request = Request(
                broadcast.kind,
                self.recipe,
                self.assignment,
                content=node.facts.content,
                round=broadcast.round,
                clients={client: broadcast.last_of(client) for client in clients},
                shared=tuple(shared),
            )
            parts = {PAYLOAD: payload}
            for name, blob in shared.items():
                if name not in node.held:
                    parts[SHARED + name] = blob
            messages[number] = request.write(parts)
        return messages

    def _use(self, answer: Answer, node: int, asked: Broadcast, collected: Collected) -> set[int]:
        """Use one node's answer; return the clients that it should be asked for again."""
        clients = asked.clients
        if answer.error is not None:
            self.roster.lose(node, f"clients {ranges(clients)}: {answer.error}")
            collected.refused |= dict.fromkeys(clients, answer.error)
            return set(clients) if answer.moved else set()
        if answer.needs:
            self.roster.nodes[node].held -= answer.needs
            return set(clients)
        self.roster.nodes[node].held = set(answer.held)
        failed = dict(answer.failed)
        for reply in answer.replies:
            reason = self._find_problem(reply, asked, answer, collected)
            if reason is None:
                collected.replies[reply.client] = reply
            elif reply.client in clients and reply.client not in collected.replies:
                failed[reply.client] = reason
            else:
                log.warning("client %d: a reply is dropped: %s", reply.client, reason)
        for client in clients:
            if client not in collected.replies:
                collected.refused[client] = failed.get(client, "no reply")
        return set()

    def _find_problem(
        self, reply: Reply, asked: Broadcast, answer: Answer, collected: Collected
    ) -> str | None:
        """Say why a reply must not be used; None if it may be."""
        if reply.client not in asked.clients:
            return "its node was not asked for it"
        if reply.client in collected.replies:
            return "there is one already"
        for key, value, expected in (
            ("round", answer.round, asked.round),
            ("kind", answer.kind, asked.kind),
            ("experiment", answer.experiment, self.assignment.experiment),
        ):
            if value != expected:
                return f"it is for {key} {value}, not {expected}"
        size = self.sizes[reply.client]
        if reply.num_examples != size:
            return f"it has {reply.num_examples} samples, not {size}"
        return find_problem(reply, asked.kind, self.expected)

    def _check_enough(self, broadcast: Broadcast, collected: Collected, enough: int) -> None:
        """Log what is missing; stop if it is too much."""
        round, clients = broadcast.round, broadcast.clients
        missing = {}
        for client in clients:
            if client not in collected.replies:
                missing[client] = collected.refused.get(client, "no reply")
        for client, reason in missing.items():
            log.warning("round %d, client %d: not used: %s", round, client, reason)
        if len(collected.replies) >= enough:
            return
        client, reason = next(iter(missing.items()))
        if not collected.replies and all("not finite" in reason for reason in missing.values()):
            raise Diverged(round, client, reason)
        reasons = [f"client {client}: {reason}" for client, reason in missing.items()]
        raise RunError(
            f"round {round}: only {len(collected.replies)} of {len(clients)} clients answered, "
            f"{enough} are needed (min-share {self.roster.settings.min_share:g}): "
            f"{'; '.join(reasons[:5])}"
        )


def _megabytes(messages: Iterable[Blobs | str]) -> float:
    total = 0
    for blobs in messages:
        if isinstance(blobs, dict):
            total += sum(map(len, blobs.values()))
    return total / 1e6
