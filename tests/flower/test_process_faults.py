"""Faults of real processes: hostile replies, a full disk, damaged data, kills, Ctrl-C, a key that
is back at once.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="pip install 'fedbr[flower]'")

from PIL import Image
from place import Place, alive, fedbr, gone, keys_in, recipe, rounds, until, weights
from wires import Wires, three_nodes

from fedbr.flower import launch
from fedbr.flower.programs import free_port, is_listening
from fedbr.flower.roster import Settings
from fedbr.flower.server import serve
from training import train_recipe

pytestmark = pytest.mark.flower


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for a few kilobytes."""
    folder = tmp_path / "small"
    folder.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder], check=False
    ).returncode:
        pytest.skip("only root can mount a small disk")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def test_a_full_disk_and_hostile_replies_cost_their_sites_only(
    tmp_path: Path, small_disk: Path
) -> None:
    """Four nodes, of which one is well: the weights are those of a federation that has no other."""
    chosen = recipe("scaffold")
    place = Place(tmp_path)
    (tmp_path / "state1").symlink_to(small_disk)
    with place.programs:
        place.superlink()
        place.node(0, "0-1")
        place.node(1, "2-3")
        place.node(2, "4", hostile="nan")
        place.node(3, "5", hostile="shape")
        assert place.run(chosen, **{"min-share": 0.3}).wait(600) == 0
    assert rounds(place.out) == [[0, 1], [0, 1]], place.log()
    for reason in (
        r"client 2: not used: its memory cannot be written \(No space left on device",
        r"client 4: not used: .* is not finite",
        r"client 5: not used: .* not float32 \[",
    ):
        assert re.search(reason, place.log()), place.log()
    serve(Wires(three_nodes(tmp_path, (0, 1))), chosen, tmp_path / "alone", Settings(30, 0.2, 0.3))
    assert weights(place.out) == weights(tmp_path / "alone")


def images(folder: Path, clients: int) -> None:
    """Client folders with folders of classes: bright and dark."""
    rng = np.random.default_rng(0)
    for client in range(clients):
        for name, low in (("bright", 150), ("dark", 0)):
            place = folder / f"client{client}" / name
            place.mkdir(parents=True)
            for i in range(8):
                Image.fromarray(rng.integers(low, low + 100, (8, 8, 3), dtype=np.uint8)).save(
                    place / f"{i}.png"
                )


def samples(file: Path, seed: int) -> None:
    """The same kind of samples as an .npz, with a third class."""
    rng = np.random.default_rng(seed)
    y = np.array(["bright", "dark", "grey"])[np.arange(60) % 3]
    low = np.where(y == "bright", 150, np.where(y == "dark", 0, 75))
    x = low[:, None, None, None] + rng.integers(0, 80, (60, 3, 8, 8))
    np.savez(file, x=x.astype(np.uint8), y=y)


OWN = """
name = "own"
[data]
name = "folder"
clients = 7
size = 8
[model]
name = "cnn"
width = 0.25
[train]
rounds = {rounds}
local_steps = 3
batch_size = 8
[[compare]]
label = "SCAFFOLD"
methods = ["scaffold"]
"""


def end(process: subprocess.Popen[str], number: int = signal.SIGTERM) -> str:
    process.send_signal(number)
    out, errors = process.communicate(timeout=120)
    return out + errors


def test_sites_with_folders_and_files_and_one_whose_file_is_damaged(tmp_path: Path) -> None:
    """By the commands of the documentation: image folders of five clients on two workers, and two
    .npz files.
    """
    images(tmp_path / "images", 5)
    samples(tmp_path / "five.npz", 5)
    samples(tmp_path / "six.npz", 6)
    (tmp_path / "own.toml").write_text(OWN.format(rounds=4))
    port, out = free_port(), tmp_path / "out"
    where = f"127.0.0.1:{port}"
    sites = (
        ("--ids", "0-4", "--data", tmp_path / "images", "--workers", 2),
        ("--id", 5, "--data", tmp_path / "five.npz"),
        ("--id", 6, "--data", tmp_path / "six.npz"),
    )
    server = fedbr("flower", "server", "--port", port, "--dir", tmp_path / "server")
    until(lambda: is_listening("127.0.0.1", port))
    nodes = [
        fedbr("flower", "node", "--superlink", where, "--dir", tmp_path / f"n{i}", *words)
        for i, words in enumerate(sites)
    ]
    try:
        run = fedbr("flower", "run", tmp_path / "own.toml", "--superlink", where, "--out", out)
        until(lambda: run.poll() is not None or rounds(out))
        file = tmp_path / "six.npz"
        file.write_bytes(file.read_bytes()[:1000])
        output, errors = run.communicate(timeout=600)
        assert run.returncode == 0, errors
        assert "SCAFFOLD" in output
        log = (out / "flower.log").read_text()
        assert rounds(out)[0] == list(range(7)), log
        assert rounds(out)[-1] == list(range(6)), log
        assert "client 6: not used: data.path" in log
        assert "not an .npz of plain arrays" in log
        (lines,) = (
            [json.loads(line) for line in f.open()] for f in out.glob("runs/*/metrics.jsonl")
        )
        assert all(accuracy is not None for accuracy in lines[-1]["accuracy_clients"][:6])
        assert "stopped; what its clients remember" in end(nodes.pop(0))
        for process in (*nodes, server):  # no time to end anything
            process.kill()
            process.communicate()
        gone(tmp_path)
    finally:
        for process in (*nodes, server):
            process.kill()


