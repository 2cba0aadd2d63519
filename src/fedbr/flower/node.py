"""What a node does with a message: its clients train, or test.

What they remember goes to its disk before the answer leaves.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from ..backends.base import LocalBackend
from ..core.broadcast import Broadcast
from ..core.client import blocks, new_state
from ..core.evaluation import Exam
from ..core.wire import Payload, Reply
from ..recipe.schema import Recipe
from ..util.errors import InputError
from ..util.processes import one_thread
from .facts import NodeFacts
from .messages import (
    MODEL,
    PAYLOAD,
    SHARED,
    Answer,
    Request,
    name_of,
    ranges,
    read_sections,
)
from .node_files import NodeFiles
from .types import Blobs

log = logging.getLogger("fedbr.flower")


@dataclass(frozen=True)
class NodeSettings:
    """What the people of a site decide, not the server."""

    clients: tuple[int, ...]
    data: str = ""  # the site's own samples; without: the recipe's, for trials
    state_dir: Path = Path("fedbr-state")
    workers: int = 1
    start_anew: bool = False  # clients whose memory is lost may begin again


class Site(Protocol):
    """The samples and models of a node."""

    def facts(self, recipe: Recipe) -> NodeFacts:
        """Say what the server must know of the samples."""
        ...

    def backend(self, request: Request) -> LocalBackend:
        """Make the backend that trains and tests."""
        ...


def reply_to(blobs: Blobs, settings: NodeSettings, site: Site) -> Blobs:
    """Answer one message; whatever goes wrong becomes a line that the server can log.

    Args:
        blobs: the message.
        settings: of the node.
        site: its samples and models.
    """
    base = Answer(settings.clients)
    try:
        request = Request.read(blobs)
        with one_thread():
            return _answer(request, blobs, settings, site, base).write()
    except Exception as error:  # a site's trouble is the site's: the others go on
        log.exception("clients %s", ranges(settings.clients))
        return replace(base, error=explain(error)).write()


def experiment_name(text: object) -> str:
    """Check a name that becomes the name of a folder.

    Raises:
        InputError: it has other characters than small letters and digits, or too many.
    """
    if not isinstance(text, str) or not re.fullmatch(r"[0-9a-z]{1,64}", text):
        raise InputError(f"experiment = {text!r}: expected small letters and digits")
    return text


def explain(error: BaseException) -> str:
    """Say in one line what went wrong.

    >>> explain(KeyError("content"))
    "KeyError: 'content'"
    """
    if isinstance(error, OSError):
        return f"{error.strerror or error}: {error.filename or ''}".rstrip(": ")
    text = " ".join(str(error).split())
    return text if isinstance(error, InputError) else f"{type(error).__name__}: {text}"


def _answer(
    request: Request, blobs: Blobs, settings: NodeSettings, site: Site, base: Answer
) -> Answer:
    if request.kind == "who":
        return replace(base, facts=site.facts(request.recipe).to_json())
    if request.kind == "test":
        return replace(base, counts=_test(request, blobs, site))
    experiment = experiment_name(request.assignment.experiment)
    files = NodeFiles(settings.state_dir / experiment)
    if request.kind == "forget":
        files.forget()
        return base
    base = replace(base, kind=request.kind, round=request.round, experiment=experiment)
    return _train(request, blobs, settings, site, files, base)


def _train(
    request: Request,
    blobs: Blobs,
    settings: NodeSettings,
    site: Site,
    files: NodeFiles,
    base: Answer,
) -> Answer:
    """Let the node's clients contribute, or train, block by block."""
    strangers = request.clients.keys() - set(settings.clients)
    if strangers:
        error = f"clients {ranges(strangers)} are not at this node"
        return replace(base, error=error, moved=True)
    shared: Payload = {}
    if request.kind == "train":
        try:
            shared = _read_shared(request, blobs, files)
        except LookupError as missing:
            return replace(base, needs=frozenset(missing.args))
    assert request.kind in ("contribute", "train")
    broadcast = Broadcast(
        request.kind,
        request.round,
        tuple(request.clients),
        read_sections(blobs[PAYLOAD]),
        shared,
        last={client: last for client, last in request.clients.items() if last},
    )
    training = _Training(site.backend(request), broadcast, files, settings)
    begin = time.perf_counter()
    training.run()
    return replace(
        base,
        failed=training.failed,
        held=files.held(),
        seconds=time.perf_counter() - begin,
        replies=training.replies,
    )


