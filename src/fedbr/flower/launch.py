"""Start the programs of one federation: the SuperLink, and its nodes."""

from __future__ import annotations

import ipaddress
import json
import socket
import subprocess
import sys
import time
from pathlib import Path

from ..util.errors import InputError, RunError
from .daemon import SOCKET
from .flwr_command import check_key, register, write_connection
from .messages import ranges
from .programs import (
    Programs,
    find_program,
    free_port,
    is_listening,
    last_message,
    wait_until,
)
from .settings import read_ids
from .types import Config, ConfigValue

# In the log of a node that the SuperLink does not let in; the process ends with 1.
REFUSED = "Exit Code: 305"
UNTRUSTED = b"certificate verify failed"
START_TIMEOUT = 120.0  # seconds for a program to listen
RETRY = 10.0  # seconds between the attempts of a node that is refused
RETRIES = 18


def check_address(host: str, keys: Path | None, insecure: bool) -> None:
    """Refuse to listen to other machines without TLS, unless the user insists.

    Args:
        host: the address to listen on.
        keys: the folder of certificates and keys; None: without TLS.
        insecure: whether the user insists.

    Raises:
        InputError: others could reach it.
    """
    if keys is None and not insecure and not _is_loopback(host):
        raise InputError(
            f"--host {host}: others can reach it, and without --keys everybody can read and join; "
            "make keys with fedbr flower keys, or say --insecure"
        )


def start_superlink(
    programs: Programs, folder: Path, host: str, port: int, keys: Path | None
) -> None:
    """Start a SuperLink, and wait until it listens.

    Args:
        programs: it becomes one of them.
        folder: for its database and its log.
        host: the address to listen on.
        port: the port to listen on.
        keys: the nodes whose public keys are there may join; None: all may, without TLS.

    Raises:
        InputError: the port is in use, or a key is missing.
        RunError: the SuperLink does not start.
    """
    address = _reachable(host)
    if is_listening(address, port):
        raise InputError(f"--port {port}: already in use")
    command = ["flower-superlink", "--host", host, "--port", str(port)]
    command += ["--database", str(folder / "state.db")]
    command += ["--disable-runtime-dependency-installation"]
    if keys is None:
        command += ["--insecure"]
    else:
        command += ["--enable-supernode-auth", *_tls_options(keys, "server")]
    programs.start("the SuperLink", command, folder / "superlink.log")
    wait_until(
        lambda: is_listening(address, port),
        START_TIMEOUT,
        "the SuperLink to listen",
        programs.check,
    )
    write_connection(programs.home, f"{address}:{port}", keys)
    if keys is not None:
        for public_key in sorted(keys.glob("node-*.pub")):
            register(programs.home, public_key)


def node_command(
    superlink: str, config: Config, port: int, keys: Path | None, name: str
) -> list[str]:
    """Return the command line of a node that listens on this machine only.

    Args:
        superlink: HOST:PORT of the SuperLink.
        config: the settings of the node, as ``node_config`` makes them.
        port: for the node's own processes.
        keys: the folder of certificates and keys; None: without TLS.
        name: of the node's key in that folder.

    Raises:
        InputError: a key is missing.
    """
    settings = " ".join(f"{key}={json.dumps(value)}" for key, value in config.items())
    command = ["flower-supernode", "--superlink", superlink, "--host", "127.0.0.1"]
    command += ["--port", str(port), "--node-config", settings]
    if keys is None:
        return [*command, "--insecure"]
    command += ["--root-certificates", str(check_key(keys / "ca.crt"))]
    command += ["--auth-supernode-private-key", str(check_key(keys / name))]
    return [*command, *_tls_options(keys, f"{name}.tls")]


def start_node(programs: Programs, name: str, command: list[str], log: Path) -> None:
    """Start a node, and the process in which its clients train.

    Args:
        programs: both become one of them.
        name: what to call the node.
        command: its command line.
        log: the file to which both write.

    Raises:
        InputError: Flower is not installed.
        RunError: the process does not start.
    """
    find_program(command[0])  # say at once that Flower is not installed
    settings = {}
    if hasattr(socket, "AF_UNIX"):
        # In a folder that is only ours; and short, as sockets need it.
        address = programs.private_folder() / "socket"
        daemon_command = [sys.executable, "-m", "fedbr.flower.daemon", str(address)]
        programs.start(daemon_name(name), daemon_command, log)
        wait_until(
            address.exists, START_TIMEOUT, "the node to import its libraries", programs.check
        )
        settings = {SOCKET: str(address)}
    programs.start(name, command, log, settings)