def test_ctrl_c_leaves_nothing_but_what_is_needed_to_go_on(tmp_path: Path) -> None:
    """The weights after an interrupt and a kill are those of an undisturbed run; then even the
    folder is gone.
    """
    chosen = recipe("scaffold", rounds=4, local_steps=30)
    train_recipe(chosen, tmp_path / "here")
    (tmp_path / "small.toml").write_text(chosen.to_toml())
    out = tmp_path / "there"
    line = ("flower", "run", tmp_path / "small.toml", "--out", out, "--nodes", 2, "--min-share", 1)
    for number, code, done in ((signal.SIGINT, 130, 1), (signal.SIGKILL, -9, 2)):
        run = fedbr(*line)
        until(lambda run=run, done=done: run.poll() is not None or len(rounds(out)) >= done)
        words = end(run, number)
        assert run.returncode == code, words
        gone(tmp_path)
        if number == signal.SIGINT:
            assert "every finished round is safe. Go on with: fedbr flower run" in words
            assert not list((out / ".flower").glob("state.db*")), (
                "Flower's database is of no use any more"
            )
            assert list((out / ".flower").glob("node-*/*/client-*.safetensors")), (
                "what clients remember is"
            )
    again = fedbr(*line)
    _, errors = again.communicate(timeout=600)
    assert again.returncode == 0, errors
    assert weights(out) == weights(tmp_path / "here"), (out / "flower.log").read_text()
    assert not (out / ".flower").exists()


def test_a_node_that_is_refused_tries_again_until_it_is_let_in(tmp_path: Path) -> None:
    """As long as Flower believes that a key is here, about a minute after a crash, it lets nobody
    in who has it.
    """
    keys, port = keys_in(tmp_path / "keys", "0"), free_port()
    where = f"127.0.0.1:{port}"
    server = fedbr("flower", "server", "--port", port, "--dir", tmp_path / "server", "--keys", keys)
    until(lambda: is_listening("127.0.0.1", port))
    line = ("flower", "node", "--superlink", where, "--keys", keys, "--ids", "0-5", "--dir")
    crashed, back = tmp_path / "crashed", tmp_path / "back"
    nodes = [fedbr(*line, crashed)]
    try:
        until(lambda: "SuperNode ID" in _text(crashed / "node.log"))
        nodes.append(fedbr(*line, back))
        until(lambda: launch.REFUSED in _text(back / "node.log"))
        (flower,) = (pid for pid, words in alive(crashed).items() if "flower-supernode" in words)
        os.kill(flower, signal.SIGKILL)  # so that it cannot say good-bye
        assert nodes[0].wait(60) == 1
        (tmp_path / "small.toml").write_text(recipe("fedavg").to_toml())
        run = fedbr(
            "flower",
            "run",
            tmp_path / "small.toml",
            "--superlink",
            where,
            "--keys",
            keys,
            "--out",
            tmp_path / "o",
        )
        _, errors = run.communicate(timeout=900)
        assert run.returncode == 0, errors
        assert rounds(tmp_path / "o") == [list(range(6))] * 2
        assert nodes[1].poll() is None
    finally:
        for process in (*nodes, server):
            end(process)
    gone(tmp_path)


def _text(file: Path) -> str:
    return file.read_text() if file.exists() else ""


def test_a_superlink_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    words: dict[str, Any] = {"capture_output": True, "text": True, "check": False, "cwd": tmp_path}
    line = [
        sys.executable,
        "-m",
        "fedbr",
        "flower",
        "run",
        "digits",
        "--superlink",
        f"127.0.0.1:{free_port()}",
    ]
    done = subprocess.run([*line, "--out", "o"], **words)
    assert done.returncode == 1
    assert "was not submitted" in done.stderr
    assert done.stderr.count("\n") == 1
