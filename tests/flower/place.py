"""A federation of real processes on loopback, whose parts can be killed, or be hostile."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedbr.flower import launch, submit
from fedbr.flower.daemon import SOCKET
from fedbr.flower.programs import Programs, free_port
from fedbr.recipe import load as config
from fedbr.recipe.overrides import read_variant
from fedbr.recipe.schema import Recipe

HOSTILE = Path(__file__).parent / "hostile.py"


def recipe(*variants: str, **train: Any) -> Recipe:
    settings = {"rounds": 2, "local_steps": 3, "batch_size": 8, "clients_at_once": 1} | train
    return config.parse(
        {
            "name": "small",
            "data": {"name": "digits", "clients": 6},
            "model": {"name": "cnn", "width": 0.25},
            "train": settings,
            "compare": [read_variant(variant) for variant in variants],
        }
    )


def weights(folder: Path) -> dict[str, bytes]:
    return {file.parent.name: file.read_bytes() for file in folder.glob("runs/*/model.safetensors")}


def rounds(folder: Path) -> list[list[int]]:
    return [
        json.loads(line)["clients"]
        for f in folder.glob("runs/*/metrics.jsonl")
        for line in f.open()
    ]


def until(ready: Callable[[], Any], seconds: float = 600) -> None:
    end = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.1)


def gone(folder: Path, seconds: float = 120) -> None:
    """Wait until nothing is left of what was started for a folder."""
    end = time.monotonic() + seconds
    while left := alive(folder):
        assert time.monotonic() < end, f"still there: {left}"
        time.sleep(0.1)


class Place:
    """A federation whose processes can be killed one by one."""

    def __init__(self, folder: Path, keys: Path | None = None) -> None:
        self.folder, self.keys, self.port = folder, keys, free_port()
        self.out = folder / "out"
        self.programs = Programs(folder / "home")

    def superlink(self) -> None:
        launch.start_superlink(self.programs, self.folder, "127.0.0.1", self.port, self.keys)

    def node(self, number: int, ids: str, keys: Path | None = None, hostile: str = "") -> None:
        config = launch.node_config(ids, "", self.folder / f"state{number}")
        where = f"127.0.0.1:{self.port}"
        line = launch.node_command(where, config, free_port(), keys or self.keys, f"node-{number}")
        name, log = f"node {number}", self.folder / f"node-{number}.log"
        if not hostile:
            launch.start_node(self.programs, name, line, log)
            return
        address = self.programs.private_folder() / "socket"
        line_of_daemon = [sys.executable, str(HOSTILE), str(address), hostile]
        self.programs.start(launch.daemon_name(name), line_of_daemon, log)
        until(address.exists)
        self.programs.start(name, line, log, {SOCKET: str(address)})

    def kill(self, name: str) -> None:
        """Without any warning, with all that it started."""
        for each in (launch.daemon_name(name), name):
            if (process := self.programs.running.pop(each, None)) is not None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if name == "the SuperLink":  # whose server holds the result folder until it notices
            until(lambda: not any("flwr-serverapp" in line for line in alive(self.folder).values()))

    def run(self, chosen: Recipe, **settings: Any) -> subprocess.Popen[bytes]:
        config = {"out": str(self.out), "wait": 120.0, "reply-timeout": 240.0} | settings
        submit.submit(self.programs, self.folder, chosen, config)
        return self.programs.running.pop(submit.RUN)

    def log(self) -> str:
        file = self.out / "flower.log"
        return file.read_text() if file.exists() else ""


def alive(folder: Path) -> dict[int, str]:
    """Command lines of processes that name a folder, or have Flower's home in it."""
    lines = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            names_folder = (
                str(folder) in line
                or f"FLWR_HOME={folder}".encode() in (entry / "environ").read_bytes()
            )
        except OSError:
            continue
        if names_folder and int(entry.name) != os.getpid():
            lines[int(entry.name)] = line
    return lines


def fedbr(*words: object) -> subprocess.Popen[str]:
    """Start a command line; what it prints goes to a pipe."""
    line = [sys.executable, "-m", "fedbr", *map(str, words)]
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def keys_in(folder: Path, nodes: str = "0-1") -> Path:
    line = [sys.executable, "-m", "fedbr", "flower", "keys", str(folder), "--ids", nodes]
    subprocess.run(line, check=True, capture_output=True)
    return folder