def daemon_name(node: str) -> str:
    """Return the name of the process in which a node's clients train."""
    return f"{node} (daemon)"


def keep_node(programs: Programs, command: list[str], log: Path) -> None:
    """Run a node until it ends.

    Where the SuperLink refuses it, as after a quick restart, it is started again for a while.

    Args:
        programs: the node becomes one of them.
        command: its command line.
        log: the file to which it writes.

    Raises:
        RunError: the node ended, or the SuperLink refused it for too long.
    """
    refusals = 0
    while refusals <= RETRIES:
        log_start = log.stat().st_size if log.exists() else 0
        start = time.monotonic()
        start_node(programs, "the node", command, log)
        code = _wait_for_node(programs.running["the node"], log, log_start)
        programs.close()
        message = last_message(log, log_start)
        if REFUSED not in message:
            raise RunError(f"the node ended with code {code}: {message}; all of it: {log}")
        was_connected = time.monotonic() - start >= START_TIMEOUT  # then refusals count anew
        refusals = 1 if was_connected else refusals + 1
        time.sleep(RETRY)
    raise RunError(
        f"the SuperLink refused the node for {RETRY * RETRIES:.0f} s: is its public key registered "
        f"there? Log: {log}"
    )


def _wait_for_node(node: subprocess.Popen[bytes], log: Path, log_start: int) -> int:
    """Wait until a node ends, and return its exit code.

    Raises:
        RunError: it does not trust the SuperLink, and would try for ever.
    """
    end = time.monotonic() + START_TIMEOUT
    while node.poll() is None and time.monotonic() < end:
        time.sleep(1)
        if UNTRUSTED in log.read_bytes()[log_start:].lower():
            raise RunError(
                "the certificate of the SuperLink is not signed by the ca.crt of this node; "
                f"Log: {log}"
            )
    return node.wait()


def node_config(
    ids: str, data: str, state: Path, workers: int = 1, anew: bool = False
) -> dict[str, ConfigValue]:
    """Return the settings of a node, as Flower hands them to its clients.

    Args:
        ids: its clients, such as "0-499".
        data: the site's own samples; "": the recipe's.
        state: the folder in which its clients' memory is kept.
        workers: processes that train.
        anew: whether clients whose memory is lost may begin again.

    Raises:
        InputError: there is no such file, or Flower could not read its path.
    """
    read_ids(ids)
    paths = {"state-dir": str(state.absolute())}
    if data:
        path = Path(data).expanduser().absolute()
        if not path.exists():
            raise InputError(f"--data {data}: there is no such file or folder")
        paths["data-path"] = str(path)
    if '"' in "".join(paths.values()):
        raise InputError(
            f"--data {data}, --dir {state.parent}: Flower reads no paths with quotation marks"
        )
    config: dict[str, ConfigValue] = {"ids": ids, **paths}
    if workers > 1:
        config["workers"] = workers
    if anew:
        config["start-anew"] = True
    return config


def start_trial(programs: Programs, folder: Path, clients: int, nodes: int) -> None:
    """Start a SuperLink and nodes that share the recipe's clients, all on this machine."""
    port = free_port()
    address = f"127.0.0.1:{port}"
    start_superlink(programs, folder, "127.0.0.1", port, None)
    for node in range(nodes):
        first, stop = clients * node // nodes, clients * (node + 1) // nodes
        config = node_config(ranges(range(first, stop)), "", folder / f"node-{node}")
        command = node_command(address, config, free_port(), None, "")
        start_node(programs, f"node {node}", command, folder / f"node-{node}.log")


def _tls_options(keys: Path, name: str) -> list[str]:
    options = ["--ssl-ca-certfile", str(check_key(keys / "ca.crt"))]
    options += ["--ssl-certfile", str(check_key(keys / f"{name}.crt"))]
    options += ["--ssl-keyfile", str(check_key(keys / f"{name}.key"))]
    return options


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _reachable(host: str) -> str:
    """Return the address at which this machine reaches a program that listens on ``host``."""
    return "127.0.0.1" if host in ("0.0.0.0", "::") else host
