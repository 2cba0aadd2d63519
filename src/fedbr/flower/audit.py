"""What leaves a client, in bytes and words, before anything is sent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ..core.census import Clients
from ..core.wire import Payload, State, nbytes
from ..methods import METHODS
from ..metrics import used
from ..recipe.schema import Recipe, Variant
from ..run.plan import RecipeSource
from .admission import check_recipe
from .facts import in_common
from .rehearsal import rehearse
from .remote import UNKNOWN, RemoteClients
from .settings import node_settings
from .site import OwnSite


class Item(NamedTuple):
    """Something that leaves a client."""

    when: str
    what: str
    bytes: int
    words: str


FACTS = (
    "number of samples (and of different ones), effective number of classes, number of test "
    "samples, a hash of the samples, their shape and type, names of classes, the version of fedbr"
)
ALWAYS = [
    Item("at the start", "facts", 0, FACTS),
    Item(
        "each round",
        "loss",
        8,
        "mean training loss, number of samples, first step that was not finite",
    ),
    Item(
        "when it fails", "reason", 0, "what went wrong, in a line that may name a file of the site"
    ),
    Item(
        "each test",
        "counts",
        8,
        "number of right answers on the client's own test samples, if it has any",
    ),
]


@dataclass(frozen=True)
class Audit:
    """What leaves one client, and how many bytes its methods keep on the node's disk."""

    items: list[Item]
    kept: int


def audit(recipe: Recipe, variant: Variant, data: str = "") -> Audit:
    """List what one client of a variant reveals.

    data: a site's own samples; without, the recipe's. The sizes are those of a rehearsal with
    made-up samples.
    """
    check_recipe(recipe)
    seed = recipe.train.seeds[0]
    source = RecipeSource(recipe)
    clients: Clients = _like(recipe, data) if data else source.clients(seed)
    expected = rehearse(source.setup(variant, seed, clients))
    contributed = [
        Item("before training" if when == 0 else "each round", *section)
        for when, payload in expected.contributed.items()
        for section in _sections(payload, "contribution")
    ]
    uploaded = [Item("each round", *section) for section in _sections(expected.replied, "upload")]
    counted = _counted(recipe, clients.census.num_classes)
    items = [*contributed, *uploaded, *ALWAYS, *counted]
    return Audit(items, nbytes(expected.remembered))


def _like(recipe: Recipe, data: str) -> RemoteClients:
    """Make the federation of sites that have samples such as these."""
    facts = OwnSite(node_settings({"ids": "0", "data-path": data})).facts(recipe)
    assert facts.site is not None
    common = in_common({0: facts.site.common})
    return RemoteClients(common, [UNKNOWN] * (recipe.data.clients or 1), recipe.data)


def _counted(recipe: Recipe, classes: int) -> Iterator[Item]:
    """List what the recipe's own metrics count beside the right answers."""
    known = {tally.name for metric in used() for tally in metric.tallies(own_tests=True)}
    for metric in used(recipe.metrics.extra):
        for tally in metric.tallies(own_tests=True):
            if tally.name not in known:
                known.add(tally.name)
                words = f"what the metric {metric.name} counts on the client's own test samples"
                yield Item("each test", tally.name, 8 * tally.size(classes), words)


def _sections(payload: Payload, kind: str) -> Iterator[tuple[str, int, str]]:
    for name, state in payload.items():
        words = "the client's weights after local training"
        if name != "model":
            summary = _summary(name)
            words = f"{kind} of {name}{f' ({summary})' if summary else ''}"
        yield name, nbytes({name: state}), f"{words}: {_shapes(state)}"


def _summary(method: str) -> str:
    """Return the first line of what a method says of itself."""
    if method not in METHODS:
        return ""
    return (METHODS[method].__doc__ or "").split("\n")[0].rstrip(".")


def _shapes(state: State) -> str:
    shown = [f"{key} {list(value.shape)}" for key, value in list(state.items())[:3]]
    return ", ".join(shown) + (f" and {len(state) - 3} more" if len(state) > 3 else "")
