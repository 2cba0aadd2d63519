"""What a node does with a message: its clients train, or test; their memory goes to its disk before
the answer.
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
    Blobs,
    Request,
    name_of,
    ranges,
    read_sections,
)
from .node_files import NodeFiles

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
        """Make who trains and tests."""
        ...


def reply_to(blobs: Blobs, settings: NodeSettings, site: Site) -> Blobs:
    """Answer one message; whatever goes wrong becomes a line that the server can log."""
    base = Answer(settings.clients)
    try:
        request = Request.read(blobs)
        with one_thread():
            return _answer(request, blobs, settings, site, base).write()
    except Exception as error:  # a site's trouble is the site's: the others go on
        log.exception("clients %s", ranges(settings.clients))
        return replace(base, error=explain(error)).write()


def experiment_name(text: object) -> str:
    """Check what becomes the name of a folder."""
    if not isinstance(text, str) or not re.fullmatch(r"[0-9a-z]{1,64}", text):
        raise InputError(f"experiment = {text!r}: letters and digits are expected")
    return text


def explain(error: BaseException) -> str:
    """Say in one line what went wrong."""
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
    if strangers := request.clients.keys() - set(settings.clients):
        return replace(base, error=f"clients {ranges(strangers)} are not here", moved=True)
    try:
        shared = _shared(request, blobs, files) if request.kind == "train" else {}
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
    backend = site.backend(request)
    begin = time.perf_counter()
    done = _Training(backend, broadcast, files, settings)
    done.all_blocks()
    return replace(
        base,
        failed=done.failed,
        held=files.held(),
        seconds=time.perf_counter() - begin,
        replies=done.replies,
    )


def _shared(request: Request, blobs: Blobs, files: NodeFiles) -> Payload:
    """Return what the server shares with all, from the message or the disk.

    Raises LookupError for what is missing.
    """
    brought = {
        key.removeprefix(SHARED): blob for key, blob in blobs.items() if key.startswith(SHARED)
    }
    for name, blob in brought.items():
        if name_of(blob) != name:
            raise ValueError(f"shared payload {name} was damaged on its way")
    if missing := sorted(set(request.shared) - {*files.held(), *brought}):
        raise LookupError(*missing)
    files.keep_shared(brought, request.shared)
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

    def all_blocks(self) -> None:
        # All clients remember the same things. Who trains together is decided among all, as in
        # fedbr run.
        clients, workers = self.broadcast.clients, self.settings.workers
        together = blocks([{} for _ in clients], self.backend.block_size)
        for start in range(0, len(together), workers):
            chosen = together[start : start + workers]
            self._some([[clients[i] for i in members] for members in chosen])

    def _some(self, chosen: Sequence[Sequence[int]]) -> None:
        """Train as many blocks as there are workers."""
        last = dict(self.broadcast.last)
        ready: list[int] = []
        places: list[list[int]] = []
        for members in chosen:
            able = [client for client in members if self._remembers(client, last)]
            if able:
                places.append(list(range(len(ready), len(ready) + len(able))))
                ready += able
        if not ready:
            return
        message = replace(self.broadcast.to(ready), last=last)
        try:
            replies = self.backend.run(message, places)
        except Exception as error:  # of these blocks; the others may be well
            log.exception("clients %s", ranges(ready))
            self.failed |= dict.fromkeys(ready, explain(error))
            return
        for reply in replies:
            self._keep(reply)

    def _remembers(self, client: int, last: dict[int, int]) -> bool:
        """Load the memory that the server counts on; say whether the client can train.

        last: forgets when the client trained, if it may begin again.
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
    backend, model = site.backend(request), read_sections(blobs[MODEL])["model"]
    if strangers := set(request.tallies) - backend.plan.tallies.keys():
        raise InputError(f"the metrics of the recipe do not count {sorted(strangers)[0]!r}")
    exam = Exam(model, request.pieces, request.tallies)
    (counts,) = backend.test([exam])
    return [counts[piece].tolist() for piece in request.pieces]
