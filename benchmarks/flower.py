"""What a round on Flower costs beyond training, and where it goes: python -m benchmarks.flower
(wants a quiet machine).

A SuperLink and three nodes on this machine, a model of 37 MB, FedAvg. The times are those of the
server's own log; the processor time is that of all processes of the federation, looked at five
times a second.
"""

from __future__ import annotations

import os
import re
import statistics
import tempfile
import time
from datetime import datetime
from itertools import pairwise
from pathlib import Path

from fedbr.flower import launch, submit
from fedbr.flower.programs import Programs
from fedbr.recipe import load as config

from .results import insert, markdown

ROUNDS, NODES = 8, 3
MODELS = {"37 MB": [3000, 3000], "0.02 MB": [64]}  # by their layers
PEOPLE = {  # how to tell the processes of a federation by their command lines
    "flower-superlink": "SuperLink",
    "flwr-serverapp": "server: checks, averages, saves",
    "fedbr.flower.daemon": "nodes: training, and what is around it",
    "flwr-clientapp": "nodes: Flower's process for every message",
    "flower-supernode": "nodes: SuperNode",
    "": "others of Flower's",
}
TICK = os.sysconf("SC_CLK_TCK")


def main() -> None:
    found = {name: measure(hidden) for name, hidden in MODELS.items()}
    seconds = [["seconds of a round: median (lowest to highest)", *found]]
    for part in next(iter(found.values()))[0]:
        seconds.append([part, *(_spread(parts[part]) for parts, _ in found.values())])
    processor = [["processor seconds of a round", *found]]
    for who in PEOPLE.values():
        processor.append([who, *(f"{spent.get(who, 0.0):.1f}" for _, spent in found.values())])
    about = f"{NODES} nodes and the SuperLink on one machine of {os.cpu_count()} cores, rounds 2 to {ROUNDS}"
    insert(
        "flower",
        f"{about} (`python -m benchmarks.flower`).\n\n{markdown(seconds)}\n\n{markdown(processor)}",
    )


def _spread(found: list[float]) -> str:
    return f"{statistics.median(found):.1f} ({min(found):.1f} to {max(found):.1f})"


def measure(hidden: list[int]) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Train with an MLP; return the seconds of every round by what they went to, and the
    processor's by who.
    """
    recipe = config.parse(
        {
            "name": "overhead",
            "data": {"name": "digits", "clients": NODES},
            "model": {"name": "mlp", "hidden": hidden},
            "train": {
                "rounds": ROUNDS,
                "local_steps": 10,
                "batch_size": 32,
                "clients_at_once": 1,
                "evaluate_every": 0,
            },
            "compare": [{"label": "FedAvg"}],
        }
    )
    with tempfile.TemporaryDirectory() as place, Programs(Path(place) / "home") as programs:
        folder, out = Path(place), Path(place) / "out"
        launch.start_trial(programs, folder, NODES, NODES)
        submit.submit(
            programs, folder, recipe, {"out": str(out), "wait": 120.0, "reply-timeout": 600.0}
        )
        spent = watch(programs, out)
        return parts_of((out / "flower.log").read_text("utf-8")), spent


def watch(programs: Programs, out: Path) -> dict[str, float]:
    """Wait for the end of the run; return the processor seconds of a round by who spent them, but
    for the first.
    """
    begun: dict[str, float] | None = None
    seen: dict[int, tuple[str, float]] = {}
    while programs.running[submit.RUN].poll() is None:
        programs.check(besides=submit.RUN)
        seen |= processor(programs.home)
        lines = sum(file.read_bytes().count(b"\n") for file in out.glob("runs/*/metrics.jsonl"))
        if lines >= 1 and begun is None:
            begun = total(seen)
        if lines == ROUNDS:
            break
        time.sleep(0.2)
    assert begun is not None, "the run ended before its first round"
    programs.running[submit.RUN].wait()
    return {
        name: (seconds - begun.get(name, 0.0)) / (ROUNDS - 1)
        for name, seconds in total(seen).items()
    }


def processor(home: Path) -> dict[int, tuple[str, float]]:
    """Return what every process of the federation is, and its processor seconds so far."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if f"FLWR_HOME={home}".encode() not in (entry / "environ").read_bytes():
                continue
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        name = next(name for sign, name in PEOPLE.items() if sign in line)
        found[int(entry.name)] = (name, (int(fields[11]) + int(fields[12])) / TICK)
    return found


def total(seen: dict[int, tuple[str, float]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, seconds in seen.values():
        found[name] = found.get(name, 0.0) + seconds
    return found


def parts_of(log: str) -> dict[str, list[float]]:
    """Read the log of a run, leaving out the first round, which waits for the nodes."""
    number = r"(\d+\.\d) s"
    found = re.findall(rf"train: \d+ messages sent in {number}, .* in {number}", log)
    sent = [(float(push), float(fetch)) for push, fetch in found]
    line = rf"^(\S+ \S+) INFO round .* MB up, {number}, of which clients {number}"
    rounds = re.findall(line, log, re.MULTILINE)
    ends = [datetime.fromisoformat(when.replace(",", ".")) for when, *_ in rounds]
    whole = [(after - before).total_seconds() for before, after in pairwise(ends)]
    exchange, training = ([float(row[i]) for row in rounds[1:]] for i in (1, 2))
    push, fetch = ([pair[i] for pair in sent[1:]] for i in (0, 1))
    between = [w - e for w, e in zip(whole, exchange, strict=True)]
    nodes = [e - p - f - t for e, p, f, t in zip(exchange, push, fetch, training, strict=True)]
    beyond = [w - t for w, t in zip(whole, training, strict=True)]
    return {
        "**a round**": whole,
        "training, the slowest node": training,
        "**beyond training**": beyond,
        "server: writes the messages and hands them to the SuperLink": push,
        "nodes: fetch them, start Flower's process, hand the answer in": nodes,
        "server: fetches the answers": fetch,
        "server: looks at them, averages, saves the round, asks who is there": between,
    }


if __name__ == "__main__":
    main()
