"""Flower's programs for one federation: the SuperLink, its nodes, and a run that is handed in and
followed.
"""

from __future__ import annotations

import ipaddress
import json
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ..recipe.schema import Recipe
from ..run.folder import ResultFolder
from ..run.loop import Watch
from ..util.errors import InputError, RunError
from ..util.files import write
from .app_dir import write_app
from .desk import SOCKET
from .messages import ranges
from .processes import Processes, environment, free_port, last_words, listens, program, wait_until
from .settings import read_ids

RUN = "the run"
NAME = "fedbr"  # of the connection, in Flower's config.toml
REFUSED = "Exit Code: 305"  # in the log of a node that the SuperLink does not let in; the process ends with 1
UNTRUSTED = b"certificate verify failed"
START = 120.0  # seconds for a program to listen, or to answer
RETRY, RETRIES = (
    10.0,
    18,
)  # seconds between the attempts of a node that is refused, and how many of them


def check_address(host: str, keys: Path | None, insecure: bool) -> None:
    """Refuse to listen to the world without TLS, unless told so."""
    if keys is None and not insecure and not _is_loopback(host):
        raise InputError(
            f"--host {host}: others can reach it, and without --keys everybody can read and join; make keys with "
            "fedbr flower keys, or say --insecure"
        )


def start_superlink(
    processes: Processes, folder: Path, host: str, port: int, keys: Path | None
) -> None:
    """Start a SuperLink, wait until it listens, and let it know the nodes whose public keys are
    there.
    """
    if listens(_reachable(host), port):
        raise InputError(f"--port {port}: somebody listens there already")
    line = [
        "flower-superlink",
        "--host",
        host,
        "--port",
        str(port),
        "--database",
        str(folder / "state.db"),
    ]
    line += ["--disable-runtime-dependency-installation"]
    if keys is None:
        line += ["--insecure"]
    else:
        line += ["--enable-supernode-auth", *_tls(keys, "server")]
    processes.start("the SuperLink", line, folder / "superlink.log")
    wait_until(
        lambda: listens(_reachable(host), port), START, "the SuperLink to listen", processes.check
    )
    write_connection(processes.home, f"{_reachable(host)}:{port}", keys)
    for public in sorted(keys.glob("node-*.pub")) if keys else ():
        register(processes.home, public)


def register(home: Path, public: Path) -> None:
    """Let the SuperLink know a node; one that it knows already stays."""
    done = flwr(home, "supernode", "register", str(public), NAME)
    if done.returncode and "already" not in done.stdout + done.stderr:
        raise RunError(f"{public.name}: cannot be registered ({_words(done.stdout + done.stderr)})")


def node_line(
    superlink: str, config: Mapping[str, Any], port: int, keys: Path | None, name: str
) -> list[str]:
    """Return the command line of a node that listens on this machine only."""
    line = [
        "flower-supernode",
        "--superlink",
        superlink,
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
    ]
    line += [
        "--node-config",
        " ".join(f"{key}={json.dumps(value)}" for key, value in config.items()),
    ]
    if keys is None:
        return [*line, "--insecure"]
    line += ["--root-certificates", str(existing(keys / "ca.crt"))]
    line += ["--auth-supernode-private-key", str(existing(keys / name))]
    return [*line, *_tls(keys, f"{name}.tls")]


def start_node(processes: Processes, name: str, line: list[str], log: Path) -> None:
    """Start a node, and the process in which its clients train."""
    program(line[0])  # say at once that Flower is not installed
    settings = {}
    if hasattr(socket, "AF_UNIX"):
        address = (
            processes.room() / "desk"
        )  # in a folder that is only ours, and short, as sockets want it
        processes.start(
            f"{name} (desk)", [sys.executable, "-m", "fedbr.flower.desk", str(address)], log
        )
        wait_until(address.exists, START, "the node to import its libraries", processes.check)
        settings = {SOCKET: str(address)}
    processes.start(name, line, log, settings)


def keep_node(processes: Processes, line: list[str], log: Path) -> None:
    """Run a node until it ends; where the SuperLink refuses it, as after a quick restart, try again
    for a while.
    """
    refused = 0
    while refused <= RETRIES:
        before, begin = log.stat().st_size if log.exists() else 0, time.monotonic()
        start_node(processes, "the node", line, log)
        code = _watched(processes.running["the node"], log, before)
        processes.close()
        said = last_words(log, before)
        if REFUSED not in said:
            raise RunError(f"the node ended with code {code}: {said}; all of it: {log}")
        refused = (
            refused + 1 if time.monotonic() - begin < START else 1
        )  # one that was let in begins to count anew
        time.sleep(RETRY)
    raise RunError(
        f"the SuperLink refused the node for {RETRY * RETRIES:.0f} s: is its public key registered there? Log: {log}"
    )


def _watched(node: subprocess.Popen[bytes], log: Path, before: int) -> int:
    """Wait for a node to end. One that does not trust the SuperLink would try for ever."""
    end = time.monotonic() + START
    while node.poll() is None and time.monotonic() < end:
        time.sleep(1)
        if UNTRUSTED in log.read_bytes()[before:].lower():
            raise RunError(
                f"the certificate of the SuperLink is not signed by the ca.crt of this node; Log: {log}"
            )
    return node.wait()


