"""A SuperLink and nodes as real processes: same bits, faults, TLS (make test-flower)."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="pip install 'fedbr[flower]'")

from place import Place, gone, keys_in, recipe, rounds, until, weights

from fedbr.flower import launch
from fedbr.flower.programs import Programs, last_message
from fedbr.recipe import load as config
from fedbr.recipe.overrides import read_variant
from training import train_recipe

pytestmark = pytest.mark.flower

VARIANTS = ["fedavg", "fedbr", "scaffold", "moon", "mixup+fedbr+fedcm"]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    here = Place(tmp_path)
    with here.programs:
        yield here


def test_the_same_bits_as_the_simulator(tmp_path: Path) -> None:
    """Through the command line, with report and a second call that has nothing left to do."""
    chosen = recipe(*VARIANTS)
    train_recipe(chosen, tmp_path / "here")
    file = tmp_path / "small.toml"
    file.write_text(chosen.to_toml())
    line = [
        sys.executable,
        "-m",
        "fedbr",
        "flower",
        "run",
        str(file),
        "--out",
        str(tmp_path / "there"),
    ]
    done = subprocess.run(line, capture_output=True, text=True, timeout=1500, check=False)
    assert done.returncode == 0, done.stderr
    assert weights(tmp_path / "there") == weights(tmp_path / "here")
    assert len(weights(tmp_path / "there")) == len(VARIANTS)
    report = [sys.executable, "-m", "fedbr", "report", str(tmp_path / "there")]
    assert subprocess.run(report, capture_output=True, check=False).returncode == 0
    gone(tmp_path)
    assert not (tmp_path / "there" / ".flower").exists(), "nor may Flower's database"


def test_a_killed_node_and_a_killed_superlink_lose_nothing(place: Place) -> None:
    """A node dies in the second round and comes back; then the SuperLink dies, and the experiment
    goes on.
    """
    chosen = recipe("scaffold", rounds=6, local_steps=400)
    place.superlink()
    for number, ids in enumerate(("0-1", "2-3", "4-5")):
        place.node(number, ids)
    run = place.run(chosen)
    until(lambda: len(rounds(place.out)) == 1)
    time.sleep(4)
    place.kill("node 1")
    until(lambda: len(rounds(place.out)) >= 2)
    assert rounds(place.out)[1] == [0, 1, 4, 5], place.log()
    place.node(1, "2-3")
    until(lambda: any(len(clients) == 6 for clients in rounds(place.out)[2:]))
    place.kill("the SuperLink")
    done = len(rounds(place.out))
    assert done < 6, "the SuperLink must die within the experiment"
    run.kill()
    run.wait()
    place.superlink()
    assert place.run(chosen).wait(600) == 0
    assert weights(place.out), place.log()
    assert len(rounds(place.out)) == 6
    assert rounds(place.out)[-1] == list(range(6))
    assert "its memory" not in place.log()


def test_a_superlink_that_dies_changes_no_bit(place: Place, tmp_path: Path) -> None:
    chosen = recipe("scaffold", rounds=4, local_steps=100)
    train_recipe(chosen, tmp_path / "here")
    place.superlink()
    for number, ids in enumerate(("0-1", "2-3", "4-5")):
        place.node(number, ids)
    run = place.run(chosen)
    until(lambda: len(rounds(place.out)) >= 2)
    place.kill("the SuperLink")
    run.kill()
    run.wait()
    place.superlink()
    assert place.run(chosen, **{"min-share": 1.0}).wait(600) == 0
    assert weights(place.out) == weights(tmp_path / "here"), place.log()


def test_forty_megabytes_of_memory_survive_ten_rounds(place: Place, tmp_path: Path) -> None:
    """Every round's client state is what the round before left, or the bits would differ."""
    chosen = config.parse(
        {
            "data": {"name": "digits", "clients": 3},
            "model": {"name": "mlp", "hidden": [3150, 3150]},
            "train": {
                "rounds": 10,
                "local_steps": 1,
                "batch_size": 4,
                "clients_at_once": 1,
                "evaluate_every": 0,
            },
            "compare": [read_variant("scaffold")],
        }
    )
    train_recipe(chosen, tmp_path / "here")
    place.superlink()
    for number in range(3):
        place.node(number, str(number))
    assert place.run(chosen, **{"min-share": 1.0}).wait(1500) == 0
    assert weights(place.out) == weights(tmp_path / "here"), place.log()
    assert rounds(place.out) == [[0, 1, 2]] * 10


def plaintext(port: int) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=5) as wire:
        wire.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        try:
            return wire.recv(100)
        except ConnectionError:
            return b""


def listening(programs: Programs) -> set[int]:
    """Ports on which our processes, or their children, listen."""
    sessions = {process.pid for process in programs.running.values()}
    ports = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        rows = [line.split() for line in Path(table).read_text().splitlines()[1:]]
        inodes = {row[9]: int(row[1].rsplit(":", 1)[1], 16) for row in rows if row[3] == "0A"}
        for pid in Path("/proc").glob("[0-9]*"):
            try:
                if not {int(pid.name), os.getsid(int(pid.name))} & sessions:
                    continue
                links = [str(link.readlink()) for link in (pid / "fd").iterdir()]
            except OSError:
                continue
            ports |= {
                inodes[n]
                for link in links
                for n in re.findall(r"socket:\[(\d+)\]", link)
                if n in inodes
            }
    return ports


def test_tls_and_node_keys(tmp_path: Path) -> None:
    keys, other = keys_in(tmp_path / "keys"), keys_in(tmp_path / "other", "0-2")
    place = Place(tmp_path, keys)
    with place.programs:
        place.superlink()
        for number in (0, 1):
            place.node(number, f"{3 * number}-{3 * number + 2}")
        run = place.run(recipe("fedavg"))
        until(lambda: place.programs.check() is None and len(rounds(place.out)) == 2)
        assert run.wait(600) == 0
        ports = listening(place.programs)
        assert place.port in ports
        assert len(ports) >= 3, "the SuperLink and two nodes"
        assert not any(plaintext(port).startswith(b"HTTP") for port in ports)
        mixed = keys_in(
            tmp_path / "mixed", "0-2"
        )  # the right authority, a key that nobody registered
        for name in ("ca.crt",):
            (mixed / name).write_bytes((keys / name).read_bytes())
        place.node(2, "2", mixed)
        assert place.programs.running["node 2"].wait(600) != 0
        assert launch.REFUSED in last_message(tmp_path / "node-2.log")
        place.programs.stop("node 2")
        place.node(2, "2", other)
        until(lambda: launch.UNTRUSTED in (tmp_path / "node-2.log").read_bytes().lower())
