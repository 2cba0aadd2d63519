"""fedbr flower: the same experiment on a real federation."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

from . import interruptible, leave
from .run import FRESH, METHODS, SET, Watcher

app = typer.Typer(
    help="The same experiment on a real federation, through Flower.", no_args_is_help=True
)

TRIAL = 3  # nodes, where nobody says how many
FOLDER = typer.Argument(...)
RECIPE = typer.Argument("digits")
RECIPE_OPTION = typer.Option(
    "digits", "--recipe", help="A shipped recipe or a TOML file; it is copied into the app."
)
OUT = typer.Option(
    None, "--out", metavar="DIR", help="Result folder at the SuperLink; default: runs/<recipe>."
)
HOST = typer.Option(
    "127.0.0.1", "--host", help="Address to listen on; 0.0.0.0 for all, with --keys."
)
PORT = typer.Option(8000, "--port", min=1, max=65535, help="The one port that nodes must reach.")
HOME = typer.Option(
    Path("fedbr-server"), "--dir", help="Where the SuperLink's database and log go."
)
NODE_HOME = typer.Option(
    None, "--dir", help="Where the clients' memory and the log go; default: fedbr-node-<ids>."
)
KEYS = typer.Option(
    None, "--keys", metavar="DIR", help="TLS and node keys, as fedbr flower keys makes them."
)
INSECURE = typer.Option(
    False, "--insecure", help="Listen to others without TLS and without knowing them."
)
SUPERLINK = typer.Option(
    "127.0.0.1:8000", "--superlink", metavar="HOST:PORT", help="Where the SuperLink is."
)
THERE = typer.Option(
    None,
    "--superlink",
    metavar="HOST:PORT",
    help="A SuperLink that runs; default: one for the run.",
)
DATA = typer.Option(
    "",
    "--data",
    metavar="PATH",
    help="The site's own .npz or image folder; it never leaves the site.",
)
ID = typer.Option(None, "--id", min=0, help="The client that this node is.")
IDS = typer.Option("", "--ids", metavar="0-499", help="The clients of a node that holds several.")
NODE_PORT = typer.Option(
    0,
    "--port",
    min=0,
    max=65535,
    help="Port on this machine for the node's own processes; default: a free one.",
)
WORKERS = typer.Option(1, "--workers", min=1, help="Processes of a node that holds many clients.")
ANEW = typer.Option(
    False, "--start-anew", help="Clients whose memory is lost begin again instead of staying out."
)
NODES = typer.Option(
    None, "--nodes", min=1, help="Without --superlink: nodes that share the clients; default: 3."
)
TIMEOUT = typer.Option(
    600.0, "--reply-timeout", help="Seconds in which a round's replies must come."
)
WAIT = typer.Option(300.0, "--wait", help="Seconds to wait for nodes that are missing.")
SHARE = typer.Option(0.5, "--min-share", help="Share of a round's clients that must answer.")
NAMES = typer.Option(
    [], "--host", help="Name or address under which nodes reach the server; may be repeated."
)
COUNT = typer.Option(
    "0-2", "--ids", help="The nodes, by the first client of each: 0-19, or 0,100,200."
)


@app.command("init")
def init(
    folder: Path = FOLDER,
    recipe: str = RECIPE_OPTION,
    set_: list[str] = SET,
    out: Path | None = OUT,
) -> int:
    """Write a thin Flower app: then `flwr run DIR NAME` trains the recipe on a SuperLink."""
    from ..flower.app_dir import write_app
    from ..recipe import load as config

    chosen = config.load(recipe, set_)
    file = write_app(folder, chosen, {"out": str(out)} if out else {})
    print(f"Flower app: {file}   Run it: flwr run {shlex.quote(str(folder))} NAME --stream")
    return 0


@app.command("server")
def server(
    host: str = HOST,
    port: int = PORT,
    folder: Path = HOME,
    keys: Path | None = KEYS,
    insecure: bool = INSECURE,
) -> int:
    """Run a SuperLink until it is stopped; nodes whose public keys are in --keys may join."""
    from ..flower import launch

    launch.check_address(host, keys, insecure)
    folder = folder.absolute()
    with _until_stopped(
        folder, "SuperLink: stopped; a run goes on from its last round when it is started again"
    ) as own:
        launch.start_superlink(own, folder, host, port, keys and keys.absolute())
        safety = "TLS, known nodes only" if keys else "no TLS"
        print(
            f"SuperLink: {host}:{port}, {safety}   Log: {folder / 'superlink.log'}   Stop: Ctrl-C",
            flush=True,
        )
        own.running["the SuperLink"].wait()
        own.check()
    return 0


@app.command("node")
def node(
    superlink: str = SUPERLINK,
    data: str = DATA,
    id_: int | None = ID,
    ids: str = IDS,
    folder: Path | None = NODE_HOME,
    keys: Path | None = KEYS,
    port: int = NODE_PORT,
    workers: int = WORKERS,
    start_anew: bool = ANEW,
) -> int:
    """Run a node with one client, or many, until it is stopped. Its samples stay here."""
    from ..flower import launch
    from ..flower.processes import free_port
    from ..flower.settings import read_ids
    from ..util.errors import InputError

    if (id_ is None) == (not ids):
        raise InputError(
            "--id K for one client, or --ids 0-499 for several: one of the two is wanted"
        )
    ids = ids or str(id_)
    first = read_ids(ids)[0]
    folder = (folder or Path(f"fedbr-node-{ids.replace(',', '_')}")).absolute()
    config = launch.node_config(ids, data, folder / "state", workers, start_anew)
    line = launch.node_line(
        superlink, config, port or free_port(), keys and keys.absolute(), f"node-{first}"
    )
    with _until_stopped(folder, "Node: stopped; what its clients remember is kept") as own:
        print(
            f"Node: clients {ids} at {superlink}   Log: {folder / 'node.log'}   Stop: Ctrl-C",
            flush=True,
        )
        launch.keep_node(own, line, folder / "node.log")
    return 0


@app.command("run")
def run(
    recipe: str = RECIPE,
    set_: list[str] = SET,
    methods: list[str] = METHODS,
    out: Path | None = OUT,
    fresh: bool = FRESH,
    superlink: str | None = THERE,
    keys: Path | None = KEYS,
    nodes: int | None = NODES,
    reply_timeout: float = TIMEOUT,
    wait: float = WAIT,
    min_share: float = SHARE,
) -> int:
    """Train a recipe on a federation; results, resuming and report are those of fedbr run.

    Without --superlink, a SuperLink and nodes are started on this machine, for a trial, and stopped
    at the end.
    """
    from ..flower import launch
    from ..flower.processes import program
    from ..flower.server import check
    from ..flower.settings import run_settings
    from ..recipe import load as config
    from ..run.folder import ResultFolder

    chosen = config.load(recipe, set_, methods)
    check(chosen)
    results = ResultFolder((out or Path("runs") / chosen.name).absolute(), chosen)
    given = {
        "out": str(results.path),
        "reply-timeout": reply_timeout,
        "wait": wait,
        "min-share": min_share,
    }
    run_settings({**given, "recipe": chosen.to_toml()})
    folder, log = results.path / ".flower", results.path / "flower.log"
    said = log.stat().st_size if log.exists() else 0
    if superlink is None:
        clients = _clients(chosen, nodes)
        program("flower-superlink")  # refuse before anything is written
        with results.open(fresh):
            if fresh:
                shutil.rmtree(folder, ignore_errors=True)
    else:
        folder /= str(os.getpid())  # others may hand runs in too
    watch = Watcher(chosen)
    interruptible()
    try:
        with launch.workshop(folder) as processes:
            if superlink is None:
                launch.start_trial(processes, folder, clients, nodes or min(TRIAL, clients))
            else:
                launch.write_connection(processes.home, superlink, keys)
            launch.submit(processes, folder, chosen, {**given, "fresh": fresh})
            try:
                with watch.progress:
                    launch.follow(processes, results, watch)
            except KeyboardInterrupt:
                if superlink is not None:
                    launch.stop(processes.home, folder / "run.log")
                raise
            good = superlink is not None and launch.completed(processes.home, folder / "run.log")
    except KeyboardInterrupt:
        leave()
    code = _show(results, log, said, elsewhere=good)
    shutil.rmtree(folder, ignore_errors=True)
    return code


@app.command("keys")
def keys_(folder: Path = FOLDER, hosts: list[str] = NAMES, ids: str = COUNT) -> int:
    """Make a certificate authority, the server's certificate and the nodes' keys; what is there
    stays.
    """
    from ..flower.settings import read_ids
    from ..util.imports import require

    nodes = read_ids(ids)
    require("cryptography", extra="flower", wanted_by="fedbr flower")
    from ..flower.keys import make_keys

    made = make_keys(folder, hosts, nodes)
    for file in made:
        print(file)
    print(
        f"The server needs ca.crt, server.crt, server.key and node-*.pub; node K needs ca.crt and node-K*: {folder}"
    )
    print("Keep ca.key away from both: whoever has it can make certificates.")
    return 0


@app.command("audit")
def audit(
    recipe: str = RECIPE, set_: list[str] = SET, methods: list[str] = METHODS, data: str = DATA
) -> int:
    """List what a client reveals, in bytes and words; nothing is sent. --data: with a site's own
    samples.
    """
    from ..flower.audit import audit as listed
    from ..recipe import load as config

    chosen = config.load(recipe, set_, methods)
    for variant in chosen.compare:
        found = listed(chosen, variant, data)
        print(f"{variant.label}: what leaves a client")
        for item in found.items:
            size = f"{item.bytes:,} bytes" if item.bytes else ""
            print(f"  {item.when:<16} {item.what:<10} {size:>17}  {item.words}")
        print(
            f"  stays on the node's disk: {found.kept:,} bytes that the methods remember, and the samples"
        )
    return 0


def _clients(recipe: Any, nodes: int | None) -> int:
    """Count the clients of a trial; refuse what cannot be trained before anything is started."""
    from ..flower.server import at_sites
    from ..run.setup import build_setup, federation
    from ..util.errors import InputError

    if at_sites(recipe):
        raise InputError(
            "data.path = '': the samples are at the sites; --superlink HOST:PORT says where these are"
        )
    seed = recipe.train.seeds[0]
    clients = federation(recipe, seed)
    for variant in recipe.compare:
        build_setup(recipe.of(variant), variant, clients, seed)
    if (nodes or 1) > (count := len(clients.train.parts)):
        raise InputError(f"--nodes {nodes}: between 1 and {count}, the number of clients")
    return count


def _show(results: Any, log: Path, said: int, elsewhere: bool) -> int:
    """Print the comparison, or why there is none."""
    from ..util.errors import RunError
    from .tables import show

    plan = [
        results.run(variant, seed)
        for seed in results.recipe.train.seeds
        for variant in results.recipe.compare
    ]
    if not all(run.finished for run in plan):
        if elsewhere:
            print(
                f"The run is finished; its results are on the SuperLink's machine, in {results.path}"
            )
            return 0
        text = log.read_bytes()[said:].decode("utf-8", "replace") if log.exists() else ""
        errors = [line.partition(" ERROR ")[2] for line in text.splitlines() if " ERROR " in line]
        reason = (
            errors[-1] if errors else "the run was stopped, or failed on the SuperLink's machine"
        )
        raise RunError(
            f"{reason}; every finished round is safe, start it again to go on. Logs: {log}, {log.parent / '.flower'}"
        )
    found = results.results()
    show(found)
    print(f"Results: {results.path}   Report: fedbr report {shlex.quote(str(results.path))}")
    return 1 if any(r["diverged"] for r in found["runs"]) else 0


@contextmanager
def _until_stopped(folder: Path, farewell: str) -> Iterator[Any]:
    """Let programs run until they end or somebody stops this one."""
    from ..flower.processes import Processes

    interruptible()
    with Processes(folder / "home") as processes:
        try:
            yield processes
        except KeyboardInterrupt:
            print(farewell)
