"""Tables in the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:  # torch takes its time, and other commands do without
    from ..paper.outcome import Outcome
    from ..report.compare import Comparison
    from ..run.sweep import Case


def plain_console() -> Console:
    """Return a console that takes text as it is; a file or a pipe has no right edge."""
    console = Console(highlight=False, markup=False)
    if console.is_terminal:
        return console
    return Console(highlight=False, markup=False, width=400)


def grid(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Make a table without lines, the first column to the left and the others to the right."""
    table = Table(*header, box=None, pad_edge=False, header_style="bold")
    for column in table.columns[1:]:
        column.justify = "right"
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table


def show(comparison: Comparison) -> None:
    """Print the comparison: what was trained, the table, and in words who is ahead."""
    from ..report import summary, words
    from ..report.tables import comparison_table

    console = plain_console()
    console.print(summary.about(comparison.results))
    console.print(grid(*comparison_table(comparison)))
    for sentence in words.closing_sentences(comparison):
        console.print(sentence)


def show_sweep(cases: Sequence[Case]) -> None:
    """Print for every case what the search chose and how the chosen compare."""
    from ..report.compare import compare

    console = plain_console()
    for case in cases:
        if case.name:
            console.print(f"\n{case.name}")
        if case.searched:
            _show_search(console, case)
        show(compare(case.results))


def _show_search(console: Console, case: Case) -> None:
    """Print every trial of a search, and which of them were chosen."""
    from ..report.words import pluralize

    train = case.results.recipe.train
    budget = f"{pluralize(len(train.seeds), 'seed')}, {pluralize(train.rounds, 'round')} each"
    console.print(
        f"Searched on {case.holdout:.0%} of the training samples, held out: mean of the 5 best "
        f"rounds, {budget}; * is chosen"
    )
    keys = list(dict.fromkeys(key for trial in case.trials for key in trial.values))
    rows = []
    for trial in case.trials:
        mark = "*" if case.best.get(trial.label) is trial else " "
        values = [str(trial.values.get(key, "")) for key in keys]
        score = trial.score.show(1, 100) if trial.score else "diverged"
        rows.append([f"{mark} {trial.label}", *values, score])
    console.print(grid(["  variant", *keys, "held out %"], rows))
    counts = Counter(trial.label for trial in case.trials)
    console.print("Trials: " + ", ".join(f"{label} {count}" for label, count in counts.items()))
    for remark in case.at_the_edge:
        console.print(remark)
    for label in counts:
        if label not in case.best:
            console.print(f"{label}: all trials diverged, so it is not compared")
    console.print("\nThe chosen, trained on all training samples, on the test set:")


def show_beside(baseline: str, outcomes: Sequence[Outcome]) -> None:
    """Print a table of the paper, part by part, with our values beside the paper's."""
    from ..paper import text

    console = plain_console()
    for outcome in outcomes:
        console.print(f"\n{outcome.scaled.heading}", style="bold")
        console.print(grid(*text.cells(outcome, baseline)))
        for claim in outcome.claims:
            console.print(f"The text says {claim}")
    console.print(f"\n{text.note(baseline, outcomes)}")


def show_paper_tables() -> None:
    """Print which tables of the paper there are, what each costs and which files it needs."""
    from ..paper.scale import cpu_rounds, default_seeds
    from ..paper.table import list_files, load, names

    console = plain_console()
    rows = []
    for name in names():
        table = load(name)
        runs = len(table.rows) * len(table.parts)
        rounds = "/".join(dict.fromkeys(str(count) for count in cpu_rounds(table)))
        cost = f"{runs} runs x {len(default_seeds(table, 'cpu'))} seeds x {rounds} rounds"
        rows.append([name, table.place, table.title, cost, ", ".join(list_files(table))])
    header = ["name", "place", "what", "cost with --scale cpu", "files (digits without)"]
    table_of_tables = grid(header, rows)
    for column in table_of_tables.columns:
        column.justify = "left"
    console.print(table_of_tables)
    console.print(
        "\n--scale cpu is made to end in under 40 minutes on two cores; --scale paper trains 400 "
        "to 1,000 rounds of the full models, which takes a GPU. Both say how long they will take "
        "before they start."
    )
