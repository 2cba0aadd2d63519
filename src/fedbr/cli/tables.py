"""Tables in the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..report import tables

if TYPE_CHECKING:  # torch takes its time, and other commands do without
    from ..paper.outcome import Outcome
    from ..run.sweep import Case


def plain_console() -> Console:
    """Return a console that takes text as it is; a file or a pipe has no right edge."""
    console = Console(highlight=False, markup=False)
    return console if console.is_terminal else Console(highlight=False, markup=False, width=400)


def grid(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Make a table without lines, the first column to the left and the others to the right."""
    table = Table(*header, box=None, pad_edge=False, header_style="bold")
    for column in table.columns[1:]:
        column.justify = "right"
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table


def show(results: dict[str, Any]) -> None:
    """Print the comparison, what the split is like, and in words which side is ahead."""
    console = plain_console()
    header, cells = tables.compare(results)
    console.print(tables.about(results))
    console.print(grid(header, cells))
    for sentence in tables.sentences(results):
        console.print(sentence)


def show_sweep(cases: Sequence[Case]) -> None:
    """Print what the search found and how the chosen compare, for every case."""
    console = plain_console()
    for case in cases:
        if case.name:
            console.print(f"\n{case.name}")
        if case.searched:
            train = case.results["recipe"]["train"]
            budget = f"{tables.number(len(train['seeds']), 'seed')}, {tables.number(train['rounds'], 'round')} each"
            console.print(
                f"Searched on {case.holdout:.0%} of the training samples, held out: mean of the 5 best rounds, "
                f"{budget}; * is chosen"
            )
            keys = list(dict.fromkeys(key for trial in case.trials for key in trial.values))
            rows = [
                [
                    f"{'*' if case.best.get(t.label) is t else ' '} {t.label}",
                    *(str(t.values.get(key, "")) for key in keys),
                    t.score.show(1, 100) if t.score else "diverged",
                ]
                for t in case.trials
            ]
            console.print(grid(["  variant", *keys, "held out %"], rows))
            counts = Counter(trial.label for trial in case.trials)
            console.print(
                "Trials: " + ", ".join(f"{label} {count}" for label, count in counts.items())
            )
            for remark in case.at_the_edge:
                console.print(remark)
            for label in (label for label in counts if label not in case.best):
                console.print(f"{label}: all trials diverged, so it is not compared")
            console.print("\nThe chosen, trained on all training samples, on the test set:")
        show(case.results)


def show_beside(base: str, outcomes: Sequence[Outcome]) -> None:
    """Print a table of the paper, part by part."""
    from ..paper import text

    console = plain_console()
    for outcome in outcomes:
        console.print(f"\n{outcome.scaled.heading}", style="bold")
        console.print(grid(*text.cells(outcome, base)))
        for order in outcome.orders:
            console.print(f"The text says {order}")
    console.print(f"\n{text.note(base, outcomes)}")


def show_paper_tables() -> None:
    """Print what can be reproduced, what it costs and what it needs."""
    from ..paper.scale import cpu_rounds, default_seeds
    from ..paper.table import load, names, needs

    console = plain_console()
    rows = []
    for name in names():
        table = load(name)
        runs = len(table.rows) * len(table.parts)
        rounds = "/".join(dict.fromkeys(str(r) for r in cpu_rounds(table)))
        cost = f"{runs} runs x {len(default_seeds(table, 'cpu'))} seeds x {rounds} rounds"
        rows.append([name, table.place, table.title, cost, ", ".join(needs(table))])
    listed = grid(
        ["name", "place", "what", "cost with --scale cpu", "files (digits without)"], rows
    )
    for column in listed.columns:
        column.justify = "left"
    console.print(listed)
    console.print(
        "\n--scale cpu is made to end in under 40 minutes on two cores; --scale paper trains 400 to 1,000 rounds of "
        "the full models, for which one wants a GPU. Both say how long they will take before they start."
    )