def node_config(
    ids: str, data: str, state: Path, workers: int = 1, anew: bool = False
) -> dict[str, Any]:
    """Return what a node tells its clients."""
    read_ids(ids)
    config: dict[str, Any] = {"ids": ids, "state-dir": str(state.absolute())}
    if data:
        place = Path(data).expanduser().absolute()
        if not place.exists():
            raise InputError(f"--data {data}: there is no such file or folder")
        config["data-path"] = str(place)
    if '"' in "".join(config.values()):
        raise InputError(
            f"--data {data}, --dir {state.parent}: Flower reads no paths with quotation marks"
        )
    return (
        config
        | ({"workers": workers} if workers > 1 else {})
        | ({"start-anew": True} if anew else {})
    )


def write_connection(home: Path, address: str, keys: Path | None) -> None:
    """Tell the flwr command where the SuperLink is."""
    home.mkdir(parents=True, exist_ok=True)
    safety = (
        f'root-certificates = "{existing(keys / "ca.crt").absolute()}"'
        if keys
        else "insecure = true"
    )
    text = (
        f'[superlink]\ndefault = "{NAME}"\n\n[superlink.{NAME}]\naddress = "{address}"\n{safety}\n'
    )
    write(home / "config.toml", text)


def start_trial(processes: Processes, folder: Path, clients: int, nodes: int) -> None:
    """Start a SuperLink and nodes that share the recipe's clients, all on this machine."""
    port = free_port()
    start_superlink(processes, folder, "127.0.0.1", port, None)
    for node in range(nodes):
        ids = ranges(range(clients * node // nodes, clients * (node + 1) // nodes))
        config = node_config(ids, "", folder / f"node-{node}")
        line = node_line(f"127.0.0.1:{port}", config, free_port(), None, "")
        start_node(processes, f"node {node}", line, folder / f"node-{node}.log")


def submit(processes: Processes, folder: Path, recipe: Recipe, config: Mapping[str, Any]) -> None:
    """Hand a run in; a process stays that brings its log and ends when the run does."""
    write_app(folder / "app", recipe, config)
    (folder / "run.log").unlink(missing_ok=True)
    processes.start(RUN, ["flwr", "run", str(folder / "app"), NAME, "--stream"], folder / "run.log")


def follow(processes: Processes, folder: ResultFolder, watch: Watch) -> None:
    """Tell of every round as it appears in the result folder, until the run ends; refuse what never
    began.
    """
    seen: dict[tuple[str, int], int] = {}
    plan = [
        (variant, seed) for seed in folder.recipe.train.seeds for variant in folder.recipe.compare
    ]
    while True:
        over = processes.running[RUN].poll() is not None
        for variant, seed in plan:
            lines = folder.run(variant, seed).lines()
            if lines and (variant.label, seed) not in seen:
                watch(variant.label, seed, None)
            for line in lines[seen.get((variant.label, seed), 0) :]:
                watch(variant.label, seed, line)
            if lines:
                seen[variant.label, seed] = len(lines)
        if over:
            log, code = processes.logs[RUN], processes.running[RUN].returncode
            processes.stop(RUN)
            if _run_id(log) is None:
                raise RunError(
                    f"the run was not handed in (code {code}): {_words(log.read_text('utf-8'))}"
                )
            return
        processes.check(besides=RUN)
        time.sleep(0.5)


def stop(home: Path, log: Path) -> None:
    """End the run that a log is of; every finished round is safe."""
    if run := _run_id(log):
        with suppress(RunError):
            flwr(home, "stop", run, NAME)


def completed(home: Path, log: Path) -> bool:
    """Ask the SuperLink whether the run that a log is of came to a good end."""
    return (
        "finished:completed"
        in flwr(home, "list", "--run-id", _run_id(log) or "", NAME, "--format", "json").stdout
    )


@contextmanager
def workshop(folder: Path) -> Iterator[Processes]:
    """Lend a folder to the programs of one run; logs, and what the clients of a trial remember,
    stay there.
    """
    try:
        with Processes(folder / "home") as processes:
            _sweep(folder)
            yield processes
    finally:
        _sweep(folder)


def _sweep(folder: Path) -> None:
    """Remove what no later call needs: a run that goes on does so from the result folder, on a new
    SuperLink.
    """
    for name in ("home", "app"):
        shutil.rmtree(folder / name, ignore_errors=True)
    for file in folder.glob("state.db*"):
        file.unlink(missing_ok=True)


def _run_id(log: Path) -> str | None:
    found = re.search(r"started run (\d+)", log.read_text("utf-8") if log.exists() else "")
    return found[1] if found else None


def flwr(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Call Flower's own command line."""
    line = [program("flwr"), *words]
    try:
        return subprocess.run(
            line, env=environment(home), capture_output=True, text=True, timeout=START, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise RunError(f"flwr {words[0]}: the SuperLink did not answer in {START:.0f} s") from error


def existing(file: Path) -> Path:
    """Refuse a file that is not there."""
    if not file.exists():
        raise InputError(
            f"--keys {file.parent}: has no {file.name}; make it with fedbr flower keys"
        )
    return file


def _tls(keys: Path, name: str) -> list[str]:
    files = {
        "--ssl-ca-certfile": "ca.crt",
        "--ssl-certfile": f"{name}.crt",
        "--ssl-keyfile": f"{name}.key",
    }
    return [word for option, file in files.items() for word in (option, str(existing(keys / file)))]


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _reachable(host: str) -> str:
    return "127.0.0.1" if host in ("0.0.0.0", "::") else host


def _words(text: str) -> str:
    return " ".join(re.sub(r"[^\x20-\x7e]+", " ", text).split())[-300:]
