"""The backend of a real federation: tasks go to the nodes that hold the clients; what comes back is
looked at.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ..backends.base import LocalBackend
from ..backends.memory import ClientMemory
from ..core import wire
from ..core.evaluation import Exam, Piece
from ..core.samples import Samples
from ..core.setup import Setup
from ..core.wire import Payload, Reply, Task
from ..util.errors import Diverged, RunError
from .messages import (
    EXAM,
    SHARED,
    TASK,
    Blobs,
    ask,
    name_of,
    ranges,
    read_answer,
    sections,
    task_fields,
)
from .rehearsal import Rehearsal, rehearse
from .roster import Roster
from .validate import objection

log = logging.getLogger("fedbr.flower")

EMPTY = Samples(torch.zeros(0, 0), torch.zeros(0, dtype=torch.long))


class FlowerBackend:
    """Carries tasks to nodes. What clients remember stays there; here is only what the server may
    know.
    """

    def __init__(
        self,
        setup: Setup,
        roster: Roster,
        order: Mapping[str, Any],
        sizes: Sequence[int],
        tests: Sequence[Samples],
        examiner: LocalBackend | None,
    ) -> None:
        self.setup, self.roster, self.order, self.sizes = setup, roster, order, sizes
        self.examiner = examiner  # without one, the nodes test
        self.tests = self._tests = tests
        self.states = ClientMemory()
        self.shared: Payload = {}
        self.expected: Rehearsal = rehearse(setup)
        self._patient = True  # all nodes get a chance to appear before the first round
        self._counts: dict[
            tuple[int, int], int
        ] = {}  # test set and first sample -> right answers, when last tested

    def run(self, tasks: Sequence[Task]) -> list[Reply]:
        """Let clients answer; return what came and may be used, in the order of the tasks."""
        self.tests = self._tests  # who was silent in the last test may speak in the next
        if not tasks:
            return []
        self.shared |= {
            k: v for task in tasks for k, v in task.payload.items() if k.startswith(wire.SHARED)
        }
        got: dict[int, Reply] = {}
        refused: dict[int, str] = {}
        again = {task.client for task in tasks}
        enough = max(1, math.ceil(self.roster.settings.min_share * len(tasks) - 1e-9))
        for _ in range(2):
            self.roster.wait(again, max(0, enough - len(got)), self._patient)
            self._patient = False
            again = self._ask([task for task in tasks if task.client in again], got, refused)
            if len(got) < enough:
                again = {task.client for task in tasks} - got.keys()
            if not again:
                break
        self._judge(tasks, got, refused, enough)
        return [got[task.client] for task in tasks if task.client in got]

    def test(self, exams: Sequence[Exam]) -> list[Tensor]:
        """Let the server test on the recipe's samples, or each node on its own; drop the sets
        nobody ever counted.
        """
        if self.examiner is not None:
            return self.examiner.test(exams)
        found = [self._test_at_nodes(exam) for exam in exams]
        counted = {test for test, _ in self._counts}
        if not counted:
            raise RunError("no site could be tested; flower.log says why")
        self.tests = [
            test if client in counted else EMPTY for client, test in enumerate(self._tests)
        ]
        if silent := [
            client for client, test in enumerate(self._tests) if len(test) and client not in counted
        ]:
            log.warning("clients %s: never tested, the accuracy is without them", ranges(silent))
        return found

    def close(self) -> None:
        """Let the nodes remove what they keep of this experiment."""
        message = ask({**self.order, "kind": "forget"})
        self.roster.carrier.exchange("query", dict.fromkeys(self.roster.known, message), 60.0)

    def _ask(
        self, tasks: Sequence[Task], got: dict[int, Reply], refused: dict[int, str]
    ) -> set[int]:
        """Send one message to every node, and take what comes; return the clients that should be
        asked again.
        """
        holders = self.roster.holders()
        by_node: dict[int, list[Task]] = {}
        for task in tasks:
            if task.client in holders:
                by_node.setdefault(holders[task.client], []).append(task)
            else:
                refused[task.client] = "no node holds it"
        messages = self._messages(by_node)
        begin = time.perf_counter()
        answers = self.roster.carrier.exchange(
            "train", messages, self.roster.settings.reply_timeout
        )
        whole, trained = time.perf_counter() - begin, [0.0]
        again: set[int] = set()
        for node, some in by_node.items():
            again |= self._take(
                node, some, answers.get(node, "no answer in time"), got, refused, trained
            )
        down, up = _megabytes(messages.values()), _megabytes(answers.values())
        text = "round %d, %s: %d of %d nodes answered; %.1f MB down, %.1f MB up, %.1f s, of which clients %.1f s"
        log.info(
            text,
            tasks[0].round,
            tasks[0].kind,
            len(answers),
            len(messages),
            down,
            up,
            whole,
            max(trained),
        )
        return again

    def _messages(self, by_node: Mapping[int, Sequence[Task]]) -> dict[int, Blobs]:
        """Write one message for each node; what all receive is written once, and what a node holds
        is left out.
        """
        task = next((some[0] for some in by_node.values()), None)
        if task is None:
            return {}
        body = sections({k: v for k, v in task.payload.items() if not k.startswith(wire.SHARED)})
        shared = (
            [sections({name: section}) for name, section in self.shared.items()]
            if task.kind == "train"
            else []
        )
        named = {name_of(blob): blob for blob in shared}
        messages = {}
        for node, some in by_node.items():
            header = {
                "kind": task.kind,
                "round": task.round,
                "tasks": task_fields(some),
                "shared": list(named),
            }
            known = self.roster.known[node]
            news = {SHARED + name: blob for name, blob in named.items() if name not in known.held}
            messages[node] = ask(
                {**self.order, **header, "content": known.facts["content"]}, **{TASK: body}, **news
            )
        return messages

    def _take(
        self,
        node: int,
        tasks: Sequence[Task],
        found: Blobs | str,
        got: dict[int, Reply],
        refused: dict[int, str],
        trained: list[float],
    ) -> set[int]:
        """Look at one node's answer; return the clients that it should be asked for again."""
        asked = {task.client: task for task in tasks}
        try:
            header, replies = (
                ({"error": found}, []) if isinstance(found, str) else read_answer(found)
            )
            failed = {
                int(client): str(reason) for client, reason in header.get("failed", {}).items()
            }
            lacks, held = set(header.get("needs", [])), set(header.get("held", []))
            trained.append(float(header.get("seconds", 0.0)))
        except Exception as error:  # nothing that a node sends may stop the server
            header, replies = (
                {"error": f"its answer makes no sense ({type(error).__name__}: {error})"},
                [],
            )
            failed, lacks, held = {}, set(), set()
        if "error" in header:
            self.roster.lose(node, f"clients {ranges(asked)}: {header['error']}")
            refused |= dict.fromkeys(asked, str(header["error"]))
            return set(asked) if header.get("moved") else set()
        if lacks:
            self.roster.known[node].held -= lacks
            return set(asked)
        self.roster.known[node].held = held
        for reply in replies:
            reason = self._objection(reply, asked, header, got)
            if reason is None:
                got[reply.client] = reply
            elif reply.client in asked and reply.client not in got:
                failed[reply.client] = reason
            else:
                log.warning("client %d: a reply is dropped: %s", reply.client, reason)
        refused |= {client: failed.get(client, "no reply") for client in asked.keys() - got.keys()}
        return set()

    def _objection(
        self,
        reply: Reply,
        asked: Mapping[int, Task],
        header: Mapping[str, Any],
        got: Mapping[int, Reply],
    ) -> str | None:
        if reply.client not in asked:
            return "its node was not asked for it"
        if reply.client in got:
            return "there is one already"
        task = asked[reply.client]
        for key, wanted in (
            ("round", task.round),
            ("kind", task.kind),
            ("experiment", self.order["experiment"]),
        ):
            if header.get(key) != wanted:
                return f"it is for {key} {header.get(key)}, not {wanted}"
        if reply.num_examples != (size := self.sizes[reply.client]):
            return f"it has {reply.num_examples} samples, not {size}"
        return objection(reply, task.kind, self.expected)

    def _judge(
        self, tasks: Sequence[Task], got: Mapping[int, Reply], refused: dict[int, str], enough: int
    ) -> None:
        """Log what is missing; stop if it is too much."""
        round = tasks[0].round
        missing = {
            task.client: refused.get(task.client, "no reply")
            for task in tasks
            if task.client not in got
        }
        for client, reason in missing.items():
            log.warning("round %d, client %d: not used: %s", round, client, reason)
        if len(got) >= enough:
            return
        client, reason = next(iter(missing.items()))
        if not got and all("not finite" in reason for reason in missing.values()):
            raise Diverged(round, client, reason)
        shown = "; ".join(
            f"client {client}: {reason}" for client, reason in list(missing.items())[:5]
        )
        raise RunError(
            f"round {round}: only {len(got)} of {len(tasks)} clients answered, {enough} are needed "
            f"(min-share {self.roster.settings.min_share:g}): {shown}"
        )

    def _test_at_nodes(self, exam: Exam) -> Tensor:
        """Let every node count for its clients; where one is silent, what it counted last stands."""
        params, asked = exam
        holders = self.roster.holders()
        by_node: dict[int, list[Piece]] = {}
        for piece in asked:
            if piece.test in holders:
                by_node.setdefault(holders[piece.test], []).append(piece)
        model = sections({"model": params})
        messages = {}
        for node, some in by_node.items():
            header = {"kind": "test", "pieces": [piece[:3] for piece in some]}
            content = self.roster.known[node].facts["content"]
            messages[node] = ask({**self.order, **header, "content": content}, **{EXAM: model})
        answers = self.roster.carrier.exchange(
            "evaluate", messages, self.roster.settings.reply_timeout
        )
        for node, some in by_node.items():
            self._count(node, some, answers.get(node, "no answer in time"))
        counts = torch.zeros(len(asked), self.setup.spec.num_classes, dtype=torch.int64)
        for row, piece in zip(counts, asked, strict=True):
            row[0] = self._counts.get(piece[:2], 0)
        return counts

    def _count(self, node: int, asked: Sequence[Piece], found: Blobs | str) -> None:
        try:
            header = {"error": found} if isinstance(found, str) else read_answer(found)[0]
            if "error" in header:
                raise ValueError(header["error"])
            counts = [int(n) for n in header["counts"]]
            sizes = [piece.stop - piece.start for piece in asked]
            if len(counts) != len(sizes) or any(
                not 0 <= n <= size for n, size in zip(counts, sizes, strict=False)
            ):
                raise ValueError("its counts cannot be right")
        except Exception as error:  # nothing that a node sends may stop the server
            whose = ranges(piece.test for piece in asked)
            self.roster.lose(
                node,
                f"clients {whose}: not tested, what they counted last, if ever, stands: {error}",
            )
            return
        self._counts |= {piece[:2]: n for piece, n in zip(asked, counts, strict=True)}


def _megabytes(messages: Iterable[Blobs | str]) -> float:
    return (
        sum(len(blob) for blobs in messages if isinstance(blobs, dict) for blob in blobs.values())
        / 1e6
    )
