"""fedbr bench: what a round costs, against a bare PyTorch loop in the same run."""

from __future__ import annotations

import json
import statistics
from dataclasses import replace
from typing import Any

import typer
from rich.console import Console
from rich.progress import Progress, TaskID

REPEATS = typer.Option(3, "--repeats", min=1, help="Timed repetitions.")
STEPS = typer.Option(
    50, "--steps", min=1, help="Local steps of each of the two clients of the CNN."
)
METHODS = typer.Option([], "--methods", help="Variants to time, such as: fedavg fedbr mixup+fedbr.")
WORKLOAD = typer.Option(
    [],
    "--workload",
    help="Only these: cnn, mlp, mlp-1000, workers (the CNN with one and two processes), "
    "scale (100 clients of 200, and of 10,000).",
)
JSON = typer.Option(False, "--json", help="Print the figures as JSON.")


def bench(
    repeats: int = REPEATS,
    steps: int = STEPS,
    methods: list[str] = METHODS,
    workload: list[str] = WORKLOAD,
    json_: bool = JSON,
) -> int:
    """Time rounds of the paper's CNN and of small models against a bare PyTorch loop."""
    from .. import bench as timing
    from ..recipe.load import parse
    from ..recipe.overrides import read_variants
    from ..run.environment import environment
    from ..util.errors import unknown
    from ..util.processes import usable_cores

    works = timing.WORKLOADS | {"cnn": replace(timing.PAPER_CNN, local_steps=steps)}
    known = [*works, "workers", "scale"]
    for name in workload:
        if name not in known:
            raise unknown("--workload", name, known)
    asked = (
        [
            (variant.label, variant.build())
            for variant in parse({"compare": read_variants(methods)}).compare
        ]
        if methods
        else []
    )
    console = Console(stderr=True)
    figures: dict[str, Any] = {"environment": environment(), "repeats": repeats, "workloads": {}}
    if not json_:
        print(_machine(figures["environment"]))
    with Progress(console=console, disable=not console.is_terminal, transient=True) as progress:
        for name, work in works.items():
            if workload and name not in workload:
                continue
            variants = asked or timing.usual(work)
            task = progress.add_task(name, total=repeats * (len(variants) + 1))

            def advance(task: TaskID = task) -> None:
                progress.advance(task)

            loop, ratios = timing.measure(work, repeats, variants, advance)
            figures["workloads"][name] = _figures(str(work), loop, ratios)
            progress.stop_task(task)
            if not json_:
                _show(figures["workloads"][name], repeats)
                if any(label == timing.RELEASED for label, _ in variants):
                    print(
                        "released sizes: the projector of the authors' code, 2d wide with d "
                        "outputs for d features"
                    )
    if usable_cores() > 1 and ("workers" in workload or not workload):
        wall = timing.workers(replace(works["cnn"], clients=4), repeats)
        one, two = (statistics.median(wall[count]) for count in (1, 2))
        ratio = statistics.median(b / a for a, b in zip(wall[1], wall[2], strict=True))
        figures["workers"] = {"seconds": wall, "ratio": ratio}
        if not json_:
            print("\nwall time of a round of the CNN, 4 clients: ", end="")
            print(f"1 worker {one:.2f} s, 2 workers {two:.2f} s, ratio {ratio:.2f}")
    if "scale" in workload or not workload:
        scale = timing.scale(timing.CROWD, repeats)
        figures["scale"] = {"seconds": scale.seconds, "ratio": scale.ratio, "memory": scale.memory}
        if not json_:
            few, many = (1000 * statistics.median(values) for values in scale.seconds.values())
            memory = ", ".join(f"{value / 1e6:.0f}" for value in scale.memory)
            print(f"\nwall time of a round of 100 clients, {timing.CROWD.rounds} rounds: ", end="")
            print(f"of 200 {few:.1f} ms, of 10,000 {many:.1f} ms, ratio {scale.ratio:.2f}")
            print(f"memory above the samples, the most of each repetition: {memory} MB")
    if json_:
        print(json.dumps(figures, indent=1))
    return 0


def _machine(where: dict[str, Any]) -> str:
    torch = f"torch {where['packages']['torch']} ({where['torch_capability']})"
    return f"{where['processor']}, {where['cores']} cores; {torch}; {where['threads']} thread a process"


def _figures(about: str, loop: float, ratios: Any) -> dict[str, Any]:
    fedavg = next((ratio for ratio in ratios if ratio.name == "FedAvg"), None)
    rows = [
        {
            "variant": r.name,
            "seconds": r.seconds,
            "of_the_loop": r.median,
            "lowest": min(r.values),
            "highest": max(r.values),
            "of_fedavg": r.beside(fedavg) if fedavg else None,
        }
        for r in ratios
    ]
    return {"about": about, "bare_seconds": loop, "rows": rows}


def _show(figures: dict[str, Any], repeats: int) -> None:
    width = max(len(name) for name in ("bare loop", *(row["variant"] for row in figures["rows"])))
    print(f"\n{figures['about']}; CPU seconds of a round, one thread, median of {repeats}")
    print(f"{'':<{width}} {'seconds':>9} {'of the loop':>12} {'of FedAvg':>10}")
    print(f"{'bare loop':<{width}} {figures['bare_seconds']:>9.3f} {1:>12.2f}")
    for row in figures["rows"]:
        beside = f"{row['of_fedavg']:>10.2f}" if row["of_fedavg"] else f"{'':>10}"
        spread = f"   ({row['lowest']:.2f} to {row['highest']:.2f} of the loop)"
        print(
            f"{row['variant']:<{width}} {row['seconds']:>9.3f} {row['of_the_loop']:>12.2f} {beside}{spread}"
        )
