"""What may take part: recipes that make sense on a federation, nodes whose samples fit together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from ..core.census import Clients
from ..core.method import Method
from ..recipe.schema import Recipe
from ..run.plan import RecipeSource
from ..util.errors import InputError
from ..util.files import dump, read_json, reading, write
from .facts import NodeFacts, SiteFacts, merge_common
from .messages import ranges
from .remote import RemoteClients
from .roster import Roster

SITES = "sites.json"  # what the sites said of their samples when the first run began


def check_recipe(recipe: Recipe) -> None:
    """Refuse a recipe that cannot be trained on a real federation.

    Raises:
        InputError: clients would train alone, or samples that stay at the sites would have to be
            here.
    """
    for variant in recipe.compare:
        for method in variant.build():
            if method.alone or type(method).personal is not Method.personal:
                raise InputError(
                    f"compare[{variant.label}]: with {method.name!r} every client keeps a model of "
                    "its own and nothing is sent; a federation has nothing to do: use fedbr run"
                )
    if needs_sites(recipe):
        _check_sites(recipe)


def needs_sites(recipe: Recipe) -> bool:
    """Say whether only the sites can have a recipe's samples."""
    return recipe.data.name in ("npz", "folder") and not recipe.data.path


def find_clients(roster: Roster, recipe: Recipe, folder: Path) -> Callable[[int], Clients]:
    """Find out whose samples these are: the recipe's, which the server has too, or the sites' own.

    From then on the roster refuses nodes whose samples do not fit.

    Args:
        roster: the nodes; one of them is asked.
        recipe: what is trained.
        folder: where the sites' facts are written down, so that later calls notice other samples.

    Returns:
        A function from a random seed to the clients.
    """
    roster.wait_for_one()
    first = next(iter(roster.nodes.values()))
    if first.facts.own:
        clients = _clients_of_sites(roster, recipe, folder / SITES)
        return lambda seed: clients
    source = RecipeSource(recipe)
    common = source.clients(recipe.train.seeds[0])
    roster.recheck(partial(_check_recipe_samples, common.content))
    return source.clients


def _clients_of_sites(roster: Roster, recipe: Recipe, file: Path) -> RemoteClients:
    """Wait until all sites are there for the first time, and write down what they say."""
    _check_sites(recipe)
    assert recipe.data.clients is not None
    everybody = range(recipe.data.clients)
    if not file.exists():
        roster.recheck(partial(_check_own_samples, len(everybody)))
        roster.wait(everybody, len(everybody), patient=True)
        write(file, dump(_gather_facts(roster, everybody).to_json()))
    with reading(file):
        sites = SiteFacts.from_json(read_json(file, {}))
        clients = [sites.clients[client] for client in everybody]
    roster.recheck(partial(_check_unchanged, sites))
    return RemoteClients(sites.common, clients, recipe.data)


def _check_sites(recipe: Recipe) -> None:
    """Refuse what cannot be done with samples that stay at the sites."""
    if recipe.data.clients is None:
        raise InputError("data.clients: say how many clients the sites have together")
    if recipe.metrics.bias_every:
        raise InputError(
            f"metrics.bias_every = {recipe.metrics.bias_every}: every client's model would have to "
            "be tested on all test samples, but these stay at the sites; only 0 is allowed"
        )


def _gather_facts(roster: Roster, everybody: range) -> SiteFacts:
    """Put together what the sites say, once all of them are there."""
    sites: dict[int, SiteFacts] = {}
    for node in roster.nodes.values():
        for client in node.clients:
            assert node.facts.site is not None
            sites[client] = node.facts.site
    common = merge_common({client: site.common for client, site in sites.items()})
    return SiteFacts(common, {client: sites[client].clients[client] for client in everybody})


# The checks of a roster: each returns why a node is refused, or None.


def _check_recipe_samples(content: str, clients: Sequence[int], facts: NodeFacts) -> str | None:
    if facts.own:
        return "has samples of its own, but the other nodes have the recipe's; all or none"
    if facts.content != content:
        return f"has other samples than the server (content {facts.content} there, {content} here)"
    return None


def _check_own_samples(count: int, clients: Sequence[int], facts: NodeFacts) -> str | None:
    if not facts.own:
        return "has no samples of its own (--data), but the other nodes have; all or none"
    strangers = [client for client in clients if client not in range(count)]
    if strangers:
        return f"is not among the recipe's clients 0 to {count - 1}: {ranges(strangers)}"
    if facts.site is None or not set(clients) <= facts.site.clients.keys():
        return "its facts are invalid"
    return None


def _check_unchanged(sites: SiteFacts, clients: Sequence[int], facts: NodeFacts) -> str | None:
    reason = _check_own_samples(len(sites.clients), clients, facts)
    if reason is not None:
        return reason
    assert facts.site is not None
    for client in clients:
        then, now = sites.clients[client].content, facts.site.clients[client].content
        if then != now:
            return (
                f"client {client} has other samples than when the run began (content {then} then, "
                f"{now} now)"
            )
    return None
