"""What a node does with a message: its clients train, or test; their memory goes to its disk before
the answer.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from ..backends.base import LocalBackend
from ..core.client import blocks, new_state
from ..core.evaluation import Piece
from ..core.wire import Payload, Reply, Task
from ..util.errors import InputError
from ..util.processes import one_thread
from .messages import (
    ASK,
    EXAM,
    SHARED,
    TASK,
    Blobs,
    answer,
    header_of,
    name_of,
    ranges,
    read_sections,
)
from .states import StateFiles

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

    version: str  # of fedbr

    def facts(self, order: Mapping[str, Any]) -> dict[str, Any]:
        """Say what the server must know of the samples."""
        ...

    def desk(self, order: Mapping[str, Any]) -> LocalBackend:
        """Make who trains and tests."""
        ...


def reply_to(blobs: Blobs, settings: NodeSettings, site: Site) -> Blobs:
    """Answer one message; whatever goes wrong becomes a line that the server can log."""
    base: dict[str, Any] = {"clients": list(settings.clients), "version": site.version}
    try:
        order = header_of(blobs, ASK)
        files = StateFiles(settings.state_dir, experiment_name(order.get("experiment", "none")))
        with one_thread():
            if order["kind"] == "who":
                return answer(base | {"facts": site.facts(order), "held": files.held()})
            if order["kind"] == "forget":
                files.forget()
                return answer(base)
            if order["kind"] == "test":
                return answer(base | {"counts": _test(order, blobs, site)})
            return _run(order, blobs, settings, site, files, base)
    except Exception as error:  # a site's trouble is the site's: the others go on
        log.exception("clients %s", ranges(settings.clients))
        return answer(base | {"error": explain(error)})


def experiment_name(text: object) -> str:
    """Check what becomes the name of a folder."""
    if not isinstance(text, str) or not re.fullmatch(r"[0-9a-z]{1,64}", text):
        raise InputError(f"experiment = {text!r}: letters and digits are wanted")
    return text


def explain(error: BaseException) -> str:
    """Say in one line what went wrong."""
    if isinstance(error, OSError):
        return f"{error.strerror or error}: {error.filename or ''}".rstrip(": ")
    text = " ".join(str(error).split())
    return text if isinstance(error, InputError) else f"{type(error).__name__}: {text}"


def _run(
    order: Mapping[str, Any],
    blobs: Blobs,
    settings: NodeSettings,
    site: Site,
    files: StateFiles,
    base: dict[str, Any],
) -> Blobs:
    """Let the node's clients answer their tasks, block by block."""
    asked = {int(client): int(last) for client, last in order["tasks"]}
    base |= {"round": order["round"], "experiment": order["experiment"], "kind": order["kind"]}
    if strangers := asked.keys() - set(settings.clients):
        return answer(base | {"error": f"clients {ranges(strangers)} are not here", "moved": True})
    try:
        shared = _shared(order, blobs, files) if order["kind"] == "train" else {}
    except LookupError as lacking:
        return answer(base | {"needs": list(lacking.args)})
    desk, payload = site.desk(order), read_sections(blobs[TASK])
    desk.shared = shared
    begin = time.perf_counter()
    tasks = [
        Task(order["kind"], client, order["round"], payload, last) for client, last in asked.items()
    ]
    replies, failed = _answers(desk, tasks, files, settings)
    seconds = time.perf_counter() - begin
    return answer(base | {"failed": failed, "held": files.held(), "seconds": seconds}, replies)


def _shared(order: Mapping[str, Any], blobs: Blobs, files: StateFiles) -> Payload:
    """Return what the server shares with all, from the message or the disk; raise LookupError for
    what is missing.
    """
    wanted = list(order["shared"])
    brought = {
        key.removeprefix(SHARED): blob for key, blob in blobs.items() if key.startswith(SHARED)
    }
    if false := [name for name, blob in brought.items() if name_of(blob) != name]:
        raise ValueError(f"shared payload {false[0]} was damaged on its way")
    if lacking := sorted(set(wanted) - {*files.held(), *brought}):
        raise LookupError(*lacking)
    files.keep_shared(brought, wanted)
    return files.shared(wanted)


def _answers(
    desk: LocalBackend, tasks: Sequence[Task], files: StateFiles, settings: NodeSettings
) -> tuple[list[Reply], dict[str, str]]:
    """Train block by block; a client's reply counts only once its memory is on disk."""
    replies: list[Reply] = []
    failed: dict[str, str] = {}
    # All clients remember the same things. Who trains together is decided among all, as in fedbr
    # run.
    together = blocks(tasks, [{} for _ in tasks], desk.block_size)
    for start in range(0, len(together), settings.workers):
        group: list[Task] = []
        places: list[list[int]] = []
        for members in together[start : start + settings.workers]:
            places.append([])
            for task in (tasks[i] for i in members):
                ready = _remembering(desk, task, files, settings.start_anew)
                if ready is None:
                    failed[str(task.client)] = (
                        f"trained in round {task.last}, but what it remembers is not on this node's disk; "
                        "put the state-dir back, or start the node with --start-anew"
                    )
                else:
                    places[-1].append(len(group))
                    group.append(ready)
        try:
            done = desk.run(group, [p for p in places if p]) if group else []
        except Exception as error:  # of these blocks; the others may be well
            log.exception("clients %s", ranges(task.client for task in group))
            failed |= {str(task.client): explain(error) for task in group}
            continue
        for task, reply in zip(group, done, strict=True):
            try:
                if task.kind == "train" and (state := desk.states.pop(task.client, None)):
                    files.save(task.client, task.round, state, task.last)
            except OSError as error:
                failed[str(task.client)] = f"its memory cannot be written ({explain(error)})"
            else:
                replies.append(reply)
    return replies, failed


def _remembering(desk: LocalBackend, task: Task, files: StateFiles, anew: bool) -> Task | None:
    """Give a client the memory that the server counts on; None if it is lost."""
    if task.kind != "train" or not task.last or not new_state(desk.setup):
        return task
    state = files.load(task.client, task.last)
    if state is not None:
        desk.states[task.client] = state
        return task
    return replace(task, last=0) if anew else None


def _test(order: Mapping[str, Any], blobs: Blobs, site: Site) -> list[int]:
    """Count the right answers to each piece; of which classes they are stays here."""
    asked = [Piece(int(test), int(start), int(stop)) for test, start, stop in order["pieces"]]
    (right,) = site.desk(order).test([(read_sections(blobs[EXAM])["model"], asked)])
    return [int(n) for n in right.sum(dim=1).tolist()]
