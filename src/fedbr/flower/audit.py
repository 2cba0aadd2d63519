"""What leaves a client, in bytes and words, before anything is sent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ..core.wire import Payload, State, nbytes
from ..methods import METHODS
from ..recipe.schema import Recipe, Variant
from ..run import setup as assembly
from .rehearsal import rehearse
from .server import check
from .settings import node_settings
from .site import OwnSite
from .sites import Sites, in_common, stub


class Item(NamedTuple):
    when: str
    what: str
    bytes: int
    words: str


ALWAYS = [
    Item("at the start", "facts", 0, "number of samples (and of different ones), effective number of classes, number "
         "of test samples, a hash of the samples, their shape and type, names of classes, the version of fedbr"),
    Item("each round", "loss", 8, "mean training loss, number of samples, first step that was not finite"),
    Item("when it fails", "reason", 0, "what went wrong, in a line that may name a file of the site"),
    Item("each test", "counts", 8, "number of right answers on the client's own test samples, if it has any"),
]  # fmt: skip


@dataclass(frozen=True)
class Audit:
    """What leaves one client, and how many bytes its methods keep on the node's disk."""

    items: list[Item]
    kept: int


def audit(recipe: Recipe, variant: Variant, data: str = "") -> Audit:
    """List what one client of a variant reveals; the sizes are those of a rehearsal with made-up
    samples.
    """
    check(recipe)
    seed = recipe.train.seeds[0]
    clients = _like(recipe, data) if data else assembly.federation(recipe, seed)
    seen = rehearse(assembly.build_setup(recipe.of(variant), variant, clients, seed))
    contributed = [
        Item("before training" if when == 0 else "each round", *section)
        for when, payload in seen.contributed.items()
        for section in _sections(payload, "contribution")
    ]
    uploaded = [Item("each round", *section) for section in _sections(seen.replied, "upload")]
    return Audit([*contributed, *uploaded, *ALWAYS], nbytes(seen.remembered))


def _like(recipe: Recipe, data: str) -> Sites:
    """Make the federation of sites that have samples such as these."""
    site = OwnSite(node_settings({"ids": "0", "data-path": data}))
    common = in_common({0: site.facts({"recipe": recipe.model_dump()})})
    return stub(common, recipe.data, recipe.data.clients or 1)


def _sections(payload: Payload, kind: str) -> Iterator[tuple[str, int, str]]:
    for name, state in payload.items():
        if name == "model":
            words = "the client's weights after local training"
        else:
            told = (
                (METHODS[name].__doc__ or "").split("\n")[0].rstrip(".") if name in METHODS else ""
            )
            words = f"{kind} of {name}{f' ({told})' if told else ''}"
        yield name, nbytes({name: state}), f"{words}: {_shapes(state)}"


def _shapes(state: State) -> str:
    shown = [f"{key} {list(value.shape)}" for key, value in list(state.items())[:3]]
    return ", ".join(shown) + (f" and {len(state) - 3} more" if len(state) > 3 else "")
