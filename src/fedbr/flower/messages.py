"""What server and nodes say to each other: a JSON header and named pieces of bytes.

Whatever a node sends may be wrong: reading an answer gives an ``Answer``, or one that is an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from typing import Any, Literal, Self

from .. import __version__
from ..core.evaluation import Piece
from ..core.wire import Payload, Reply, pack, unpack
from ..recipe.load import parse
from ..recipe.schema import Recipe
from .facts import Common

Blobs = dict[str, bytes]  # a message: its header, and payloads that several nodes may share
Header = dict[str, Any]  # JSON

REQUEST, ANSWER, PAYLOAD, MODEL, SHARED = "request", "answer", "payload", "model", "shared/"

Kind = Literal["who", "contribute", "train", "test", "forget"]


@dataclass(frozen=True)
class Assignment:
    """A run, as its nodes must know it."""

    experiment: str  # a name for the nodes' files
    variant: int  # its place in the recipe
    seed: int
    block_size: int
    clients: int  # of all nodes together
    common: Common | None = None  # where samples are the sites' own


@dataclass(frozen=True)
class Request:
    """What the server wants of a node."""

    kind: Kind
    recipe: Recipe
    run: Assignment | None = None  # None: "who", before a run begins
    content: str | None = None  # the hash of the samples that the node said it has
    round: int = 0
    clients: Mapping[int, int] = field(default_factory=dict)  # -> the round of its last training
    shared: tuple[str, ...] = ()  # names of all that the server shares with everybody
    pieces: tuple[Piece, ...] = ()
    tallies: tuple[str, ...] = ()

    @property
    def assignment(self) -> Assignment:
        """The run that it is about."""
        if self.run is None:
            raise ValueError(f"a request {self.kind!r} must say of which run")
        return self.run

    def write(self, parts: Mapping[str, bytes] | None = None) -> Blobs:
        """Make a message of it.

        parts: payloads; those that are one object for several nodes are stored and sent once.
        """
        header: Header = {
            "kind": self.kind,
            "version": __version__,
            "recipe": self.recipe.model_dump(mode="json", exclude_none=True),
            "run": None if self.run is None else asdict(self.run),
            "content": self.content,
            "round": self.round,
            "clients": list(self.clients.items()),
            "shared": self.shared,
            "pieces": self.pieces,
            "tallies": self.tallies,
        }
        return {REQUEST: pack(header, {}), **(parts or {})}

    @classmethod
    def read(cls, blobs: Mapping[str, bytes]) -> Self:
        """Read what ``write`` wrote."""
        header, _ = unpack(blobs[REQUEST])
        return cls(
            kind=header["kind"],
            recipe=parse(header["recipe"]),
            run=_read_run(header["run"]),
            content=header["content"],
            round=int(header["round"]),
            clients={int(client): int(last) for client, last in header["clients"]},
            shared=tuple(header["shared"]),
            pieces=tuple(Piece(*piece) for piece in header["pieces"]),
            tallies=tuple(header["tallies"]),
        )


@dataclass(frozen=True)
class Answer:
    """What a node says. Only the form is certain; nothing in it needs to be true."""

    clients: tuple[int, ...] = ()  # that the node holds
    version: str = __version__  # of fedbr
    error: str | None = None  # why there is nothing else
    moved: bool = False  # whether the clients may be at another node now
    facts: object = None  # JSON of NodeFacts
    kind: object = None
    round: object = None
    experiment: object = None
    failed: Mapping[int, str] = field(default_factory=dict)  # client -> why it has no reply
    needs: frozenset[str] = frozenset()  # shared payloads that are missing
    held: frozenset[str] = frozenset()  # shared payloads that are on the node's disk
    seconds: float = 0.0  # of training
    counts: Sequence[Sequence[float]] = ()  # of every piece of a test
    replies: Sequence[Reply] = ()

    def write(self) -> Blobs:
        """Make a message of it."""
        header: Header = {"clients": self.clients, "version": self.version}
        header |= {"failed": {str(client): why for client, why in self.failed.items()}}
        header |= {"needs": sorted(self.needs), "held": sorted(self.held)}
        for name in ("error", "moved", "facts", "kind", "round", "experiment", "seconds", "counts"):
            header[name] = getattr(self, name)
        return pack_answer(header, self.replies)

    @classmethod
    def read(cls, given: Blobs | str) -> Self:
        """Read an answer, or what has come instead of one; what makes no sense is an error."""
        if isinstance(given, str):
            return cls(error=given)
        try:
            header, replies = unpack_answer(given)
            return cls(
                clients=tuple(int(client) for client in header["clients"]),
                version=str(header.get("version")),
                error=None if header.get("error") is None else str(header["error"]),
                moved=bool(header.get("moved")),
                facts=header.get("facts"),
                kind=header.get("kind"),
                round=header.get("round"),
                experiment=header.get("experiment"),
                failed={int(c): str(why) for c, why in header.get("failed", {}).items()},
                needs=frozenset(header.get("needs", ())),
                held=frozenset(header.get("held", ())),
                seconds=float(header.get("seconds", 0.0)),
                counts=[[float(n) for n in row] for row in header.get("counts", ())],
                replies=replies,
            )
        except Exception as error:  # nothing that a node sends may stop the server
            return cls(error=f"its answer makes no sense ({type(error).__name__}: {error})")


def pack_answer(header: Header, replies: Sequence[Reply] = ()) -> Blobs:
    """Write a header, and the replies of a node's clients."""
    fields = [
        {"client": r.client, "num_examples": r.num_examples, "metrics": r.metrics} for r in replies
    ]
    payloads = {f"reply/{i}": reply.payload for i, reply in enumerate(replies)}
    return {ANSWER: pack({**header, "replies": fields}, payloads)}


def unpack_answer(blobs: Mapping[str, bytes]) -> tuple[Header, list[Reply]]:
    """Read what ``pack_answer`` wrote; whoever wrote it, replies have the right form."""
    header, payloads = unpack(blobs[ANSWER])
    replies = [
        Reply(
            client=int(fields["client"]),
            num_examples=int(fields["num_examples"]),
            payload=payloads.get(f"reply/{i}", {}),
            metrics={str(k): float(v) for k, v in fields["metrics"].items()},
        )
        for i, fields in enumerate(header.pop("replies"))
    ]
    return header, replies


def write_sections(payload: Payload) -> bytes:
    """Write what all clients receive."""
    return pack({}, {"all": payload})


def read_sections(blob: bytes) -> Payload:
    """Read what ``write_sections`` wrote."""
    return unpack(blob)[1]["all"]


def name_of(blob: bytes) -> str:
    """Name a payload by its content."""
    return sha256(blob).hexdigest()[:32]


def one_line(text: str, most: int = 1000) -> str:
    r"""Make one line of what somebody else wrote, so that a log stays one.

    >>> one_line("a\nb\x1b[31m")
    'a b [31m'
    """
    return " ".join("".join(c if c.isprintable() else " " for c in text[:most]).split())


def ranges(clients: Iterable[int]) -> str:
    """Write numbers for people.

    >>> ranges([7, 0, 1, 2])
    '0-2, 7'
    """
    runs: list[list[int]] = []
    for client in sorted(set(clients)):
        if runs and client == runs[-1][1] + 1:
            runs[-1][1] = client
        else:
            runs.append([client, client])
    return ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in runs)


def _read_run(values: Mapping[str, Any] | None) -> Assignment | None:
    if values is None:
        return None
    common = values["common"]
    known = {**values, "common": None if common is None else Common.from_json(common)}
    return Assignment(**known)
