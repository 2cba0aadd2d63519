"""What to diagnose, from the command line: a result folder, or the paper's toy example."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.method import Method
from ..core.wire import State, unpack
from ..recipe import load as config
from ..recipe.overrides import read_variants
from ..recipe.schema import Recipe, TrainConfig, Variant
from ..report.local_models import logged
from ..run.engines import useful_workers
from ..run.folder import ResultFolder
from ..run.plan import clients_of
from ..run.run_folder import RunFolder
from ..run.setup import build_setup
from ..util.errors import InputError, unknown
from ..util.files import reading
from .case import Case, Origin
from .toy import two_halves

# Means of two samples, and many of them: those of ten are too far from any sample to change what is
# predicted here.
TOY = {"lam": 1.0, "mu": 0.5, "mean_of": 2, "size": 256, "per_step": 32}
TRAIN = (  # what a round depends on
    "local_steps", "batch_size", "lr", "momentum", "weight_decay", "aggregate", "dtype", "device",
    "amp",
)  # fmt: skip
DEALT = ("clients", "alpha", "shards_per_client")  # of data, which the toy example deals anew
HINTS = {"seeds": "use --seed", "clients_per_round": "use --clients"}


@dataclass(frozen=True)
class Start:
    """The run whose global model is diagnosed, as far as it has come."""

    variant: Variant
    seed: int
    done: int  # rounds
    weights: State


def from_toy(share: float, overrides: Sequence[str], variants: Sequence[str], seed: int) -> Case:
    """Make two clients with half of the classes each, of digits or of what the overrides say.

    share: of each class, what the other client has. variants: as of ``--methods``.
    """
    _refuse(overrides, toy=True)
    values = config.load("digits").model_dump(exclude_none=True)
    values["data"]["clients"] = values["train"]["clients_per_round"] = 2
    recipe = config.override(values | {"compare": _compared(variants, TOY)}, overrides)
    clients = two_halves(clients_of(recipe.data, seed), share, seed)
    setup = build_setup(recipe, Variant(label="FedAvg"), clients, seed)
    source = f"{recipe.data.name}, two clients with half of the classes each"
    if share:
        source += f" and {share:.0%} of the other half's"
    origin = Origin(source, share=share)
    return Case(clients, setup.model, _methods(recipe), recipe.train, seed, origin=origin)


def from_folder(
    path: Path,
    overrides: Sequence[str],
    variants: Sequence[str],
    label: str | None,
    seed: int | None,
) -> Case:
    """Take the global model of a run as far as it has come.

    label, seed: which run; None: FedAvg, or the first that has a global model.
    """
    folder = ResultFolder.read(path)
    start = _start(folder, label, seed)
    variant, seed = start.variant, start.seed
    recipe = _changed(folder.recipe.of(variant), overrides, variants)
    clients = clients_of(recipe.data, seed)
    if folder.run(variant, seed).record.content not in (None, clients.content):
        raise InputError(
            f"{path}: was trained on other data than there are now; put the files back as they were"
        )
    setup = build_setup(folder.recipe.of(variant), variant, clients, seed)
    setup.model.extras.clear()
    planned = folder.recipe.train.rounds
    source = f"Global model of {variant.label}, seed {seed}, after round {start.done} of {planned}"
    return Case(
        clients,
        setup.model,
        _methods(recipe),
        recipe.train,
        seed,
        weights=start.weights,
        round=start.done + 1,
        origin=Origin(source, None, variant.label, start.done, planned),
        workers=useful_workers(setup, recipe.train),
        logged=logged(folder.results()),
    )


def _start(folder: ResultFolder, label: str | None, seed: int | None) -> Start:
    """Choose the run: the one that is asked for, or FedAvg, or the first with a global model."""
    recipe = folder.recipe
    labels = [variant.label for variant in recipe.compare]
    if label is not None and label not in labels:
        raise unknown("--run", label, labels)
    if seed is not None and seed not in recipe.train.seeds:
        raise InputError(f"--seed {seed}: the folder has {', '.join(map(str, recipe.train.seeds))}")
    candidates = []
    for variant in sorted(recipe.compare, key=lambda variant: bool(variant.methods)):
        alone = any(method.alone for method in variant.build())
        if label in (None, variant.label) and not alone:
            candidates.append(variant)
    if not candidates:
        raise InputError(
            f"{folder.path}: its clients train alone; there is no global model to look at"
        )
    for variant in candidates:
        for each in recipe.train.seeds if seed is None else [seed]:
            if (start := _read_start(folder.run(variant, each), variant, each)) is not None:
                return start
    wanted = "" if label is None else f" --run {label}"
    wanted += "" if seed is None else f" --seed {seed}"
    raise InputError(f"{folder.path}{wanted}: no round is finished yet{_begun(folder)}")


def _begun(folder: ResultFolder) -> str:
    """Say of which runs there are rounds."""
    names = []
    for variant in folder.recipe.compare:
        for seed in folder.recipe.train.seeds:
            if folder.run(variant, seed).rounds:
                names.append(f"{variant.label} (seed {seed})")
    return f"; there are rounds of {', '.join(names)}" if names else ""


def _read_start(run: RunFolder, variant: Variant, seed: int) -> Start | None:
    """Read the global model of a checkpoint; None if there is none yet."""
    file = run.path / "checkpoint.safetensors"
    if not file.exists():
        return None
    with reading(file):
        header, payloads = unpack(file.read_bytes())
        model = payloads["server"]["model"]
    # Modules that methods add are fresh for every variant, as in the first round.
    weights = {key: value for key, value in model.items() if not key.startswith("extras.")}
    return Start(variant, seed, int(header["round"]), weights)


def _changed(recipe: Recipe, overrides: Sequence[str], variants: Sequence[str]) -> Recipe:
    """Replace what the recipe compares, and apply the overrides.

    Data and model stay those of the run.
    """
    _refuse(overrides, toy=False)
    options: dict[str, Any] = {}
    for variant in reversed(recipe.compare):
        for method in reversed(variant.methods):
            if method["name"] == "fedbr":  # the first one's settings count
                options = dict(method)
    for key in ("name", "components"):
        options.pop(key, None)
    values = recipe.model_dump(exclude_none=True) | {"compare": _compared(variants, options)}
    return config.override(values, overrides)


def _refuse(overrides: Sequence[str], toy: bool) -> None:
    """Refuse overrides that would change nothing, or that do not belong here."""
    for text in overrides:
        section, _, key = text.partition("=")[0].strip().partition(".")
        hint = HINTS.get(key, f"change a method or train ({', '.join(TRAIN)})")
        if section in ("data", "model") and not toy:
            raise InputError(f"--set {text}: {section} belongs to the run; {hint}, or use --toy")
        idle = section in ("name", "metrics", "compare")
        if section == "train":
            idle = key in TrainConfig.model_fields and key not in TRAIN
        if section == "data":
            idle = key in DEALT
        if idle:
            raise InputError(f"--set {text}: has no effect on a diagnosis; {hint}")


def _compared(variants: Sequence[str], fedbr: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the variants that are asked for, or FedAvg, either component, and both.

    fedbr: its settings, wherever it stands without any.
    """
    if not variants:
        compared: list[dict[str, Any]] = [{"label": "FedAvg", "methods": []}]
        for label, components in (("Component 1", 1), ("Component 2", 2), ("FedBR", "both")):
            method = {"name": "fedbr", **fedbr, "components": components}
            compared.append({"label": label, "methods": [method]})
        return compared
    compared = []
    for variant in read_variants(variants):
        methods = []
        for method in variant["methods"]:
            methods.append({"name": method, **fedbr} if method == "fedbr" else method)
        compared.append({**variant, "methods": methods})
    return compared


def _methods(recipe: Recipe) -> dict[str, list[Method]]:
    return {variant.label: variant.build() for variant in recipe.compare}
