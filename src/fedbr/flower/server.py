"""The server of a real federation: the round loop of every run, with nodes in place of worker
processes.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import lru_cache, partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from .. import __version__
from ..backends.base import Backend
from ..backends.memory import ClientMemory
from ..backends.serial import SerialBackend
from ..core.method import Method
from ..core.setup import Setup
from ..data import Federation
from ..recipe.schema import Recipe, Variant
from ..report.files import write_csv
from ..run import setup as assembly
from ..run.folder import ResultFolder, RunFolder, dump
from ..run.loop import Line, Watch, play
from ..util.errors import InputError, RunError
from ..util.files import write
from ..util.processes import one_thread
from .backend import FlowerBackend
from .messages import one_line, ranges
from .roster import Carrier, Roster, Settings
from .sites import Sites, in_common, stub, well_formed

log = logging.getLogger("fedbr.flower")


def serve(
    carrier: Carrier,
    recipe: Recipe,
    out: Path,
    settings: Settings,
    fresh: bool = False,
    watch: Watch = lambda *_: None,
) -> Line:
    """Train every variant of a recipe for every seed on the nodes; go on where an earlier call
    stopped.
    """
    check(recipe)
    folder = ResultFolder(out, recipe)
    with folder.open(fresh), one_thread(), logged(out / "flower.log"), ExitStack() as exits:
        exits.callback(write_csv, out)
        exits.callback(folder.summarise)
        plan = [
            (variant, seed, folder.run(variant, seed))
            for seed in recipe.train.seeds
            for variant in recipe.compare
        ]
        if all(this.finished for *_, this in plan):
            return folder.results()
        if fresh:
            (out / "sites.json").unlink(missing_ok=True)
        order = {
            "version": __version__,
            "recipe": json.loads(recipe.model_dump_json(exclude_none=True)),
        }
        roster = Roster(carrier, settings, order)
        clients = lru_cache(maxsize=1)(_federations(roster, recipe, out))
        for variant, seed, this in plan:
            watch(variant.label, seed, None)
            for line in this.lines():
                watch(variant.label, seed, line)
            if not this.finished:
                done, rounds = len(this.lines()), recipe.train.rounds
                log.info("%s, seed %d: %d of %d rounds are done", variant.label, seed, done, rounds)
                engine = _Engine(roster, recipe, variant, seed, this)
                play(recipe, variant, seed, clients(seed), this, None, watch, engine.connect)
                engine.close()
                folder.summarise()
    return folder.results()


def check(recipe: Recipe) -> None:
    """Refuse what makes no sense on a real federation."""
    for variant in recipe.compare:
        for method in variant.build():
            if method.alone or type(method).personal is not Method.personal:
                raise InputError(
                    f"compare[{variant.label}]: with {method.name!r} every client keeps a model of its own and nothing "
                    "is sent; a federation has nothing to do: use fedbr run"
                )
    if at_sites(recipe):
        _check_sites(recipe)


def at_sites(recipe: Recipe) -> bool:
    """Say whether only the sites can have a recipe's samples."""
    return recipe.data.name in ("npz", "folder") and not recipe.data.path


def _check_sites(recipe: Recipe) -> None:
    """Refuse what cannot be done with samples that stay at the sites."""
    if recipe.data.clients is None:
        raise InputError("data.clients: say how many clients the sites have together")
    if recipe.metrics.bias_every:
        raise InputError(
            f"metrics.bias_every = {recipe.metrics.bias_every}: every client's model would have to be tested on all "
            "test samples, but these stay at the sites; only 0 is allowed"
        )


