"""Flower's programs for one federation: the SuperLink, and its nodes."""

from __future__ import annotations

import ipaddress
import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..util.errors import InputError, RunError
from ..util.files import write
from .daemon import SOCKET
from .messages import ranges
from .programs import Programs, environment, free_port, last_words, listens, program, wait_until
from .settings import read_ids

NAME = "fedbr"  # of the connection, in Flower's config.toml
# In the log of a node that the SuperLink does not let in; the process ends with 1.
REFUSED = "Exit Code: 305"
UNTRUSTED = b"certificate verify failed"
START = 120.0  # seconds for a program to listen, or to answer
RETRY = 10.0  # seconds between the attempts of a node that is refused
RETRIES = 18


def check_address(host: str, keys: Path | None, insecure: bool) -> None:
    """Refuse to listen to the world without TLS, unless that is wanted."""
    if keys is None and not insecure and not _is_loopback(host):
        raise InputError(
            f"--host {host}: others can reach it, and without --keys everybody can read and join; "
            "make keys with fedbr flower keys, or say --insecure"
        )


def start_superlink(
    programs: Programs, folder: Path, host: str, port: int, keys: Path | None
) -> None:
    """Start a SuperLink, and wait until it listens.

    folder: for its database and its log. keys: the nodes whose public keys are there may join.
    """
    if listens(_reachable(host), port):
        raise InputError(f"--port {port}: already in use")
    line = ["flower-superlink", "--host", host, "--port", str(port)]
    line += ["--database", str(folder / "state.db"), "--disable-runtime-dependency-installation"]
    if keys is None:
        line += ["--insecure"]
    else:
        line += ["--enable-supernode-auth", *_tls(keys, "server")]
    programs.start("the SuperLink", line, folder / "superlink.log")
    wait_until(
        lambda: listens(_reachable(host), port), START, "the SuperLink to listen", programs.check
    )
    write_connection(programs.home, f"{_reachable(host)}:{port}", keys)
    for public in sorted(keys.glob("node-*.pub")) if keys else ():
        register(programs.home, public)


def register(home: Path, public: Path) -> None:
    """Let the SuperLink know a node; one that it knows already stays."""
    done = flwr(home, "supernode", "register", str(public), NAME)
    if done.returncode and "already" not in done.stdout + done.stderr:
        reason = plain_words(done.stdout + done.stderr)
        raise RunError(f"{public.name}: cannot be registered ({reason})")


def node_line(
    superlink: str, config: Mapping[str, Any], port: int, keys: Path | None, name: str
) -> list[str]:
    """Return the command line of a node that listens on this machine only."""
    settings = " ".join(f"{key}={json.dumps(value)}" for key, value in config.items())
    line = ["flower-supernode", "--superlink", superlink, "--host", "127.0.0.1"]
    line += ["--port", str(port), "--node-config", settings]
    if keys is None:
        return [*line, "--insecure"]
    line += ["--root-certificates", str(existing(keys / "ca.crt"))]
    line += ["--auth-supernode-private-key", str(existing(keys / name))]
    return [*line, *_tls(keys, f"{name}.tls")]


def start_node(programs: Programs, name: str, line: list[str], log: Path) -> None:
    """Start a node, and the process in which its clients train."""
    program(line[0])  # say at once that Flower is not installed
    settings = {}
    if hasattr(socket, "AF_UNIX"):
        # In a folder that is only ours; and short, as sockets need it.
        address = programs.private_folder() / "socket"
        line_of_daemon = [sys.executable, "-m", "fedbr.flower.daemon", str(address)]
        programs.start(daemon_of(name), line_of_daemon, log)
        wait_until(address.exists, START, "the node to import its libraries", programs.check)
        settings = {SOCKET: str(address)}
    programs.start(name, line, log, settings)


def daemon_of(node: str) -> str:
    """Name the process of a node in which its clients train."""
    return f"{node} (daemon)"


def keep_node(programs: Programs, line: list[str], log: Path) -> None:
    """Run a node until it ends.

    Where the SuperLink refuses it, as after a quick restart, it is started again for a while.
    """
    refused = 0
    while refused <= RETRIES:
        before, begin = log.stat().st_size if log.exists() else 0, time.monotonic()
        start_node(programs, "the node", line, log)
        code = _watched(programs.running["the node"], log, before)
        programs.close()
        words = last_words(log, before)
        if REFUSED not in words:
            raise RunError(f"the node ended with code {code}: {words}; all of it: {log}")
        was_in = time.monotonic() - begin >= START  # then refusals count anew
        refused = 1 if was_in else refused + 1
        time.sleep(RETRY)
    raise RunError(
        f"the SuperLink refused the node for {RETRY * RETRIES:.0f} s: is its public key registered "
        f"there? Log: {log}"
    )


def _watched(node: subprocess.Popen[bytes], log: Path, before: int) -> int:
    """Wait for a node to end. One that does not trust the SuperLink would try for ever."""
    end = time.monotonic() + START
    while node.poll() is None and time.monotonic() < end:
        time.sleep(1)
        if UNTRUSTED in log.read_bytes()[before:].lower():
            raise RunError(
                "the certificate of the SuperLink is not signed by the ca.crt of this node; "
                f"Log: {log}"
            )
    return node.wait()


def node_config(
    ids: str, data: str, state: Path, workers: int = 1, anew: bool = False
) -> dict[str, Any]:
    """Return the settings of a node, as Flower hands them to its clients."""
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
    if workers > 1:
        config["workers"] = workers
    if anew:
        config["start-anew"] = True
    return config


def write_connection(home: Path, address: str, keys: Path | None) -> None:
    """Tell the flwr command where the SuperLink is."""
    home.mkdir(parents=True, exist_ok=True)
    safety = "insecure = true"
    if keys:
        safety = f'root-certificates = "{existing(keys / "ca.crt").absolute()}"'
    lines = [
        "[superlink]",
        f'default = "{NAME}"',
        "",
        f"[superlink.{NAME}]",
        f'address = "{address}"',
        safety,
    ]
    write(home / "config.toml", "\n".join(lines) + "\n")


def start_trial(programs: Programs, folder: Path, clients: int, nodes: int) -> None:
    """Start a SuperLink and nodes that share the recipe's clients, all on this machine."""
    port = free_port()
    start_superlink(programs, folder, "127.0.0.1", port, None)
    for node in range(nodes):
        ids = ranges(range(clients * node // nodes, clients * (node + 1) // nodes))
        config = node_config(ids, "", folder / f"node-{node}")
        line = node_line(f"127.0.0.1:{port}", config, free_port(), None, "")
        start_node(programs, f"node {node}", line, folder / f"node-{node}.log")


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


def plain_words(text: str) -> str:
    """Return the end of what Flower's command line printed, without colours and frames."""
    return " ".join(re.sub(r"[^\x20-\x7e]+", " ", text).split())[-300:]
