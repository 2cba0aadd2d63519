"""fedbr diagnose: the figures and numbers of local learning bias."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from ..bias.folder import Found
    from ..bias.report import Diagnosis

FOLDER = typer.Argument(
    None, metavar="[DIR]", help="A result folder of fedbr run, finished or not."
)
TOY = typer.Option(
    False,
    "--toy",
    help="The paper's toy example instead: two clients, each with half of the classes.",
)
SHARE = typer.Option(
    None, "--share", help="toy: part of each class that the other client has, 0 to 0.5; default: 0."
)
PRETRAIN = typer.Option(
    None, "--pretrain", help="toy: epochs on all data before the clients begin; default: 5."
)
EPOCHS = typer.Option(
    None, "--epochs", help="Local epochs; default: train.local_steps steps, toy: 10."
)
START = typer.Option(
    "model", "--start", help="Clients begin with the global model, its features, or from scratch."
)
SET = typer.Option(
    [],
    "--set",
    metavar="KEY=VALUE ...",
    help="Change train or a method: train.lr=0.05 fedbr.lam=1.",
)
METHODS = typer.Option(
    [], "--methods", metavar="STACK ...", help="Compare these instead: fedavg fedprox fedbr."
)
RUN = typer.Option(None, "--run", metavar="LABEL", help="Whose global model; default: FedAvg's.")
SEED = typer.Option(None, "--seed", help="Of which seed; default: the first.")
CLIENTS = typer.Option(10, "--clients", help="How many clients train, drawn if there are more.")
CLIENT = typer.Option(None, "--client", help="The one in the pictures; default: the first of them.")
SAMPLES = typer.Option(1000, "--samples", help="Test samples to look at, as many of each class.")
OUT = typer.Option(
    None,
    "--out",
    metavar="DIR",
    help="Where the folder diagnosis goes; default: DIR, toy: runs/toy.",
)
WORKERS = typer.Option(None, "--workers", min=1, help="Processes; changes no result.")


def diagnose(
    folder: Path | None = FOLDER,
    toy: bool = TOY,
    share: float | None = SHARE,
    pretrain: int | None = PRETRAIN,
    epochs: int | None = EPOCHS,
    start: str = START,
    set_: list[str] = SET,
    methods: list[str] = METHODS,
    run: str | None = RUN,
    seed: int | None = SEED,
    clients: int = CLIENTS,
    client: int | None = CLIENT,
    samples: int = SAMPLES,
    out: Path | None = OUT,
    workers: int | None = WORKERS,
) -> int:
    """Show the bias of local learning: clients train a round from the same global weights, with
    each method.

    Compares FedAvg, the two components of FedBR, and both. Writes figures and numbers into
    DIR/diagnosis.
    """
    from ..bias.case import Options
    from ..bias.folder import from_folder, from_toy
    from ..bias.report import refuse
    from ..bias.study import examine
    from ..util.errors import InputError
    from ..util.imports import require
    from ..util.validation import validated

    given = {
        "clients": clients,
        "client": client,
        "samples": samples,
        "start": start,
        "epochs": epochs,
    }
    if toy == (folder is not None):
        raise InputError("diagnose: wants a result folder, or --toy")
    if not toy and (share is not None or pretrain is not None):
        raise InputError(f"--{'pretrain' if share is None else 'share'}: goes with --toy only")
    if toy and run is not None:
        raise InputError("--run: goes with a result folder, not with --toy")
    steps = any(text.partition("=")[0].strip() == "train.local_steps" for text in set_)
    if epochs is not None and steps:
        raise InputError(
            f"--epochs {epochs}: --set train.local_steps says how long to train, too; give one of them"
        )
    if toy:
        given |= {"pretrain": 5 if pretrain is None else pretrain}
        given |= {"epochs": 10} if epochs is None and not steps else {}
    options, place = validated(Options, given, "diagnose"), out or folder or Path("runs/toy")
    refuse(place)
    require("matplotlib", "threadpoolctl", extra="report", wanted_by="fedbr diagnose")
    with Bar() as bar:
        if folder is None:
            found = from_toy(share or 0.0, set_, methods, seed or 0)
        else:
            found = from_folder(folder, set_, methods, run, seed)
        diagnosis = examine(found.case, options, workers or found.workers, bar)
    where = diagnosis.write(
        place
    )  # before the pictures: whatever happens to them, the numbers are there
    _show(diagnosis, found)
    with Bar() as bar:
        bar("pictures", 0, 1)
        diagnosis.draw(place, found.rounds)
    print(f"Figures and numbers: {where}")
    return 0


def _show(diagnosis: Diagnosis, found: Found) -> None:
    """Print what was looked at, the table, and what it says in words."""
    from ..report.local_models import NOTE, table
    from .tables import grid, plain_console

    console = plain_console()
    console.print(diagnosis.about())
    console.print(grid(*diagnosis.table()))
    for sentence in diagnosis.sentences():
        console.print(sentence)
    if found.rounds:
        console.print("\nLocal models beside the aggregated one, as logged while training:")
        console.print(grid(*table(found.rounds)))
        console.print(NOTE)


class Bar:
    """The progress bar: quiet when piped."""

    def __init__(self) -> None:
        console = Console(stderr=True)
        columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
        self.progress = Progress(
            *columns, console=console, disable=not console.is_terminal, transient=True
        )
        self.task: Any = None
        warnings.showwarning = lambda message, *_: console.print(
            f"fedbr: {message}", highlight=False, markup=False
        )

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def __call__(self, what: str, done: int, total: int) -> None:
        if self.task is None:
            self.task = self.progress.add_task(what, total=total)
        self.progress.update(self.task, description=what, completed=done)
