"""fedbr bench: what a round costs, against a bare PyTorch loop in the same run."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.progress import Progress, TaskID

from ..util.tables import Json

if TYPE_CHECKING:  # PyTorch is imported when the command is called
    from ..bench import Ratio, Scale, Variants, Workload

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
JSON = typer.Option(False, "--json", help="Print the results as JSON.")


def bench(
    repeats: int = REPEATS,
    steps: int = STEPS,
    methods: list[str] = METHODS,
    workload: list[str] = WORKLOAD,
    json_: bool = JSON,
) -> int:
    """Time rounds of the paper's CNN and of small models against a bare PyTorch loop."""
    from .. import bench as timing
    from ..run.environment import describe_environment
    from ..util.errors import unknown
    from ..util.processes import usable_cores

    works = timing.WORKLOADS | {"cnn": replace(timing.PAPER_CNN, local_steps=steps)}
    names = [*works, "workers", "scale"]
    for name in workload:
        if name not in names:
            raise unknown("--workload", name, names)
    selected = workload or names
    variants = _build_variants(methods)
    environment = describe_environment()
    results: Json = {"environment": environment, "repeats": repeats, "workloads": {}}
    if not json_:
        print(_describe_machine(environment))

    for name, work in works.items():
        if name in selected:
            result = _time_workload(name, work, repeats, variants or timing.default_variants(work))
            results["workloads"][name] = result
            if not json_:
                _print_workload(result, repeats)
    if "workers" in selected and usable_cores() > 1:
        wall = timing.workers(replace(works["cnn"], clients=4), repeats)
        ratio = statistics.median(b / a for a, b in zip(wall[1], wall[2], strict=True))
        results["workers"] = {"seconds": wall, "ratio": ratio}
        if not json_:
            one, two = (statistics.median(wall[count]) for count in (1, 2))
            print("\nwall time of a round of the CNN, 4 clients: ", end="")
            print(f"1 worker {one:.2f} s, 2 workers {two:.2f} s, ratio {ratio:.2f}")
    if "scale" in selected:
        scale = timing.scale(timing.CROWD, repeats)
        results["scale"] = {"seconds": scale.seconds, "ratio": scale.ratio, "memory": scale.memory}
        if not json_:
            _print_scale(scale, timing.CROWD.rounds)
    if json_:
        print(json.dumps(results, indent=1))
    return 0


def _build_variants(texts: Sequence[str]) -> Variants:
    """Make the variants of ``--methods``."""
    from ..recipe.load import parse
    from ..recipe.overrides import read_variants

    if not texts:
        return []
    recipe = parse({"compare": read_variants(texts)})
    return [(variant.label, variant.build()) for variant in recipe.compare]


def _describe_machine(environment: Json) -> str:
    packages, capability = environment["packages"], environment["torch_capability"]
    return (
        f"{environment['processor']}, {environment['cores']} cores; "
        f"torch {packages['torch']} ({capability}); {environment['threads']} thread a process"
    )


def _time_workload(name: str, work: Workload, repeats: int, variants: Variants) -> Json:
    """Time a workload under a bar; return what ``--json`` prints of it."""
    from .. import bench as timing

    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal, transient=True) as progress:
        task: TaskID = progress.add_task(name, total=repeats * (len(variants) + 1))
        loop, ratios = timing.measure(work, repeats, variants, lambda: progress.advance(task))
    return {"about": str(work), "bare_seconds": loop, "rows": _rows(ratios)}


def _rows(ratios: Sequence[Ratio]) -> list[Json]:
    """Return a row for each variant; ``of_fedavg`` is None if FedAvg was not timed."""
    fedavg = next((ratio for ratio in ratios if ratio.name == "FedAvg"), None)
    rows = []
    for ratio in ratios:
        row = {
            "variant": ratio.name,
            "seconds": ratio.seconds,
            "of_the_loop": ratio.median,
            "lowest": min(ratio.values),
            "highest": max(ratio.values),
            "of_fedavg": None if fedavg is None else ratio.beside(fedavg),
        }
        rows.append(row)
    return rows


def _print_workload(result: Json, repeats: int) -> None:
    from ..bench import RELEASED

    rows = result["rows"]
    names = [row["variant"] for row in rows]
    width = max(len(name) for name in ("bare loop", *names))
    print(f"\n{result['about']}; CPU seconds of a round, one thread, median of {repeats}")
    print(f"{'':<{width}} {'seconds':>9} {'of the loop':>12} {'of FedAvg':>10}")
    print(f"{'bare loop':<{width}} {result['bare_seconds']:>9.3f} {1:>12.2f}")
    for row in rows:
        of_fedavg = f"{row['of_fedavg']:.2f}" if row["of_fedavg"] else ""
        spread = f"   ({row['lowest']:.2f} to {row['highest']:.2f} of the loop)"
        line = f"{row['variant']:<{width}} {row['seconds']:>9.3f} {row['of_the_loop']:>12.2f}"
        print(f"{line} {of_fedavg:>10}{spread}")
    if RELEASED in names:
        print(
            "released sizes: the projector of the authors' code, 2d wide with d outputs for d "
            "features"
        )


def _print_scale(scale: Scale, rounds: int) -> None:
    few, many = (1000 * statistics.median(values) for values in scale.seconds.values())
    memory = ", ".join(f"{value / 1e6:.0f}" for value in scale.memory)
    print(f"\nwall time of a round of 100 clients, {rounds} rounds: ", end="")
    print(f"of 200 {few:.1f} ms, of 10,000 {many:.1f} ms, ratio {scale.ratio:.2f}")
    print(f"memory above the samples, the most of each repetition: {memory} MB")
