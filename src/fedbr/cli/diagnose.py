"""fedbr diagnose: the figures and numbers of local learning bias."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ..util.errors import InputError

if TYPE_CHECKING:  # torch takes its time
    from ..bias.case import Case
    from ..bias.diagnosis import Diagnosis

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
    [], "--methods", metavar="NAMES ...", help="Compare these instead: fedavg fedprox fedbr."
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
    """Show the bias of local learning in one round from the same global weights.

    Compares FedAvg, the two components of FedBR, and both. Writes figures and numbers into
    DIR/diagnosis.
    """
    from ..bias.case import Options
    from ..bias.folder import from_folder, from_toy
    from ..bias.study import examine
    from ..run.diagnosis import check_place
    from ..util.imports import require
    from ..util.validation import validate
    from .progress import Progress

    _check_toy(toy, folder, share, pretrain, run)
    values = {"clients": clients, "client": client, "samples": samples, "start": start}
    values |= _choose_lengths(toy, pretrain, epochs, set_)
    options = validate(Options, values, "diagnose")
    place = out or folder or Path("runs/toy")
    check_place(place)
    require("matplotlib", "threadpoolctl", extra="report", needed_by="fedbr diagnose")
    with Progress() as progress:
        if folder is None:
            case = from_toy(share or 0.0, set_, methods, seed or 0)
        else:
            case = from_folder(folder, set_, methods, run, seed)

        def watch(what: str, done: int, total: int) -> None:
            progress.update(what, done, total, "stages")

        diagnosis = examine(case, options, workers or case.workers, watch)
    where = diagnosis.write(place)  # before the pictures: whatever happens to them, it is there
    _show(diagnosis, case)
    with Progress() as progress:
        progress.update("pictures", 0, 1, "stages")
        diagnosis.draw(place, case.logged)
    print(f"Figures and numbers: {where}")
    return 0


def _choose_lengths(
    toy: bool, pretrain: int | None, epochs: int | None, set_: Sequence[str]
) -> dict[str, int]:
    """Return how long to train, as far as options say it; the toy example has its own defaults."""
    keys = {text.partition("=")[0].strip() for text in set_}
    sets_steps = "train.local_steps" in keys
    if epochs is not None and sets_steps:
        raise InputError(
            f"--epochs {epochs}: --set train.local_steps says how long to train, too; give one of "
            "them"
        )
    lengths = {} if epochs is None else {"epochs": epochs}
    if toy:
        lengths["pretrain"] = 5 if pretrain is None else pretrain
        if not sets_steps:
            lengths.setdefault("epochs", 10)
    return lengths


def _check_toy(
    toy: bool, folder: Path | None, share: float | None, pretrain: int | None, run: str | None
) -> None:
    """Refuse options that do not go together."""
    if toy == (folder is not None):
        raise InputError("diagnose: expected a result folder, or --toy")
    for option, value in (("--share", share), ("--pretrain", pretrain)):
        if value is not None and not toy:
            raise InputError(f"{option}: only allowed with --toy")
    if toy and run is not None:
        raise InputError("--run: only allowed with a result folder, not with --toy")


def _show(diagnosis: Diagnosis, case: Case) -> None:
    """Print what was looked at, the table, and what it says in words."""
    from ..report.local_models import NOTE, table
    from .tables import grid, plain_console

    console = plain_console()
    console.print(diagnosis.about())
    console.print(grid(*diagnosis.table()))
    for sentence in diagnosis.sentences():
        console.print(sentence)
    if case.logged:
        console.print("\nLocal models beside the aggregated one, as logged while training:")
        console.print(grid(*table(case.logged)))
        console.print(NOTE)