def _read_shared(request: Request, blobs: Blobs, files: NodeFiles) -> Payload:
    """Return what the server shares with all, from the message or the disk.

    Raises:
        LookupError: payloads are missing; its arguments are their names.
        ValueError: one was damaged on its way.
    """
    received = {}
    for key, blob in blobs.items():
        if key.startswith(SHARED):
            received[key.removeprefix(SHARED)] = blob
    for name, blob in received.items():
        if name_of(blob) != name:
            raise ValueError(f"shared payload {name} was damaged on its way")
    missing = sorted(set(request.shared) - {*files.held(), *received})
    if missing:
        raise LookupError(*missing)
    files.keep_shared(received, request.shared)
    return files.shared(request.shared)


@dataclass
class _Training:
    """Trains a node's clients; a reply counts only once the client's memory is on disk."""

    backend: LocalBackend
    broadcast: Broadcast
    files: NodeFiles
    settings: NodeSettings
    replies: list[Reply] = field(default_factory=list)
    failed: dict[int, str] = field(default_factory=dict)  # client -> why it has no reply

    def run(self) -> None:
        """Train all clients, as many blocks at once as there are workers."""
        # All clients remember the same things. Who trains together is decided among all, as in
        # fedbr run.
        clients, workers = self.broadcast.clients, self.settings.workers
        positions = blocks([{} for _ in clients], self.backend.block_size)
        client_blocks = [[clients[i] for i in block] for block in positions]
        for start in range(0, len(client_blocks), workers):
            self._train_blocks(client_blocks[start : start + workers])

    def _train_blocks(self, client_blocks: Sequence[Sequence[int]]) -> None:
        """Train some blocks of clients together."""
        last = dict(self.broadcast.last)
        ready: list[int] = []  # the clients that can train
        ready_blocks: list[list[int]] = []  # of positions in ``ready``
        for block in client_blocks:
            able = [client for client in block if self._load_memory(client, last)]
            if able:
                ready_blocks.append(list(range(len(ready), len(ready) + len(able))))
                ready += able
        if not ready:
            return
        message = replace(self.broadcast.to(ready), last=last)
        try:
            replies = self.backend.run(message, ready_blocks)
        except Exception as error:  # of these blocks; the others may be well
            log.exception("clients %s", ranges(ready))
            self.failed |= dict.fromkeys(ready, explain(error))
            return
        for reply in replies:
            self._keep(reply)

    def _load_memory(self, client: int, last: dict[int, int]) -> bool:
        """Load what the server expects a client to remember; say whether it can train.

        Args:
            client: its number.
            last: the round of each client's last training; this one is removed if it may begin
                again.
        """
        round = last.get(client, 0)
        if self.broadcast.kind != "train" or not round or not new_state(self.backend.setup):
            return True
        state = self.files.load(client, round)
        if state is not None:
            self.backend.states[client] = state
        elif self.settings.start_anew:
            del last[client]
        else:
            self.failed[client] = (
                f"trained in round {round}, but what it remembers is not on this node's disk; "
                "put the state-dir back, or start the node with --start-anew"
            )
            return False
        return True

    def _keep(self, reply: Reply) -> None:
        """Write what a client remembers now; without that, its reply is worth nothing."""
        round, client = self.broadcast.round, reply.client
        state = self.backend.states.pop(client, None)
        try:
            if self.broadcast.kind == "train" and state:
                self.files.save(client, round, state, self.broadcast.last_of(client))
        except OSError as error:
            self.failed[client] = f"its memory cannot be written ({explain(error)})"
        else:
            self.replies.append(reply)


def _test(request: Request, blobs: Blobs, site: Site) -> Sequence[Sequence[float]]:
    """Count the answers to each piece, and nothing but what the recipe's metrics want counted."""
    backend = site.backend(request)
    unknown = sorted(set(request.tallies) - backend.plan.tallies.keys())
    if unknown:
        raise InputError(f"the metrics of the recipe do not count {unknown[0]!r}")
    model = read_sections(blobs[MODEL])["model"]
    exam = Exam(model, request.pieces, request.tallies)
    (counts,) = backend.test([exam])
    return [counts[piece].tolist() for piece in request.pieces]
