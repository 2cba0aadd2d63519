"""Tests where the samples are: every node counts the answers of its own clients' tests."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from ..core.evaluation import Answers, Exam, Piece, TestPlan
from ..recipe.schema import Recipe
from ..util.errors import RunError
from .messages import MODEL, Answer, Assignment, Request, ranges, write_sections
from .roster import Roster
from .types import Blobs
from .validate import is_plausible

log = logging.getLogger("fedbr.flower")


class SiteExaminer:
    """Lets nodes test. Where one is silent, what it counted last stands.

    Args:
        roster: the nodes.
        recipe: what is trained.
        run: as its nodes know it.
        plan: the sizes of the tests, whose samples are elsewhere.
        classes: how many classes there are.
    """

    def __init__(
        self, roster: Roster, recipe: Recipe, run: Assignment, plan: TestPlan, classes: int
    ) -> None:
        self.roster, self.recipe, self.run = roster, recipe, run
        self.plan, self.classes = plan, classes
        self._counted: dict[tuple[tuple[str, ...], Piece], Tensor] = {}

    def test(self, exams: Sequence[Exam]) -> list[Answers]:
        """Let the nodes count how models do on their tests.

        Returns:
            What was counted of each piece; pieces that nobody ever counted are missing.

        Raises:
            RunError: no node ever counted anything.
        """
        answers = [self._ask(exam) for exam in exams]
        tested = {piece.test for _, piece in self._counted}
        if not tested:
            raise RunError("no site could be tested; flower.log says why")
        untested = []
        for test, test_set in enumerate(self.plan.sets):
            if test_set.size and test not in tested:
                untested.append(test)
        if untested:
            log.warning("clients %s: never tested, the accuracy is without them", ranges(untested))
        return answers

    def _ask(self, exam: Exam) -> Answers:
        """Let the nodes test one model."""
        holders = self.roster.holders()
        by_node: dict[int, list[Piece]] = {}
        for piece in exam.pieces:
            if piece.test in holders:
                by_node.setdefault(holders[piece.test], []).append(piece)
        messages = self._messages(exam, by_node)
        timeout = self.roster.settings.reply_timeout
        replies = self.roster.transport.exchange("evaluate", messages, timeout)
        for node, pieces in by_node.items():
            answer = Answer.read(replies.get(node, "no answer in time"))
            self._keep(node, pieces, exam.tallies, answer)
        answers: dict[Piece, Tensor] = {}
        for piece in exam.pieces:
            counts = self._counted.get(_key(exam.tallies, piece))
            if counts is not None:
                answers[piece] = counts
        return answers

    def _messages(self, exam: Exam, by_node: Mapping[int, Sequence[Piece]]) -> dict[int, Blobs]:
        model = {MODEL: write_sections({"model": exam.model})}  # once for all nodes
        messages = {}
        for node, pieces in by_node.items():
            request = Request(
                "test",
                self.recipe,
                self.run,
                content=self.roster.nodes[node].facts.content,
                pieces=tuple(pieces),
                tallies=exam.tallies,
            )
            messages[node] = request.write(model)
        return messages

    def _keep(
        self, node: int, pieces: Sequence[Piece], tallies: tuple[str, ...], answer: Answer
    ) -> None:
        """Keep what a node counted, if it can be right."""
        sizes = [self.plan.tallies[name].size(self.classes) for name in tallies]
        problem = answer.error
        if problem is None and not is_plausible(answer.counts, pieces, tallies, sizes):
            problem = "its counts cannot be right"
        if problem is not None:
            whose = ranges(piece.test for piece in pieces)
            line = f"clients {whose}: not tested, what they counted last, if ever, stands"
            self.roster.lose(node, f"{line}: {problem}")
            return
        for piece, row in zip(pieces, answer.counts, strict=True):
            self._counted[_key(tallies, piece)] = torch.tensor(row, dtype=torch.float64)


def _key(tallies: tuple[str, ...], piece: Piece) -> tuple[tuple[str, ...], Piece]:
    """Sites test on all that they have in every round: the quick part is the whole."""
    return tallies, piece._replace(quick=False)
