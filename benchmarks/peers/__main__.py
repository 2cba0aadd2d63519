"""Time other frameworks on the workloads of fedbr bench: python -m benchmarks.peers [--workload mlp
...] [--json].
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

from fedbr import bench
from fedbr.bench import Workload
from fedbr.data import Federation
from fedbr.run.environment import environment
from fedbr.util.processes import one_thread

from .common import RoundDone


@dataclass(frozen=True)
class Peer:
    """A framework: its driver, what that needs, the packages whose versions matter, and how to get
    them.
    """

    driver: str
    needs: str  # the module whose import tells whether the framework is there and complete
    packages: Sequence[str]
    install: str


PEERS = {
    "fedbr": Peer("fedbr_itself", "fedbr", ("fedbr",), "pip install -e ."),
    "pfl": Peer("pfl_research", "pfl.model.pytorch", ("pfl",), "pip install pfl==0.6.0"),
    "fedlab": Peer("fedlab_peer", "fedlab.contrib.algorithm.fedavg", ("fedlab",), "pip install fedlab==1.3.0"),
    "flower": Peer(
        "flower_peer", "flwr.serverapp.strategy", ("flwr", "ray"), "pip install 'flwr[simulation]==1.41.0'"
    ),
    "fedjax": Peer(
        "fedjax_peer", "fedjax", ("fedjax", "jax"),
        "pip install fedjax==0.0.17 jax==0.4.35 jaxlib==0.4.35 'dm-haiku<0.0.14' 'optax<0.2.5'",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Spent:
    """CPU seconds of one run."""

    start: float  # what the first round cost above a later one: setting up, compiling, starting processes
    round: float  # a round after the first


def cpu_seconds() -> float:
    """Return user and system time of this process (all threads) and of everything it started.

    Counted: this process; children that have ended and were waited for (RUSAGE_CHILDREN); on Linux
    also all living descendants with what they have waited for, read from /proc in ticks of 10 ms.
    The last are Ray's daemons and workers, which getrusage cannot see while they live. Not counted:
    descendants that ended without being waited for.
    """
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime + _living()


def _living() -> float:
    children: dict[int, list[tuple[int, int]]] = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has just ended
            # After the name, which may contain anything: state, parent ... utime, stime, cutime,
            # cstime.
            fields = file.read_text("utf-8", "replace").rpartition(")")[2].split()
            pair = int(file.parent.name), sum(map(int, fields[11:15]))
            children.setdefault(int(fields[1]), []).append(pair)
    ticks, found = 0, [os.getpid()]
    while found:
        for child, own in children.get(found.pop(), ()):
            ticks += own
            found.append(child)
    return ticks / os.sysconf("SC_CLK_TCK")


def timed(work: Workload, run: Callable[[RoundDone], object]) -> Spent:
    """Read the clock after the first round, which is not like the others, and after the last."""
    done, marks = 0, [cpu_seconds()]

    def round_done() -> None:
        nonlocal done
        done += 1
        if done in (1, work.rounds):
            marks.append(cpu_seconds())

    run(round_done)
    if done != work.rounds:
        raise RuntimeError(f"{done} rounds were trained, not {work.rounds}")
    begun, first, last = marks
    each = (last - first) / (work.rounds - 1)
    return Spent(first - begun - each, each)


def bare(work: Workload, clients: Federation) -> Spent:
    """Time the bare loop."""
    return timed(work, lambda done: bench.bare_rounds(work, clients, done))


def compare(name: str, work: Workload, repeats: int) -> dict[str, Any]:
    """Run the bare loop and a peer in turn."""
    driver = import_module(f".{PEERS[name].driver}", __package__)
    clients = bench.samples(work)
    loops, peers = [], []
    for _ in range(repeats):
        loops.append(bare(work, clients))
        peers.append(timed(work, lambda done: driver.rounds(work, clients, done)))
    ratios = [peer.round / loop.round for peer, loop in zip(peers, loops, strict=True)]
    return {
        "versions": versions(name),
        "bare_seconds": statistics.median(loop.round for loop in loops),
        "seconds": statistics.median(peer.round for peer in peers),
        "start_seconds": statistics.median(peer.start for peer in peers),
        "of_the_loop": statistics.median(ratios),
        "lowest": min(ratios),
        "highest": max(ratios),
    }


def absent(name: str) -> str:
    """Say why a peer cannot be used, or nothing."""
    import_module(
        f".{PEERS[name].driver}", __package__
    )  # first: it sets what the framework reads when imported
    try:
        import_module(PEERS[name].needs)
    except (
        ImportError,
        RuntimeError,
    ) as error:  # the latter: a torchvision that does not fit torch
        return str(error).splitlines()[0]
    return ""


def versions(name: str) -> dict[str, str | None]:
    """Return the versions of what is timed; None: absent, and the driver does without."""
    found: dict[str, str | None] = {}
    for package in PEERS[name].packages:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = None
    return found


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m benchmarks.peers", description=__doc__)
    parser.add_argument(
        "--workload", nargs="+", choices=[*bench.WORKLOADS], default=[*bench.WORKLOADS]
    )
    parser.add_argument("--peer", nargs="+", choices=[*PEERS], default=[*PEERS], help="only these")
    parser.add_argument(
        "--repeats", type=int, default=3, help="runs of each, in turn with the bare loop"
    )
    parser.add_argument(
        "--rounds", type=int, help="in a run, at least 2; default: those of the workload"
    )
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    chosen = parser.parse_args(argv)
    if chosen.repeats < 1 or (chosen.rounds is not None and chosen.rounds < 2):
        parser.error("--repeats is at least 1, --rounds at least 2")
    return chosen


def main(argv: Sequence[str] | None = None) -> int:
    chosen = arguments(argv)
    found: dict[str, Any] = {
        "environment": environment(),
        "repeats": chosen.repeats,
        "workloads": {},
        "missing": [],
    }
    for name in chosen.peer:
        with contextlib.redirect_stdout(sys.stderr):
            reason = absent(name)
        if reason:
            found["missing"].append(name)
            print(
                f"{name}: skipped ({reason}); {PEERS[name].install}, see benchmarks/peers/README.md",
                file=sys.stderr,
            )
    present = [name for name in chosen.peer if name not in found["missing"]]
    for title in chosen.workload if present else []:
        work = bench.WORKLOADS[title]
        work = replace(work, rounds=chosen.rounds or work.rounds)
        figures: dict[str, Any] = {}
        for name in present:
            # Frameworks talk on standard output, which is for the table.
            with contextlib.redirect_stdout(sys.stderr), one_thread():
                figures[name] = compare(name, work, chosen.repeats)
        found["workloads"][title] = {"about": str(work), "rounds": work.rounds, "peers": figures}
        if not chosen.json:
            show(found["workloads"][title], chosen.repeats)
    if chosen.json:
        print(json.dumps(found, indent=1))
    return 0


def show(figures: dict[str, Any], repeats: int) -> None:
    print(f"\n{figures['about']}; {figures['rounds']} rounds")
    print(
        f"CPU seconds of a round after the first and of the start-up before it, median of {repeats}"
    )
    print(f"{'':<34} {'seconds':>9} {'bare loop':>10} {'of the loop':>12} {'start-up':>9}")
    for name, row in figures["peers"].items():
        label = f"{name} ({', '.join(f'{k} {v}' if v else f'no {k}' for k, v in row['versions'].items())})"
        spread = f"   ({row['lowest']:.2f} to {row['highest']:.2f} of the loop)"
        print(
            f"{label:<34} {row['seconds']:>9.3f} {row['bare_seconds']:>10.3f} {row['of_the_loop']:>12.2f} "
            f"{row['start_seconds']:>9.2f}{spread}"
        )


if __name__ == "__main__":
    sys.exit(main())
