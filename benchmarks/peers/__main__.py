"""Time other frameworks on the workloads of fedbr bench.

python -m benchmarks.peers [--workload mlp ...] [--json]
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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import import_module, metadata
from pathlib import Path

from fedbr import bench
from fedbr.bench import Workload
from fedbr.data import Federation
from fedbr.run.environment import describe_environment
from fedbr.util.processes import one_thread

from .common import RoundDone


@dataclass(frozen=True)
class Peer:
    """A framework and its driver."""

    driver: str
    needs: str  # the module whose import tells whether the framework is there and complete
    packages: Sequence[str]  # whose versions matter
    install: str


PEERS = {
    "fedbr": Peer("fedbr_itself", "fedbr", ("fedbr",), "pip install -e ."),
    "pfl": Peer("pfl_research", "pfl.model.pytorch", ("pfl",), "pip install pfl==0.6.0"),
    "fedlab": Peer(
        "fedlab_peer",
        "fedlab.contrib.algorithm.fedavg",
        ("fedlab",),
        "pip install fedlab==1.3.0",
    ),
    "flower": Peer(
        "flower_peer",
        "flwr.serverapp.strategy",
        ("flwr", "ray"),
        "pip install 'flwr[simulation]==1.41.0'",
    ),
    "fedjax": Peer(
        "fedjax_peer",
        "fedjax",
        ("fedjax", "jax"),
        "pip install fedjax==0.0.17 jax==0.4.35 jaxlib==0.4.35 'dm-haiku<0.0.14' 'optax<0.2.5'",
    ),
}


@dataclass(frozen=True)
class Spent:
    """CPU seconds of one run.

    start: what the first round cost above a later one, for setting up, compiling, starting
    processes. round: a round after the first.
    """

    start: float
    round: float


@dataclass(frozen=True)
class Row:
    """A peer beside the bare loop: medians over the repetitions, in CPU seconds."""

    versions: Mapping[str, str | None]  # None: absent, and the driver does without
    bare_seconds: float  # a round of the bare loop
    seconds: float  # a round of the peer
    start_seconds: float
    of_the_loop: float  # the ratio of both, repetition by repetition
    lowest: float
    highest: float


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
    """Return the CPU seconds of all living descendants, with what they have waited for."""
    children: dict[int, list[tuple[int, int]]] = {}  # parent -> children and their ticks
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has just ended
            # After the name, which may contain anything: state, parent ... utime, stime, cutime,
            # cstime.
            fields = file.read_text("utf-8", "replace").rpartition(")")[2].split()
            child = int(file.parent.name), sum(map(int, fields[11:15]))
            children.setdefault(int(fields[1]), []).append(child)
    total, processes = 0, [os.getpid()]
    while processes:
        for process, ticks in children.get(processes.pop(), ()):
            total += ticks
            processes.append(process)
    return total / os.sysconf("SC_CLK_TCK")


def time_rounds(work: Workload, run: Callable[[RoundDone], object]) -> Spent:
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
    start, first, last = marks
    each = (last - first) / (work.rounds - 1)
    return Spent(first - start - each, each)


def time_bare_loop(work: Workload, clients: Federation) -> Spent:
    """Time the bare loop."""
    return time_rounds(work, lambda done: bench.bare_rounds(work, clients, done))


def compare(name: str, work: Workload, repeats: int) -> Row:
    """Run the bare loop and a peer in turn."""
    driver = import_module(f".{PEERS[name].driver}", __package__)
    clients = bench.samples(work)
    loops, peers = [], []
    for _ in range(repeats):
        loops.append(time_bare_loop(work, clients))
        peers.append(time_rounds(work, lambda done: driver.rounds(work, clients, done)))
    ratios = [peer.round / loop.round for peer, loop in zip(peers, loops, strict=True)]
    return Row(
        versions=find_versions(name),
        bare_seconds=statistics.median(loop.round for loop in loops),
        seconds=statistics.median(peer.round for peer in peers),
        start_seconds=statistics.median(peer.start for peer in peers),
        of_the_loop=statistics.median(ratios),
        lowest=min(ratios),
        highest=max(ratios),
    )


def explain_absence(name: str) -> str:
    """Say why a peer cannot be used; nothing if it can."""
    # First the driver: it sets what the framework reads when it is imported.
    import_module(f".{PEERS[name].driver}", __package__)
    try:
        import_module(PEERS[name].needs)
    except (ImportError, RuntimeError) as error:  # RuntimeError: torchvision does not fit torch
        return str(error).splitlines()[0]
    return ""


def find_versions(name: str) -> dict[str, str | None]:
    """Return the versions of what is timed; None for a package that is not installed."""
    versions: dict[str, str | None] = {}
    for package in PEERS[name].packages:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = None
    return versions


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
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
    parser.add_argument("--json", action="store_true", help="print the times as JSON")
    options = parser.parse_args(argv)
    if options.repeats < 1 or (options.rounds is not None and options.rounds < 2):
        parser.error("--repeats is at least 1, --rounds at least 2")
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Time all peers that are installed; return the exit code."""
    options = parse_arguments(argv)
    present, missing = [], []
    for name in options.peer:
        with contextlib.redirect_stdout(sys.stderr):
            reason = explain_absence(name)
        if not reason:
            present.append(name)
            continue
        missing.append(name)
        how = f"{PEERS[name].install}, see benchmarks/peers/README.md"
        print(f"{name}: skipped ({reason}); {how}", file=sys.stderr)
    workloads = {}
    for title in options.workload if present else []:
        work = bench.WORKLOADS[title]
        work = replace(work, rounds=options.rounds or work.rounds)
        rows = time_peers(present, work, options.repeats)
        peers = {name: asdict(row) for name, row in rows.items()}
        workloads[title] = {"about": str(work), "rounds": work.rounds, "peers": peers}
        if not options.json:
            show(work, rows, options.repeats)
    if options.json:
        report = {
            "environment": describe_environment(),
            "repeats": options.repeats,
            "workloads": workloads,
            "missing": missing,
        }
        print(json.dumps(report, indent=1))
    return 0


def time_peers(names: Sequence[str], work: Workload, repeats: int) -> dict[str, Row]:
    """Time several peers, one after the other."""
    rows = {}
    for name in names:
        # Frameworks talk on standard output, which is for the table.
        with contextlib.redirect_stdout(sys.stderr), one_thread():
            rows[name] = compare(name, work, repeats)
    return rows


def show(work: Workload, rows: Mapping[str, Row], repeats: int) -> None:
    """Print a table."""
    print(f"\n{work}; {work.rounds} rounds")
    about = "CPU seconds of a round after the first and of the start-up before it"
    print(f"{about}, median of {repeats}")
    print(f"{'':<34} {'seconds':>9} {'bare loop':>10} {'of the loop':>12} {'start-up':>9}")
    for name, row in rows.items():
        packages = []
        for package, version in row.versions.items():
            packages.append(f"{package} {version}" if version else f"no {package}")
        label = f"{name} ({', '.join(packages)})"
        spread = f"({row.lowest:.2f} to {row.highest:.2f} of the loop)"
        print(
            f"{label:<34} {row.seconds:>9.3f} {row.bare_seconds:>10.3f} "
            f"{row.of_the_loop:>12.2f} {row.start_seconds:>9.2f}   {spread}"
        )


if __name__ == "__main__":
    sys.exit(main())
