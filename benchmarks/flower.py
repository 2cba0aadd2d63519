"""What a round on Flower costs beyond training, and where it goes: python -m benchmarks.flower.

It needs a quiet machine: a SuperLink and three nodes on it, a model of 37 MB, FedAvg. The times are
those of the server's own log; the processor time is that of all processes of the federation, looked
at five times a second.
"""

from __future__ import annotations

import os
import re
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path

from fedbr.flower import launch, submit
from fedbr.flower.programs import Programs
from fedbr.flower.types import Config
from fedbr.recipe.load import parse
from fedbr.recipe.schema import Recipe

from .results import insert, markdown

ROUNDS, NODES = 8, 3
MODELS = {"37 MB": [3000, 3000], "0.02 MB": [64]}  # by their layers
ROLES = {  # how to tell the processes of a federation by their command lines
    "flower-superlink": "SuperLink",
    "flwr-serverapp": "server: checks, averages, saves",
    "fedbr.flower.daemon": "nodes: training, and what is around it",
    "flwr-clientapp": "nodes: Flower's process for every message",
    "flower-supernode": "nodes: SuperNode",
    "": "others of Flower's",
}
TICKS = os.sysconf("SC_CLK_TCK")  # in a second

Processor = Mapping[str, float]  # role -> processor seconds
Processes = dict[int, tuple[str, float]]  # number -> role, processor seconds


@dataclass(frozen=True)
class Measured:
    """What the rounds behind the first cost."""

    seconds: Mapping[str, Sequence[float]]  # what they went to -> of each round
    processor: Processor  # of a round, on average


def main() -> None:
    """Train with both models, and write the section."""
    measured = {name: measure(hidden) for name, hidden in MODELS.items()}
    first, *_ = measured.values()
    seconds = [["seconds of a round: median (lowest to highest)", *measured]]
    for part in first.seconds:
        row = [part]
        for model in measured.values():
            row.append(_show_spread(model.seconds[part]))
        seconds.append(row)
    processor = [["processor seconds of a round", *measured]]
    for role in ROLES.values():
        row = [role]
        for model in measured.values():
            row.append(f"{model.processor.get(role, 0.0):.1f}")
        processor.append(row)
    about = (
        f"{NODES} nodes and the SuperLink on one machine of {os.cpu_count()} cores, rounds 2 to "
        f"{ROUNDS} (`python -m benchmarks.flower`)."
    )
    insert("flower", "\n\n".join([about, markdown(seconds), markdown(processor)]))


def _show_spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.1f} ({min(values):.1f} to {max(values):.1f})"


def make_recipe(hidden: Sequence[int]) -> Recipe:
    """Make a recipe of short rounds of an MLP.

    Args:
        hidden: the sizes of its layers.
    """
    return parse(
        {
            "name": "overhead",
            "data": {"name": "digits", "clients": NODES},
            "model": {"name": "mlp", "hidden": list(hidden)},
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


def measure(hidden: Sequence[int]) -> Measured:
    """Train an MLP on a federation of this machine."""
    with tempfile.TemporaryDirectory() as place, Programs(Path(place) / "home") as programs:
        folder, out = Path(place), Path(place) / "out"
        launch.start_trial(programs, folder, NODES, NODES)
        config: Config = {"out": str(out), "wait": 120.0, "reply-timeout": 600.0}
        submit.submit(programs, folder, make_recipe(hidden), config)
        processor = watch(programs, out)
        return Measured(read_log((out / "flower.log").read_text("utf-8")), processor)


def watch(programs: Programs, out: Path) -> Processor:
    """Wait for the end of a run; return the processor seconds of a round after the first."""
    after_first: Processor | None = None
    processes: Processes = {}
    while programs.running[submit.RUN].poll() is None:
        programs.check(besides=submit.RUN)
        processes |= look_at_processes(programs.home)
        rounds = sum(file.read_bytes().count(b"\n") for file in out.glob("runs/*/metrics.jsonl"))
        if rounds >= 1 and after_first is None:
            after_first = add_up(processes)
        if rounds == ROUNDS:
            break
        time.sleep(0.2)
    if after_first is None:
        raise RuntimeError("the run ended before its first round")
    programs.running[submit.RUN].wait()
    spent = {}
    for role, seconds in add_up(processes).items():
        spent[role] = (seconds - after_first.get(role, 0.0)) / (ROUNDS - 1)
    return spent


def look_at_processes(home: Path) -> Processes:
    """Return what the processes of the federation have used so far."""
    processes: Processes = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if f"FLWR_HOME={home}".encode() not in (entry / "environ").read_bytes():
                continue
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
        except OSError:  # it has just ended
            continue
        role = next(role for sign, role in ROLES.items() if sign in line)
        user, system = int(fields[11]), int(fields[12])
        processes[int(entry.name)] = role, (user + system) / TICKS
    return processes


def add_up(processes: Processes) -> Processor:
    """Add up processor seconds by role."""
    total: dict[str, float] = {}
    for role, seconds in processes.values():
        total[role] = total.get(role, 0.0) + seconds
    return total


NUMBER = r"(\d+\.\d) s"
EXCHANGE = re.compile(rf"train: \d+ messages sent in {NUMBER}, .* in {NUMBER}")
ROUND = re.compile(
    rf"^(\S+ \S+) INFO round \d+, train: .* MB up, {NUMBER}, of which clients {NUMBER}",
    re.MULTILINE,
)


def read_log(log: str) -> Mapping[str, Sequence[float]]:
    """Return the seconds of every round after the first, which waits for the nodes."""
    sent, fetched = [], []
    for seconds_sent, seconds_fetched in EXCHANGE.findall(log)[1:]:
        sent.append(float(seconds_sent))
        fetched.append(float(seconds_fetched))
    ends, exchange, training = [], [], []
    for when, seconds_exchange, seconds_training in ROUND.findall(log):
        ends.append(datetime.fromisoformat(when.replace(",", ".")))
        exchange.append(float(seconds_exchange))
        training.append(float(seconds_training))
    whole = [(after - before).total_seconds() for before, after in pairwise(ends)]
    exchange, training = exchange[1:], training[1:]
    rows = zip(whole, exchange, training, sent, fetched, strict=True)
    nodes, beyond, between = [], [], []
    for seconds, exchanged, trained, pushed, pulled in rows:
        nodes.append(exchanged - pushed - pulled - trained)
        beyond.append(seconds - trained)
        between.append(seconds - exchanged)
    return {
        "**a round**": whole,
        "training, the slowest node": training,
        "**beyond training**": beyond,
        "server: writes the messages and hands them to the SuperLink": sent,
        "nodes: fetch them, start Flower's process, hand the answer in": nodes,
        "server: fetches the answers": fetched,
        "server: looks at them, averages, saves the round, asks who is there": between,
    }


if __name__ == "__main__":
    main()
