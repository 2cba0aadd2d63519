"""What server and nodes say to each other: a JSON header and named pieces of bytes.

Whatever a node sends may be wrong: reading an answer gives an ``Answer``, or one that is an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from typing import Literal, Self

from .. import __version__
from ..core.evaluation import Piece
from ..core.wire import Payload, Reply, pack, unpack
from ..recipe.load import parse
from ..recipe.schema import Recipe
from ..util.tables import Json
from .facts import Common
from .types import Blobs

# The names of the pieces of a message.
REQUEST, ANSWER = "request", "answer"  # with the header
PAYLOAD, MODEL, SHARED = "payload", "model", "shared/"

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
    """What the server asks of a node."""

    kind: Kind
    recipe: Recipe
    run: Assignment | None = None  # None: "who", before a run begins
    content: str | None = None  # the hash of the samples that the node has, by its own answer
    round: int = 0
    clients: Mapping[int, int] = field(default_factory=dict)  # -> the round of its last training
    shared: tuple[str, ...] = ()  # names of all that the server shares with everybody
    pieces: tuple[Piece, ...] = ()
    tallies: tuple[str, ...] = ()

    @property
    def assignment(self) -> Assignment:
        """The run that it is about.

        Raises:
            ValueError: it is about none.
        """
        if self.run is None:
            raise ValueError(f"a request {self.kind!r} must say of which run")
        return self.run

    def write(self, parts: Mapping[str, bytes] | None = None) -> Blobs:
        """Make a message of it.

        Args:
            parts: payloads; those that are one object for several nodes are stored and sent once.
        """
        header: Json = {
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
    """What a node answers. Only the form is certain; nothing in it needs to be true."""

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
        header: Json = {
            "clients": self.clients,
            "version": self.version,
            "failed": {str(client): reason for client, reason in self.failed.items()},
            "needs": sorted(self.needs),
            "held": sorted(self.held),
        }
        for name in ("error", "moved", "facts", "kind", "round", "experiment", "seconds", "counts"):
            header[name] = getattr(self, name)
        return pack_answer(header, self.replies)

    @classmethod
    def read(cls, answer: Blobs | str) -> Self:
        """Read an answer.

        Args:
            answer: a message, or in a line why there is none.

        Returns:
            The answer; one whose ``error`` says what is wrong if it cannot be read.
        """
        if isinstance(answer, str):
            return cls(error=answer)
        try:
            header, replies = unpack_answer(answer)
            failed = header.get("failed", {})
            counts = header.get("counts", ())
            return cls(
                clients=tuple(int(client) for client in header["clients"]),
                version=str(header.get("version")),
                error=None if header.get("error") is None else str(header["error"]),
                moved=bool(header.get("moved")),
                facts=header.get("facts"),
                kind=header.get("kind"),
                round=header.get("round"),
                experiment=header.get("experiment"),
                failed={int(client): str(reason) for client, reason in failed.items()},
                needs=frozenset(header.get("needs", ())),
                held=frozenset(header.get("held", ())),
                seconds=float(header.get("seconds", 0.0)),
                counts=[[float(number) for number in row] for row in counts],
                replies=replies,
            )
        except Exception as error:  # nothing that a node sends may stop the server
            return cls(error=f"its answer is invalid ({type(error).__name__}: {error})")


def pack_answer(header: Json, replies: Sequence[Reply] = ()) -> Blobs:
    """Write a header, and the replies of a node's clients."""
    entries, payloads = [], {}
    for i, reply in enumerate(replies):
        entries.append(
            {
                "client": reply.client,
                "num_examples": reply.num_examples,
                "metrics": reply.metrics,
            }
        )
        payloads[f"reply/{i}"] = reply.payload
    return {ANSWER: pack({**header, "replies": entries}, payloads)}


def unpack_answer(blobs: Mapping[str, bytes]) -> tuple[Json, list[Reply]]:
    """Read what ``pack_answer`` wrote; whoever wrote it, replies have the right form."""
    header, payloads = unpack(blobs[ANSWER])
    replies = []
    for i, entry in enumerate(header.pop("replies")):
        metrics = {str(name): float(value) for name, value in entry["metrics"].items()}
        reply = Reply(
            client=int(entry["client"]),
            num_examples=int(entry["num_examples"]),
            payload=payloads.get(f"reply/{i}", {}),
            metrics=metrics,
        )
        replies.append(reply)
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
    printable = "".join(c if c.isprintable() else " " for c in text[:most])
    return " ".join(printable.split())


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


def _read_run(values: Json | None) -> Assignment | None:
    if values is None:
        return None
    common = values["common"]
    if common is not None:
        common = Common.from_json(common)
    return Assignment(**{**values, "common": common})
