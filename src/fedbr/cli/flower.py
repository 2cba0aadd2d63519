"""fedbr flower: the same experiment on a real federation."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from . import interruptible, leave
from .run import FRESH, METHODS, SET

if TYPE_CHECKING:
    from ..flower.programs import Programs
    from ..flower.types import ConfigValue
    from ..recipe.schema import Recipe
    from ..run.folder import ResultFolder
    from ..run.plan import Experiment

app = typer.Typer(
    help="The same experiment on a real federation, through Flower.", no_args_is_help=True
)

TRIAL_NODES = 3  # of a trial, unless --nodes says how many
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
SERVER_FOLDER = typer.Option(
    Path("fedbr-server"), "--dir", help="Where the SuperLink's database and log go."
)
NODE_FOLDER = typer.Option(
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
RUN_SUPERLINK = typer.Option(
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
START_ANEW = typer.Option(
    False, "--start-anew", help="Clients whose memory is lost begin again instead of staying out."
)
NODES = typer.Option(
    None, "--nodes", min=1, help="Without --superlink: nodes that share the clients; default: 3."
)
REPLY_TIMEOUT = typer.Option(
    600.0, "--reply-timeout", help="Seconds in which a round's replies must come."
)
WAIT = typer.Option(300.0, "--wait", help="Seconds to wait for nodes that are missing.")
MIN_SHARE = typer.Option(0.5, "--min-share", help="Share of a round's clients that must answer.")
HOSTS = typer.Option(
    [], "--host", help="Name or address under which nodes reach the server; may be repeated."
)
KEY_IDS = typer.Option(
    "0-2", "--ids", help="The nodes, by the first client of each: 0-19, or 0,100,200."
)


@app.command("init")
def init(
    folder: Path = FOLDER,
    recipe: str = RECIPE_OPTION,
    set_: list[str] = SET,
    out: Path | None = OUT,
) -> int:
    """Write a Flower app in one file; `flwr run DIR NAME` trains its recipe on a SuperLink."""
    from ..flower.app_dir import write_app
    from ..recipe.load import load

    chosen = load(recipe, set_)
    file = write_app(folder, chosen, {"out": str(out)} if out else {})
    print(f"Flower app: {file}   Run it: flwr run {shlex.quote(str(folder))} NAME --stream")
    return 0


@app.command("server")
def server(
    host: str = HOST,
    port: int = PORT,
    folder: Path = SERVER_FOLDER,
    keys: Path | None = KEYS,
    insecure: bool = INSECURE,
) -> int:
    """Run a SuperLink until it is stopped; nodes whose public keys are in --keys may join."""
    from ..flower import launch

    launch.check_address(host, keys, insecure)
    folder = folder.absolute()
    with _until_stopped(
        folder, "SuperLink: stopped; a run goes on from its last round when it is started again"
    ) as programs:
        launch.start_superlink(programs, folder, host, port, keys and keys.absolute())
        safety = "TLS, known nodes only" if keys else "no TLS"
        print(
            f"SuperLink: {host}:{port}, {safety}   Log: {folder / 'superlink.log'}   Stop: Ctrl-C",
            flush=True,
        )
        programs.running["the SuperLink"].wait()
        programs.check()
    return 0


@app.command("node")
def node(
    superlink: str = SUPERLINK,
    data: str = DATA,
    id_: int | None = ID,
    ids: str = IDS,
    folder: Path | None = NODE_FOLDER,
    keys: Path | None = KEYS,
    port: int = NODE_PORT,
    workers: int = WORKERS,
    start_anew: bool = START_ANEW,
) -> int:
    """Run a node with one client, or many, until it is stopped. Its samples stay here."""
    from ..flower import launch
    from ..flower.programs import free_port
    from ..flower.settings import read_ids
    from ..util.errors import InputError

    if (id_ is None) == (not ids):
        raise InputError("expected either --id K for one client, or --ids 0-499 for several")
    ids = ids or str(id_)
    first = read_ids(ids)[0]
    folder = (folder or Path(f"fedbr-node-{ids.replace(',', '_')}")).absolute()
    config = launch.node_config(ids, data, folder / "state", workers, start_anew)
    command = launch.node_command(
        superlink, config, port or free_port(), keys and keys.absolute(), f"node-{first}"
    )
    with _until_stopped(folder, "Node: stopped; what its clients remember is kept") as programs:
        print(
            f"Node: clients {ids} at {superlink}   Log: {folder / 'node.log'}   Stop: Ctrl-C",
            flush=True,
        )
        launch.keep_node(programs, command, folder / "node.log")
    return 0


@app.command("run")
def run(
    recipe: str = RECIPE,
    set_: list[str] = SET,
    methods: list[str] = METHODS,
    out: Path | None = OUT,
    fresh: bool = FRESH,
    superlink: str | None = RUN_SUPERLINK,
    keys: Path | None = KEYS,
    nodes: int | None = NODES,
    reply_timeout: float = REPLY_TIMEOUT,
    wait: float = WAIT,
    min_share: float = MIN_SHARE,
) -> int:
    """Train a recipe on a federation; results, resuming and report are those of fedbr run.

    Without --superlink, a SuperLink and nodes are started on this machine, for a trial, and stopped
    at the end.
    """
    from ..flower import launch, submit
    from ..flower.admission import check_recipe
    from ..flower.flwr_command import write_connection
    from ..flower.programs import find_program
    from ..flower.settings import read_run_settings
    from ..recipe.load import load
    from ..run.folder import ResultFolder
    from ..run.plan import Experiment

    chosen = load(recipe, set_, methods)
    check_recipe(chosen)
    results = ResultFolder((out or Path("runs") / chosen.name).absolute(), chosen)
    config: dict[str, ConfigValue] = {
        "out": str(results.path),
        "reply-timeout": reply_timeout,
        "wait": wait,
        "min-share": min_share,
    }
    read_run_settings({**config, "recipe": chosen.to_toml()})  # refuse before anything is started
    config["fresh"] = fresh
    folder, server_log = results.path / ".flower", results.path / "flower.log"
    log_start = server_log.stat().st_size if server_log.exists() else 0
    if superlink is None:
        clients = _count_clients(chosen, nodes)
        find_program("flower-superlink")  # refuse before anything is written
        with results.open(fresh):
            if fresh:
                shutil.rmtree(folder, ignore_errors=True)
    else:
        folder /= str(os.getpid())  # others may submit runs too
    interruptible()
    try:
        with submit.programs_in(folder) as programs:
            if superlink is None:
                launch.start_trial(programs, folder, clients, nodes or min(TRIAL_NODES, clients))
            else:
                write_connection(programs.home, superlink, keys)
            submit.submit(programs, folder, chosen, config)
            experiment = Experiment(chosen, results.path)
            finished_there = _follow(programs, experiment, folder / "run.log", superlink is None)
    except KeyboardInterrupt:
        leave()
    # Read the folder anew: another process has written into it.
    code = _show_results(ResultFolder(results.path, chosen), server_log, log_start, finished_there)
    shutil.rmtree(folder, ignore_errors=True)
    return code


@app.command("keys")
def keys_(folder: Path = FOLDER, hosts: list[str] = HOSTS, ids: str = KEY_IDS) -> int:
    """Make a certificate authority, the server's certificate and the nodes' keys.

    Files that exist are kept.
    """
    from ..flower.settings import read_ids
    from ..util.imports import require

    nodes = read_ids(ids)
    require("cryptography", extra="flower", needed_by="fedbr flower")
    from ..flower.keys import make_keys

    for file in make_keys(folder, hosts, nodes):
        print(file)
    print(
        "The server needs ca.crt, server.crt, server.key and node-*.pub; node K needs ca.crt and "
        f"node-K*: {folder}"
    )
    print("Keep ca.key away from both: whoever has it can make certificates.")
    return 0


@app.command("audit")
def audit(
    recipe: str = RECIPE, set_: list[str] = SET, methods: list[str] = METHODS, data: str = DATA
) -> int:
    """List what a client would send, in bytes and words; nothing is sent.

    With --data, it is what a site with these samples would send.
    """
    from ..flower.audit import audit as audit_variant
    from ..recipe.load import load

    chosen = load(recipe, set_, methods)
    for variant in chosen.compare:
        audited = audit_variant(chosen, variant, data)
        print(f"{variant.label}: what leaves a client")
        for item in audited.items:
            size = f"{item.bytes:,} bytes" if item.bytes else ""
            print(f"  {item.when:<16} {item.what:<10} {size:>17}  {item.words}")
        print(
            f"  stays on the node's disk: {audited.kept:,} bytes that the methods remember, and "
            "the samples"
        )
    return 0


def _count_clients(recipe: Recipe, nodes: int | None) -> int:
    """Return how many clients a trial has; refuse now what could not be trained later."""
    from ..flower.admission import needs_sites
    from ..run.plan import RecipeSource
    from ..util.errors import InputError

    if needs_sites(recipe):
        raise InputError(
            "data.path = '': the samples are at the sites; --superlink HOST:PORT says where these "
            "are"
        )
    source, seed = RecipeSource(recipe), recipe.train.seeds[0]
    clients = source.clients(seed)
    for variant in recipe.compare:
        source.setup(variant, seed, clients)
    count = clients.census.num_clients
    if (nodes or 1) > count:
        raise InputError(f"--nodes {nodes}: between 1 and {count}, the number of clients")
    return count


def _follow(programs: Programs, experiment: Experiment, log: Path, is_trial: bool) -> bool:
    """Show the rounds of a submitted run until it ends.

    Args:
        programs: among them the one that brings the run's log.
        experiment: what the run trains.
        log: the run's.
        is_trial: whether the SuperLink ends with this command. If not, the run is stopped there
            after Ctrl-C.

    Returns:
        Whether a SuperLink that stays has finished the run.
    """
    from ..flower import submit
    from .progress import Progress

    try:
        with Progress() as progress:
            submit.follow(programs, experiment, progress)
    except KeyboardInterrupt:
        if not is_trial:
            submit.stop(programs.home, log)
        raise
    return not is_trial and submit.is_completed(programs.home, log)


def _show_results(
    folder: ResultFolder, server_log: Path, log_start: int, finished_there: bool
) -> int:
    """Print the comparison, or why there is none.

    Args:
        folder: where the results are, if they are on this machine.
        server_log: what the server logged, this time from ``log_start`` on.
        finished_there: whether the run is finished on the machine of a running SuperLink.

    Raises:
        RunError: some run is not finished.
    """
    from ..report.compare import compare
    from ..util.errors import RunError
    from .tables import show

    recipe = folder.recipe
    runs = [folder.run(variant, seed) for seed in recipe.train.seeds for variant in recipe.compare]
    if all(run.finished for run in runs):
        results = folder.results()
        show(compare(results))
        print(f"Results: {folder.path}   Report: fedbr report {shlex.quote(str(folder.path))}")
        return 1 if results.diverged else 0
    if finished_there:
        print(f"The run is finished; its results are on the SuperLink's machine, in {folder.path}")
        return 0
    reason = _last_error(server_log, log_start)
    raise RunError(
        f"{reason}; every finished round is safe, start it again to go on. "
        f"Logs: {server_log}, {server_log.parent / '.flower'}"
    )


def _last_error(log: Path, start: int) -> str:
    """Return the last error in a log, from some byte on."""
    text = log.read_bytes()[start:].decode("utf-8", "replace") if log.exists() else ""
    for line in reversed(text.splitlines()):
        if " ERROR " in line:
            return line.partition(" ERROR ")[2]
    return "the run was stopped, or failed on the SuperLink's machine"


@contextmanager
def _until_stopped(folder: Path, message: str) -> Iterator[Programs]:
    """Let programs run until they end, or until Ctrl-C; then print a message."""
    from ..flower.programs import Programs

    interruptible()
    with Programs(folder / "home") as programs:
        try:
            yield programs
        except KeyboardInterrupt:
            print(message)
