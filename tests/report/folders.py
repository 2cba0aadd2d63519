"""Result folders without training: what fedbr run leaves, from a formula.

Files are written by hand, and not by the code that is tested.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedbr.recipe import load as config
from fedbr.recipe.schema import Recipe
from fedbr.report.read import ReportFolder, read
from fedbr.run.folder import MARK, ResultFolder

LETTERS = (
    "fedprox",
    "scaffold",
    "moon",
    "dann",
    "groupdro",
    "fedbr",
    "mixup",
    "naivemix",
    "fedmix",
    "vhl",
    "fedcm",
)
DIVERGED = {"round": 5, "client": 2, "what": "the loss is not finite"}


def make(
    path: Path,
    labels: Sequence[str] = ("FedAvg", "FedBR"),
    seeds: Sequence[int] = (0, 1, 2),
    rounds: int = 10,
    clients: int = 10,
    every: int = 1,
    tuned: Sequence[bool | None] = (),
    **data: Any,
) -> ResultFolder:
    """Write a folder whose variants learn the faster, the later they stand in the recipe."""
    compare: list[dict[str, Any]] = []
    for i, label in enumerate(labels):
        methods = [LETTERS[(i - 1) % len(LETTERS)]] if i else []
        compare.append({"label": label, "methods": methods})
    for variant, known in zip(compare, tuned, strict=False):
        variant |= {} if known is None else {"tuned": known}
    recipe = config.parse(
        {
            "name": "made",
            "data": {"name": "digits", "clients": clients, **data},
            "train": {"rounds": rounds, "seeds": list(seeds), "evaluate_every": every},
            "metrics": {"target": 0.5},
            "compare": compare,
        }
    )
    folder = begin(path, recipe)
    for i, variant in enumerate(recipe.compare):
        for seed in seeds:
            run = folder.run(variant, seed).path
            finish(run, seed, clients)
            lines = []
            for round in range(1, rounds + 1):
                tested = round == rounds or round % every == 0
                lines.append(line(round, (i + 1) / len(labels), seed, clients, tested))
            write_lines(run, lines)
    return folder


def make_gains(path: Path, gains: Sequence[float]) -> ResultFolder:
    """Write a folder of two variants: on each seed, the second is ahead by so many points."""
    variants = [{"label": "FedAvg", "methods": []}, {"label": "FedBR", "methods": ["fedbr"]}]
    train = {"rounds": 5, "seeds": list(range(len(gains)))}
    metrics = {"target": 0.5}
    recipe = config.parse(
        {"name": "gains", "train": train, "metrics": metrics, "compare": variants}
    )
    folder = begin(path, recipe)
    for variant in recipe.compare:
        for seed, gain in enumerate(gains):
            run = folder.run(variant, seed).path
            accuracy = 0.6 + (gain / 100 if variant.methods else 0)
            finish(run, seed, clients=10)
            lines = [line(round, 1, seed, 10, True) for round in range(1, 6)]
            write_lines(run, [values | {"accuracy": accuracy} for values in lines])
    return folder


def begin(path: Path, recipe: Recipe) -> ResultFolder:
    """Write what is there before the first run begins."""
    path.mkdir(parents=True)
    (path / "recipe.toml").write_text(f"{MARK}\n{recipe.to_toml()}", "utf-8")
    (path / "environment.json").write_text('{"python": "3.11"}\n')
    return ResultFolder(path, recipe)


def finish(run: Path, seed: int, clients: int) -> None:
    """Write what is there of a run that is finished, beside its rounds."""
    run.mkdir(parents=True)
    (run / "run.json").write_text(json.dumps(info(clients, seed)))
    (run / "model.safetensors").write_bytes(b"")


def read_one(path: Path) -> ReportFolder:
    """Read a folder anew."""
    (folder,) = read([path])
    return folder


def lines_of(run: Path) -> list[dict[str, Any]]:
    """Return the rounds of a run as they stand in its file."""
    return [json.loads(text) for text in (run / "metrics.jsonl").read_text().splitlines()]


def write_lines(run: Path, lines: Sequence[dict[str, Any]]) -> None:
    """Write the rounds of a run."""
    (run / "metrics.jsonl").write_text("".join(json.dumps(values) + "\n" for values in lines))


def change_info(run: Path, **facts: Any) -> None:
    """Change what is known of a run; None removes a fact."""
    known = json.loads((run / "run.json").read_text()) | facts
    kept = {key: value for key, value in known.items() if value is not None}
    (run / "run.json").write_text(json.dumps(kept))


def diverge(run: Path, after: int) -> None:
    """Let a run diverge after so many rounds."""
    change_info(run, diverged_at=DIVERGED)
    write_lines(run, lines_of(run)[:after])


def interrupt(run: Path, after: int) -> None:
    """Let a run be unfinished after so many rounds."""
    (run / "model.safetensors").unlink()
    write_lines(run, lines_of(run)[:after])


def info(clients: int, seed: int) -> dict[str, Any]:
    return {
        "split": {
            "hash": f"split{seed}",
            "sizes": [20] * clients,
            "effective_classes": [1.5] * clients,
        },
        "classes": {
            "number": 10,
            "names": None,
            "clients": None,
            "counts": [f"{c % 10}:20" for c in range(clients)][:200],
        },
        "model": {"name": "cnn", "parameters": 1, "fingerprint": "f"},
        "clients_at_once": 1,
        "own_tests": False,
    }


def line(round: int, speed: float, seed: int, clients: int, tested: bool) -> dict[str, Any]:
    """One round; seeds are a point of accuracy apart."""
    accuracy = 0.9 * (1 - 0.8 ** (speed * round)) + 0.01 * seed
    each = [None if c == 1 else min(1.0, accuracy * (0.5 + c / clients)) for c in range(clients)]
    return {
        "round": round,
        "accuracy": accuracy if tested else None,
        "accuracy_worst": accuracy / 2 if tested else None,
        "accuracy_clients": each if tested else None,
        "loss": 1 / round,
        "bytes_up": 1_000_000,
        "bytes_down": 2_000_000,
        "seconds_train": 0.5 + 0.1 * seed,
        "seconds_evaluate": 0.1,
        "clients": list(range(clients)),
    }
