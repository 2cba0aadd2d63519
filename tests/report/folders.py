"""Result folders without training: what fedbr run leaves, from a formula."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedbr.recipe import load as config
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
    compare: list[dict[str, Any]] = [
        {"label": label, "methods": [LETTERS[(i - 1) % len(LETTERS)]] if i else []}
        for i, label in enumerate(labels)
    ]
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
    folder = ResultFolder(path, recipe)
    path.mkdir(parents=True)
    (path / "recipe.toml").write_text(f"{MARK}\n{recipe.to_toml()}")
    (path / "environment.json").write_text('{"python": "3.11"}\n')
    for i, variant in enumerate(recipe.compare):
        for seed in seeds:
            run = folder.run(variant, seed)
            run.note(**info(clients, seed))
            (run.path / "model.safetensors").write_bytes(b"")
            lines = [
                line(r, (i + 1) / len(labels), seed, clients, r == rounds or r % every == 0)
                for r in rng(rounds)
            ]
            (run.path / "metrics.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    return folder


def rng(rounds: int) -> range:
    return range(1, rounds + 1)


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
