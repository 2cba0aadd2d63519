"""What leaves a client, in bytes and words, before anything is sent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ..core.census import Clients
from ..core.wire import Payload, State, nbytes
from ..methods import METHODS
from ..metrics import select
from ..recipe.schema import Recipe, Variant
from ..run.plan import RecipeSource
from .admission import check_recipe
from .facts import merge_common
from .rehearsal import rehearse
from .remote import UNKNOWN, RemoteClients
from .settings import read_node_settings
from .site import OwnSite


class Item(NamedTuple):
    """Something that leaves a client."""

    when: str
    what: str  # what it is called
    bytes: int
    words: str  # what it is


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

    The sizes are those of a rehearsal with made-up samples.

    Args:
        recipe: what would be trained.
        variant: one of the recipe's.
        data: a site's own samples; without, they are the recipe's.

    Raises:
        InputError: the recipe cannot be trained on a federation.
    """
    check_recipe(recipe)
    seed = recipe.train.seeds[0]
    source = RecipeSource(recipe)
    clients: Clients = _make_clients(recipe, data) if data else source.clients(seed)
    expected = rehearse(source.setup(variant, seed, clients))
    items: list[Item] = []
    for when, payload in expected.contributed.items():
        time = "before training" if when == 0 else "each round"
        items += _list_sections(payload, time, "contribution")
    items += _list_sections(expected.replied, "each round", "upload")
    items += ALWAYS
    items += _list_tallies(recipe, clients.census.num_classes)
    return Audit(items, nbytes(expected.remembered))


def _make_clients(recipe: Recipe, data: str) -> RemoteClients:
    """Make the clients of sites that have samples such as these."""
    facts = OwnSite(read_node_settings({"ids": "0", "data-path": data})).facts(recipe)
    assert facts.site is not None
    common = merge_common({0: facts.site.common})
    return RemoteClients(common, [UNKNOWN] * (recipe.data.clients or 1), recipe.data)


def _list_tallies(recipe: Recipe, classes: int) -> Iterator[Item]:
    """List what the recipe's own metrics count beside the right answers."""
    listed = {tally.name for metric in select() for tally in metric.tallies(own_tests=True)}
    for metric in select(recipe.metrics.extra):
        for tally in metric.tallies(own_tests=True):
            if tally.name not in listed:
                listed.add(tally.name)
                words = f"what the metric {metric.name} counts on the client's own test samples"
                yield Item("each test", tally.name, 8 * tally.size(classes), words)


def _list_sections(payload: Payload, when: str, kind: str) -> Iterator[Item]:
    """List the sections of what a client sends: those of methods, and the model's."""
    for name, state in payload.items():
        if name == "model":
            words = "the client's weights after local training"
        else:
            summary = _summary(name)
            words = f"{kind} of {name} ({summary})" if summary else f"{kind} of {name}"
        yield Item(when, name, nbytes({name: state}), f"{words}: {_shapes(state)}")


def _summary(method: str) -> str:
    """Return the first line of a method's docstring."""
    if method not in METHODS:
        return ""
    return (METHODS[method].__doc__ or "").split("\n")[0].rstrip(".")


def _shapes(state: State) -> str:
    """Describe the first three tensors of a section, and say how many more there are."""
    shapes = [f"{key} {list(value.shape)}" for key, value in state.items()]
    text = ", ".join(shapes[:3])
    return text if len(shapes) <= 3 else f"{text} and {len(shapes) - 3} more"