class _Engine:
    """Makes the backend of one run."""

    def __init__(
        self, roster: Roster, recipe: Recipe, variant: Variant, seed: int, folder: RunFolder
    ) -> None:
        self.roster, self.recipe, self.variant, self.seed, self.folder = (
            roster,
            recipe,
            variant,
            seed,
            folder,
        )
        self.backend: FlowerBackend | None = None

    def connect(
        self,
        setup: Setup,
        clients: Federation,
        block_size: int,
        _: None,
        evaluate_samples: int | None,
        memory: ClientMemory,
    ) -> Backend:
        """Let nodes train, who have the memory too; the server tests, unless the samples are the
        sites' own.
        """
        common = {"common": self.roster.order["common"]} if isinstance(clients, Sites) else {}
        order = {
            **self.roster.order,
            **common,
            "experiment": self._name(),
            "variant": self.recipe.compare.index(self.variant),
            "seed": self.seed,
            "block_size": block_size,
            "clients": len(clients.train.parts),
        }
        tests = [*clients.tests, *clients.some_tests(evaluate_samples, self.seed)]
        examiner = (
            None if isinstance(clients, Sites) else SerialBackend(setup, clients.train, tests, 1)
        )
        self.backend = FlowerBackend(setup, self.roster, order, clients.sizes, tests, examiner)
        return self.backend

    def close(self) -> None:
        """Let the nodes forget a run that is finished."""
        if self.backend is not None and self.folder.finished:
            self.backend.close()

    def _name(self) -> str:
        """Name the run for the nodes' files: the same after a restart, another one after a fresh
        start.
        """
        if (known := self.folder.info.get("experiment")) is None:
            text = f"{self.recipe.to_toml()} {self.variant.label} {self.seed} {time.time_ns()}"
            known = sha256(text.encode()).hexdigest()[:16]
            self.folder.note(experiment=known)
        return str(known)


def _federations(roster: Roster, recipe: Recipe, out: Path) -> Callable[[int], Federation]:
    """Find out whose samples these are: the recipe's, which the server has too, or the sites' own."""
    roster.check = _whose
    roster.wait_for_one()
    if not next(iter(roster.known.values())).facts["own"]:
        common = assembly.federation(recipe, recipe.train.seeds[0])
        roster.check = partial(_same_samples, common.content)
        roster.recheck()
        return partial(assembly.federation, recipe)
    _check_sites(recipe)
    assert recipe.data.clients is not None
    file, count = out / "sites.json", recipe.data.clients
    if not file.exists():
        roster.check = partial(_fits, count)
        roster.recheck()
        roster.wait(range(count), count, patient=True)
        write(file, dump(_gather(roster, count)))
    told = json.loads(file.read_text("utf-8"))
    roster.check = partial(_unchanged, told)
    roster.recheck()
    roster.order = {**roster.order, "common": told["common"]}
    federation = stub(
        told["common"], recipe.data, count, [told["clients"][str(c)] for c in range(count)]
    )
    return lambda seed: federation


def _gather(roster: Roster, count: int) -> dict[str, Any]:
    told = {client: known.facts for known in roster.known.values() for client in known.clients}
    facts = {str(client): told[client]["by_client"][str(client)] for client in range(count)}
    return {"common": in_common(told), "clients": facts}


def _whose(clients: list[int], facts: Mapping[str, Any]) -> str | None:
    sound = isinstance(facts["own"], bool) and isinstance(facts["content"], str)
    return None if sound else "does not say whose its samples are"


def _same_samples(content: str, clients: list[int], facts: Mapping[str, Any]) -> str | None:
    if reason := _whose(clients, facts):
        return reason
    if facts["own"]:
        return "has samples of its own, but the other nodes have the recipe's; all or none"
    if facts["content"] != content:
        return (
            f"has other samples than the server (content {facts['content']} there, {content} here)"
        )
    return None


def _fits(count: int, clients: list[int], facts: Mapping[str, Any]) -> str | None:
    if reason := _whose(clients, facts):
        return reason
    if not facts["own"]:
        return "has no samples of its own (--data), but the other nodes have; all or none"
    if strangers := [client for client in clients if client not in range(count)]:
        return f"is not among the recipe's clients 0 to {count - 1}: {ranges(strangers)}"
    return None if well_formed(facts, clients) else "its facts make no sense"


def _unchanged(told: Mapping[str, Any], clients: list[int], facts: Mapping[str, Any]) -> str | None:
    if reason := _fits(len(told["clients"]), clients, facts):
        return reason
    for client in clients:
        then, now = (
            told["clients"][str(client)]["content"],
            facts["by_client"][str(client)]["content"],
        )
        if then != now:
            return f"client {client} has other samples than when the run began (content {then} then, {now} now)"
    return None


class _Lines(logging.Formatter):
    """One line for each event, whatever a node may have written into it."""

    def format(self, record: logging.LogRecord) -> str:
        return one_line(super().format(record))


@contextmanager
def logged(file: Path) -> Iterator[None]:
    """Write what happens to a file of the result folder, for good."""
    handler = logging.FileHandler(file, encoding="utf-8")
    handler.setFormatter(_Lines("%(asctime)s %(levelname)s %(message)s"))
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    except Exception as error:
        known = isinstance(error, InputError | RunError)
        log.error("%s", error if known else f"{type(error).__name__}: {error}")
        raise
    finally:
        log.removeHandler(handler)
        handler.close()
