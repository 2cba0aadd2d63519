"""What to diagnose, from the command line: a result folder, or the paper's toy example."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..core.wire import State, unpack
from ..recipe import load as config
from ..recipe.overrides import read_variants
from ..recipe.schema import Recipe, TrainConfig, Variant
from ..report.comparison import read
from ..report.local_models import Rounds, logged
from ..run.folder import ResultFolder, RunFolder
from ..run.setup import build_setup, federation, useful_workers
from ..util.errors import InputError, unknown
from .case import Case
from .toy import two_halves

# Means of two samples, and many of them: those of ten are too far from any sample to change what is
# predicted here.
TOY = {"lam": 1.0, "mu": 0.5, "mean_of": 2, "size": 256, "per_step": 32}
TRAIN = "local_steps, batch_size, lr, momentum, weight_decay, aggregate, dtype, device, amp"  # what a round depends on
DEALT = (
    "clients",
    "alpha",
    "shards_per_client",
)  # of data, whose samples the toy example deals anew
HINTS = {"seeds": "use --seed", "clients_per_round": "use --clients"}


@dataclass(frozen=True)
class Found:
    """A case, how many processes it is worth, and what was logged of the runs."""

    case: Case
    workers: int = 1
    rounds: Rounds = field(default_factory=dict)


def from_toy(share: float, overrides: Sequence[str], variants: Sequence[str], seed: int) -> Found:
    """Make two clients with half of the classes each, of digits or of what the overrides say."""
    _refuse(overrides, toy=True)
    values = config.load("digits").model_dump(exclude_none=True)
    values["data"]["clients"] = values["train"]["clients_per_round"] = 2
    recipe = config.override(values | {"compare": _compared(variants, TOY)}, overrides)
    clients = two_halves(federation(recipe, seed), share, seed)
    model = build_setup(recipe, Variant(label="FedAvg"), clients, seed).model
    source = f"{recipe.data.name}, two clients with half of the classes each"
    about = {
        "source": source + (f" and {share:.0%} of the other half's" if share else ""),
        "share": share,
    }
    return Found(Case(clients, model, _built(recipe), recipe.train, seed, about=about))


def from_folder(
    path: Path,
    overrides: Sequence[str],
    variants: Sequence[str],
    label: str | None,
    seed: int | None,
) -> Found:
    """Take the global model of a run as far as it has come."""
    folder = ResultFolder.read(path)
    variant, seed, done, weights = _checkpoint(folder, label, seed)
    recipe = _changed(folder.recipe.of(variant), overrides, variants)
    clients = federation(recipe, seed)
    run = folder.run(variant, seed)
    if run.info.get("content", clients.content) != clients.content:
        raise InputError(
            f"{path}: was trained on other data than there are now; put the files back as they were"
        )
    this = build_setup(folder.recipe.of(variant), variant, clients, seed)
    model = this.model
    model.extras.clear()
    planned = folder.recipe.train.rounds
    about = {
        "source": f"Global model of {variant.label}, seed {seed}, after round {done} of {planned}",
        "run": variant.label,
        "rounds_done": done,
        "rounds_planned": planned,
    }
    case = Case(clients, model, _built(recipe), recipe.train, seed, weights, done + 1, about)
    return Found(case, useful_workers(this, recipe.train), logged(*read([path])))


def _checkpoint(
    folder: ResultFolder, label: str | None, seed: int | None
) -> tuple[Variant, int, int, State]:
    """Find the run to start from: the one that is asked for, or FedAvg, or the first that has a
    global model.
    """
    variants = {variant.label: variant for variant in folder.recipe.compare}
    if label is not None and label not in variants:
        raise unknown("--run", label, variants)
    if seed is not None and seed not in folder.recipe.train.seeds:
        raise InputError(
            f"--seed {seed}: the folder has {', '.join(map(str, folder.recipe.train.seeds))}"
        )
    wanted = sorted(folder.recipe.compare, key=lambda variant: bool(variant.methods))
    wanted = [s for s in wanted if label in (None, s.label) and not any(m.alone for m in s.build())]
    if not wanted:
        raise InputError(
            f"{folder.path}: its clients train alone; there is no global model to look at"
        )
    for variant in wanted:
        for each in folder.recipe.train.seeds if seed is None else [seed]:
            if (found := _weights(folder.run(variant, each))) is not None:
                return variant, each, *found
    asked = "".join([f" --run {label}" if label else "", "" if seed is None else f" --seed {seed}"])
    runs = {
        f"{s.label} (seed {i})": folder.run(s, i)
        for s in folder.recipe.compare
        for i in folder.recipe.train.seeds
    }
    begun = ", ".join(name for name, run in runs.items() if run.lines())
    there = f"; there are rounds of {begun}" if begun else ""
    raise InputError(f"{folder.path}{asked}: no round is finished yet{there}")


def _weights(run: RunFolder) -> tuple[int, State] | None:
    file = run.path / "checkpoint.safetensors"
    if not file.exists():
        return None
    header, payloads = unpack(file.read_bytes())
    # Modules that methods add are fresh for every side, as in the first round.
    return int(header["round"]), {
        k: v for k, v in payloads["server"]["model"].items() if not k.startswith("extras.")
    }


def _changed(recipe: Recipe, overrides: Sequence[str], variants: Sequence[str]) -> Recipe:
    """Replace what the recipe compares, and apply the overrides; data and model stay those of the
    run.
    """
    _refuse(overrides, toy=False)
    named = [m for variant in recipe.compare for m in variant.methods if m["name"] == "fedbr"]
    options = {k: v for k, v in (named or [{}])[0].items() if k not in ("name", "components")}
    values = recipe.model_dump(exclude_none=True) | {"compare": _compared(variants, options)}
    return config.override(values, overrides)


def _refuse(overrides: Sequence[str], toy: bool) -> None:
    """Refuse overrides that would change nothing, or that do not belong here."""
    for text in overrides:
        section, _, key = text.partition("=")[0].strip().partition(".")
        hint = HINTS.get(key, f"change a method or train ({TRAIN})")
        if section in ("data", "model") and not toy:
            raise InputError(f"--set {text}: {section} belongs to the run; {hint}, or use --toy")
        idle = (
            section == "train" and key in TrainConfig.model_fields and key not in TRAIN.split(", ")
        )
        if (
            idle
            or section in ("name", "metrics", "compare")
            or (section == "data" and key in DEALT)
        ):
            raise InputError(f"--set {text}: has no effect on a diagnosis; {hint}")


def _compared(variants: Sequence[str], fedbr: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the variants that are asked for, or FedAvg, either component, and both."""
    if variants:
        named = read_variants(variants)
        filled = [
            [{"name": m, **fedbr} if m == "fedbr" else m for m in variant["methods"]]
            for variant in named
        ]
        return [
            variant | {"methods": methods} for variant, methods in zip(named, filled, strict=True)
        ]
    parts: dict[str, int | str] = {"Component 1": 1, "Component 2": 2, "FedBR": "both"}
    sides = [
        {"label": k, "methods": [{"name": "fedbr", **fedbr, "components": v}]}
        for k, v in parts.items()
    ]
    return [{"label": "FedAvg", "methods": []}, *sides]


def _built(recipe: Recipe) -> dict[str, Any]:
    return {variant.label: variant.build() for variant in recipe.compare}
