"""What is kept of a run: in memory here, in files by ``RunFolder``, which adds them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..backends.base import Backend
from ..backends.memory import ClientMemory
from ..core.records import Divergence, RoundRecord, RunRecord
from ..core.server import Server
from ..core.wire import State
from ..util.errors import InputError
from ..util.tables import Json


@dataclass(frozen=True)
class Weights:
    """What a run has made."""

    common: State  # of the global model
    personal: Sequence[State] = ()  # of each client's own model, where a method keeps them


class RunStore:
    """What is kept of a run: its rounds, and its record beside them.

    Args:
        rounds: how many it has when it is finished.
    """

    def __init__(self, rounds: int) -> None:
        self.planned = rounds
        self._record: RunRecord | None = RunRecord()
        self._rounds: list[RoundRecord] | None = []
        self._weights: Weights | None = None
        self._playing: tuple[Server, Backend] | None = None  # of a run that is under way

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
        is_whole = bool(self.rounds) and self.rounds[-1].round >= self.planned
        return is_whole and self._has_model()

    def _has_model(self) -> bool:
        return True

    def forget(self) -> None:
        """Drop what was read, as another process has written since; it is read again."""

    def note(self, **facts: Any) -> None:
        """Update the record of the run.

        Args:
            facts: fields of ``RunRecord``.
        """
        self._record = replace(self.record, **facts)

    def claim(self, content: str) -> None:
        """Note the samples that a run begins with; refuse to go on with others.

        Args:
            content: a hash of the samples.

        Raises:
            InputError: the run began with others.
        """
        self.check_content(content)
        if self.record.content is None:
            self.note(content=content)

    def check_content(self, content: str) -> None:
        """Refuse other samples than the run began with; nothing is written.

        Args:
            content: a hash of the samples.

        Raises:
            InputError: the run began with others.
        """
        before = self.record.content
        if before is not None and before != content:
            raise InputError(
                f"{self}: began with other data (content {before} then, {content} now); put the "
                "files back as they were, choose another folder, or --fresh to start over"
            )

    def append(self, record: RoundRecord) -> None:
        """Keep the record of a round before the next begins."""
        self._rounds = [*self.rounds, record]

    def memory(self) -> ClientMemory:
        """Return an empty store for what clients remember."""
        return ClientMemory()

    def checkpoint(self, round: int, server: Server, backend: Backend) -> None:
        """Keep the state of a run after a round, to go on from there."""
        self._playing = server, backend
        backend.states.tidy()

    def resume(self, server: Server, backend: Backend) -> int:
        """Load the last checkpoint into a server and a backend.

        Returns:
            The last round that is done; 0 if there is none.
        """
        return 0

    def diverge(self, at: Divergence) -> None:
        """Record where the run diverged; it does not go on."""
        self.note(diverged_at=at)
        self._playing = None

    def save_model(self, weights: Weights, facts: Json) -> None:
        """Keep the final model.

        Args:
            facts: what it takes to build the model again: its name, its options, its methods.
        """
        self._weights, self._playing = weights, None

    def weights(self) -> Weights | None:
        """Return the weights after the last round; None before the first."""
        if self._playing is None:
            return self._weights
        return weights_of(*self._playing)


def weights_of(server: Server, backend: Backend) -> Weights:
    """Return the weights that a server and its clients have at the moment."""
    models = server.models(backend.states)
    personal = () if isinstance(models, dict) else models
    return Weights(server.params, personal)
