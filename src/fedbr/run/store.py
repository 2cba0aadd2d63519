"""What is kept of a run: in memory here, in files by ``RunFolder``, which adds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..backends.base import Backend
from ..backends.memory import ClientMemory
from ..core.records import Divergence, RoundRecord, RunRecord
from ..core.server import Server
from ..core.wire import State
from ..util.errors import InputError


@dataclass(frozen=True)
class Weights:
    """What a run has made."""

    common: State  # the global model
    personal: Sequence[State] = ()  # each client's own, where a method keeps them


class RunStore:
    """The rounds of a run that are done, and what is known beside them."""

    def __init__(self, rounds: int) -> None:
        self.planned = rounds
        self._record: RunRecord | None = RunRecord()
        self._rounds: list[RoundRecord] | None = []
        self._weights: Weights | None = None
        self._now: tuple[Server, Backend] | None = None  # of a run that is under way

    @property
    def record(self) -> RunRecord:
        """What is known of the run beside its rounds."""
        assert self._record is not None
        return self._record

    @property
    def rounds(self) -> Sequence[RoundRecord]:
        """The rounds that are done."""
        assert self._rounds is not None
        return self._rounds

    @property
    def begun(self) -> bool:
        """Whether it is known who trains on what."""
        return self.record.split is not None

    @property
    def finished(self) -> bool:
        """Whether there is nothing left to train: the last round is done, or the run diverged."""
        if not self.begun or self.record.cleared:
            return False
        if self.record.diverged_at is not None:
            return True
        whole = bool(self.rounds) and self.rounds[-1].round >= self.planned
        return whole and self._saved()

    def _saved(self) -> bool:
        return True

    def forget(self) -> None:
        """Read what is kept again when next asked: another process has written it."""

    def note(self, **facts: Any) -> None:
        """Add to what is known of the run.

        facts: fields of RunRecord.
        """
        self._record = replace(self.record, **facts)

    def claim(self, content: str) -> None:
        """Refuse to go on with other samples than the run began with."""
        known = self.record.content
        if known is not None and known != content:
            raise InputError(
                f"{self}: began with other data (content {known} then, {content} now); put the "
                "files back as they were, choose another folder, or --fresh to start over"
            )
        if known is None:
            self.note(content=content)

    def append(self, record: RoundRecord) -> None:
        """Keep a round, for good, before the next begins."""
        self._rounds = [*self.rounds, record]

    def memory(self) -> ClientMemory:
        """Return where clients' memory goes when it is much."""
        return ClientMemory()

    def checkpoint(self, round: int, server: Server, backend: Backend) -> None:
        """Keep the state to go on from."""
        self._now = server, backend
        backend.states.tidy()

    def resume(self, server: Server, backend: Backend) -> int:
        """Go on from the state that was kept. Return the last round that is done."""
        return 0

    def diverge(self, at: Divergence) -> None:
        """Write down that the run cannot go on."""
        self.note(diverged_at=at)
        self._now = None

    def save_model(self, weights: Weights, facts: Mapping[str, Any]) -> None:
        """Keep the final model.

        facts: what one must know to build it again.
        """
        self._weights, self._now = weights, None

    def weights(self) -> Weights | None:
        """Return what the last round made; None before the first."""
        return self._weights if self._now is None else weights_of(*self._now)


def weights_of(server: Server, backend: Backend) -> Weights:
    """Return the models of the moment."""
    models = server.models(backend.states)
    return Weights(server.params, () if isinstance(models, dict) else models)
