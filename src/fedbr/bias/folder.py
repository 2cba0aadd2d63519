"""Make the case that ``fedbr diagnose`` examines: of a result folder, or the toy example."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..core.method import Method
from ..core.wire import State, unpack
from ..recipe import load as config
from ..recipe.overrides import read_variants
from ..recipe.schema import Recipe, TrainConfig, Variant
from ..report.local_models import rounds_with_bias
from ..run.engines import useful_workers
from ..run.folder import ResultFolder
from ..run.plan import clients_of
from ..run.run_folder import RunFolder
from ..run.setup import build_setup
from ..util.errors import InputError, unknown
from ..util.files import reading
from ..util.tables import Options, TomlTable
from .case import Case, Origin
from .toy import two_halves

# Means of two samples, and many of them: those of ten are too far from any sample to change what is
# predicted here.
TOY = {"lam": 1.0, "mu": 0.5, "mean_of": 2, "size": 256, "per_step": 32}
ROUND_SETTINGS = (  # keys of [train] on which a single round depends
    "local_steps", "batch_size", "lr", "momentum", "weight_decay", "aggregate", "dtype", "device",
    "amp",
)  # fmt: skip
# Keys of [data] that have no effect on the toy example, which deals the samples anew.
DEAL_SETTINGS = ("clients", "alpha", "shards_per_client")
HINTS = {"seeds": "use --seed", "clients_per_round": "use --clients"}


@dataclass(frozen=True)
class Start:
    """The run whose global model is diagnosed, as far as it has come."""

    variant: Variant
    seed: int
    rounds: int  # that are done
    weights: State


def from_toy(share: float, overrides: Sequence[str], variants: Sequence[str], seed: int) -> Case:
    """Make two clients with half of the classes each, of digits or of what the overrides say.

    Args:
        share: of each class, what the other client has.
        overrides: values of ``--set``.
        variants: values of ``--methods``; none: FedAvg, either component of FedBR, and both.
        seed: random seed.

    Raises:
        InputError: an override or a variant is not allowed.
    """
    _refuse(overrides, toy=True)
    values = config.load("digits").model_dump(exclude_none=True)
    values["data"]["clients"] = values["train"]["clients_per_round"] = 2
    values["compare"] = _choose_variants(variants, TOY)
    recipe = config.override(values, overrides)
    clients = two_halves(clients_of(recipe.data, seed), share, seed)
    setup = build_setup(recipe, Variant(label="FedAvg"), clients, seed)
    source = f"{recipe.data.name}, two clients with half of the classes each"
    if share:
        source += f" and {share:.0%} of the other half's"
    origin = Origin(source, share=share)
    return Case(clients, setup.model, _build_methods(recipe), recipe.train, seed, origin=origin)


def from_folder(
    path: Path,
    overrides: Sequence[str],
    variants: Sequence[str],
    label: str | None,
    seed: int | None,
) -> Case:
    """Take the global model of a run as far as it has come.

    Args:
        path: a result folder.
        overrides: values of ``--set``.
        variants: values of ``--methods``; none: FedAvg, either component of FedBR, and both.
        label: of the run; None: FedAvg, or the first that has a global model.
        seed: of the run; None: the first.

    Raises:
        InputError: there is no such run, or an override or a variant is not allowed.
    """
    folder = ResultFolder.read(path)
    start = _choose_start(folder, label, seed)
    variant, seed = start.variant, start.seed
    recipe = _change_recipe(folder.recipe.of(variant), overrides, variants)
    clients = clients_of(recipe.data, seed)
    if folder.run(variant, seed).record.content not in (None, clients.content):
        raise InputError(
            f"{path}: was trained on other data than there are now; put the files back as they were"
        )
    setup = build_setup(folder.recipe.of(variant), variant, clients, seed)
    setup.model.extras.clear()
    planned = folder.recipe.train.rounds
    source = (
        f"Global model of {variant.label}, seed {seed}, after round {start.rounds} of {planned}"
    )
    return Case(
        clients,
        setup.model,
        _build_methods(recipe),
        recipe.train,
        seed,
        weights=start.weights,
        round=start.rounds + 1,
        origin=Origin(source, None, variant.label, start.rounds, planned),
        workers=useful_workers(setup, recipe.train),
        logged=rounds_with_bias(folder.results()),
    )


def _choose_start(folder: ResultFolder, label: str | None, seed: int | None) -> Start:
    """Choose the run: the one that is asked for, or FedAvg, or the first with a global model."""
    recipe = folder.recipe
    labels = [variant.label for variant in recipe.compare]
    if label is not None and label not in labels:
        raise unknown("--run", label, labels)
    if seed is not None and seed not in recipe.train.seeds:
        seeds = ", ".join(map(str, recipe.train.seeds))
        raise InputError(f"--seed {seed}: the folder has no such seed; allowed: {seeds}")
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
            start = _read_start(folder.run(variant, each), variant, each)
            if start is not None:
                return start
    options = "" if label is None else f" --run {label}"
    if seed is not None:
        options += f" --seed {seed}"
    raise InputError(f"{folder.path}{options}: no round is finished yet{_hint_at_runs(folder)}")


def _hint_at_runs(folder: ResultFolder) -> str:
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


def _change_recipe(recipe: Recipe, overrides: Sequence[str], variants: Sequence[str]) -> Recipe:
    """Replace what the recipe compares, and apply the overrides; data and model stay."""
    _refuse(overrides, toy=False)
    values = recipe.model_dump(exclude_none=True)
    values["compare"] = _choose_variants(variants, _find_fedbr_options(recipe))
    return config.override(values, overrides)


def _find_fedbr_options(recipe: Recipe) -> Options:
    """Return the settings of the first FedBR in a recipe, but for its components."""
    for variant in recipe.compare:
        for method in variant.methods:
            if method["name"] == "fedbr":
                skipped = ("name", "components")
                return {key: value for key, value in method.items() if key not in skipped}
    return {}


def _refuse(overrides: Sequence[str], toy: bool) -> None:
    """Refuse overrides that would change nothing, or that do not belong here."""
    for text in overrides:
        section, _, key = text.partition("=")[0].strip().partition(".")
        hint = HINTS.get(key, f"change a method or train ({', '.join(ROUND_SETTINGS)})")
        if section in ("data", "model") and not toy:
            raise InputError(f"--set {text}: {section} belongs to the run; {hint}, or use --toy")
        has_no_effect = section in ("name", "metrics", "compare")
        if section == "train":
            has_no_effect = key in TrainConfig.model_fields and key not in ROUND_SETTINGS
        if section == "data":
            has_no_effect = key in DEAL_SETTINGS
        if has_no_effect:
            raise InputError(f"--set {text}: has no effect on a diagnosis; {hint}")


def _choose_variants(variants: Sequence[str], fedbr: Options) -> list[TomlTable]:
    """Return the variants that are asked for, or FedAvg, either component, and both.

    Args:
        variants: values of ``--methods``.
        fedbr: the settings of FedBR, wherever it stands without any.
    """
    chosen: list[TomlTable] = []
    if not variants:
        chosen.append({"label": "FedAvg", "methods": []})
        for label, components in (("Component 1", 1), ("Component 2", 2), ("FedBR", "both")):
            method = {"name": "fedbr", **fedbr, "components": components}
            chosen.append({"label": label, "methods": [method]})
        return chosen
    for variant in read_variants(variants):
        methods = []
        for method in variant["methods"]:
            methods.append({"name": method, **fedbr} if method == "fedbr" else method)
        chosen.append({**variant, "methods": methods})
    return chosen


def _build_methods(recipe: Recipe) -> dict[str, list[Method]]:
    return {variant.label: variant.build() for variant in recipe.compare}
