"""fedbr bench: what a round costs, against a bare PyTorch loop in the same run."""

from __future__ import annotations

import typer
from rich.console import Console
from rich.progress import Progress

REPEATS = typer.Option(2, "--repeats", min=1, help="Timed repetitions.")


def bench(repeats: int = REPEATS) -> int:
    """Time a round of the paper's CNN at full width against a bare PyTorch loop."""
    from .. import bench as b

    work, stacks = b.PAPER_CNN, b.standard()
    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task("bench", total=repeats * (len(stacks) + 1) * work.clients * work.local_steps)
        loop, ratios = b.measure(work, repeats, stacks, lambda: progress.advance(task))
    print(
        f"{work.model}, full width, {work.shape[1]}x{work.shape[2]}: {work.clients} clients, {work.local_steps} steps, "
        f"batch {work.batch_size}; CPU seconds of one thread, median of {repeats}"
    )
    print(f"{'bare loop':<10} {loop:6.2f} s   1.00")
    for ratio in ratios:
        spread = f"{min(ratio.values):.2f} to {max(ratio.values):.2f}"
        print(f"{ratio.name:<10} {ratio.seconds:6.2f} s   {ratio.median:.2f}   ({spread})")
    return 0
