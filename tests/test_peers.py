"""The peers' drivers need no peer to be imported, and the command says what is missing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import fedbr

ROOT = Path(__file__).parent.parent
NAMES = ("pfl", "fedlab", "flwr", "ray", "fedjax", "jax")
# A name that is None in sys.modules cannot be imported: as if nothing were installed, whatever is.
HIDE = f"import sys; sys.modules.update(dict.fromkeys({NAMES})); "


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", HIDE + code],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": "src"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_drivers_import_without_their_framework() -> None:
    done = python(
        "from importlib import import_module as load; "
        "from benchmarks.peers.__main__ import PEERS; "
        "print(*[callable(load('benchmarks.peers.' + p.driver).rounds) for p in PEERS.values()])"
    )
    assert done.stdout.split() == ["True"] * 5, done.stderr


def test_the_command_says_what_is_missing() -> None:
    done = python(
        "from benchmarks.peers.__main__ import PEERS, main; "
        "sys.exit(main(['--json', '--peer', *(name for name in PEERS if name != 'fedbr')]))"
    )
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    assert [line.split(":")[0] for line in lines] == ["pfl", "fedlab", "flower", "fedjax"]
    assert all("skipped" in line and "pip install" in line for line in lines)
    figures = json.loads(done.stdout)
    assert figures["workloads"] == {}
    assert figures["missing"] == ["pfl", "fedlab", "flower", "fedjax"]


def test_fedbr_itself_stands_in_the_table() -> None:
    done = python(
        "from dataclasses import replace; from fedbr import bench; "
        "from benchmarks.peers.__main__ import main; "
        "small = {'clients': 2, 'local_steps': 2, 'batch_size': 4, 'samples': 10}; "
        "bench.WORKLOADS['mlp'] = replace(bench.MLP, **small); "
        "which = ['--peer', 'fedbr', '--workload', 'mlp', '--rounds', '3', '--repeats', '1']; "
        "sys.exit(main(['--json', *which]))"
    )
    row = json.loads(done.stdout)["workloads"]["mlp"]["peers"]["fedbr"]
    assert row["versions"] == {"fedbr": fedbr.__version__}
    assert row["of_the_loop"] == row["seconds"] / row["bare_seconds"] > 0


def test_clocks_and_rounds() -> None:
    """The bare loop's rounds are told apart, and time goes on."""
    done = python(
        "from dataclasses import replace; from fedbr import bench; "
        "from benchmarks.peers.__main__ import time_bare_loop; "
        "small = {'clients': 2, 'local_steps': 2, 'batch_size': 4, 'samples': 10, 'rounds': 3}; "
        "work = replace(bench.MLP, **small); "
        "print(time_bare_loop(work, bench.samples(work)).round > 0)"
    )
    assert done.stdout.strip() == "True", done.stderr
