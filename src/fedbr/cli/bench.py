"""fedbr bench: what a round costs, against a bare PyTorch loop in the same run."""

from __future__ import annotations

from dataclasses import replace

import typer
from rich.console import Console
from rich.progress import Progress

REPEATS = typer.Option(2, "--repeats", min=1, help="Timed repetitions.")
STEPS = typer.Option(25, "--steps", min=1, help="Local steps of each of the two clients.")
METHODS = typer.Option(["fedavg", "fedbr"], "--methods", help="Stacks to time, such as: fedavg fedbr mixup+fedbr.")


def bench(repeats: int = REPEATS, steps: int = STEPS, methods: list[str] = METHODS) -> int:
    """Time a round of the paper's CNN at full width against a bare PyTorch loop: the second of two rounds."""
    from .. import bench as b
    from ..config import parse, short

    chosen = parse({"compare": [short(stack) for stack in methods]}).compare
    work, stacks = replace(b.PAPER_CNN, local_steps=steps), [(stack.label, stack.build()) for stack in chosen]
    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task("bench", total=2 * repeats * (len(stacks) + 1) * work.clients * work.local_steps)
        loop, ratios = b.measure(work, repeats, stacks, lambda: progress.advance(task))
    print(
        f"{work.model}, full width, {work.shape[1]}x{work.shape[2]}: {work.clients} clients, {work.local_steps} steps, "
        f"batch {work.batch_size}; CPU seconds of one thread, median of {repeats}"
    )
    fedavg = next((ratio for ratio, stack in zip(ratios, chosen, strict=True) if not stack.methods), None)
    width = max(len(name) for name in ("bare loop", *(r.name for r in ratios)))
    print(f"{'':<{width}} {'seconds':>9} {'of the loop':>12}" + (f" {'of FedAvg':>10}" if fedavg else ""))
    print(f"{'bare loop':<{width}} {loop:>9.2f} {1:>12.2f}")
    for ratio in ratios:
        beside = f" {ratio.beside(fedavg):>10.2f}" if fedavg else ""
        spread = f"   ({min(ratio.values):.2f} to {max(ratio.values):.2f} of the loop)"
        print(f"{ratio.name:<{width}} {ratio.seconds:>9.2f} {ratio.median:>12.2f}{beside}{spread}")
    return 0
