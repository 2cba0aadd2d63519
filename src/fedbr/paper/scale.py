"""The recipes of a table: as in the paper, or at a size for two cores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from .. import data
from ..methods import METHODS
from ..recipe.load import override
from ..recipe.schema import Recipe
from ..report.words import model_words, number
from ..run.same_recipe import differences
from ..util.errors import InputError, NoFiles
from .table import PaperTable, Part, read

Scale = Literal["cpu", "paper"]
SEEDS = (0, 1, 2)
FEW = 20  # runs of one seed up to which three seeds end in time on two cores


@dataclass(frozen=True)
class Scaled:
    """A part of a table as a recipe, and what of it is not as in the paper."""

    part: Part
    recipe: Recipe
    changes: Sequence[str]
    why: str = ""  # for what reason it is on other data

    @property
    def here(self) -> str:
        """What was trained on what."""
        recipe = self.recipe
        counts = [number(recipe.train.rounds, "round"), number(len(recipe.train.seeds), "seed")]
        return ", ".join(
            [recipe.data.name, model_words(recipe.model.model_dump(exclude_none=True)), *counts]
        )

    @property
    def heading(self) -> str:
        """The paper's name of the part, and what stands for it here if it is scaled."""
        return f"{self.part.name}, here {self.here}" if self.changes else self.part.name

    @property
    def untuned(self) -> set[str]:
        """Rows whose parameters nobody searched for in this setting."""
        return {variant.label for variant in self.recipe.compare if variant.tuned is False}


def parse_seeds(text: str | None) -> list[int] | None:
    """Read seeds such as 0,1,2."""
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts) or len(set(map(int, parts))) < len(parts):
        raise InputError(f"--seeds {text!r}: expected different whole numbers, such as 0,1,2")
    return [int(part) for part in parts]


def recipes(
    table: PaperTable,
    scale: Scale,
    seeds: Sequence[int] | None = None,
    overrides: Sequence[str] = (),
) -> list[Scaled]:
    """Make the recipe of every part."""
    seeds = seeds or default_seeds(table, scale)
    _refuse_rows(table, overrides)
    return [_scale(table, i, scale, seeds, overrides) for i in range(len(table.parts))]


def _refuse_rows(table: PaperTable, overrides: Sequence[str]) -> None:
    """Refuse to change what the rows of a table differ in: their labels would no longer be true."""
    own = set()
    for row in table.rows:
        for method in _methods(row.methods, {}):
            own |= {f"{method['name']}.{key}" for key in method if key != "name"}
    for text in overrides:
        key = text.partition("=")[0].strip()
        if key in own:
            raise InputError(
                f"--set {text}: the rows of {table.name} say {key} themselves; change anything else"
            )


def default_seeds(table: PaperTable, scale: Scale) -> Sequence[int]:
    """Take three seeds, or two where three would take too long."""
    return SEEDS[:2] if scale == "cpu" and len(table.parts) * len(table.rows) > FEW else SEEDS


def cpu_rounds(table: PaperTable) -> list[int]:
    """Return the rounds of every part at the size for two cores."""
    settings = read("settings")
    rounds = []
    for part in table.parts:
        values = {**settings[part.setting]["cpu"], "compare": [{"label": "FedAvg"}]}
        rounds.append(override(values, part.cpu).train.rounds)
    return rounds


def _scale(
    table: PaperTable, index: int, scale: Scale, seeds: Sequence[int], overrides: Sequence[str]
) -> Scaled:
    """Make the recipe of one part, and say what of it is not as in the paper."""
    part, settings = table.parts[index], read("settings")
    setting = settings[part.setting]
    paper = _recipe(table, index, setting["paper"], setting["methods"], {}, seeds)
    theirs = override(paper, part.set)
    if scale == "paper":
        ours, why = override(paper, [*part.set, *overrides]), ""
    else:
        why = _missing(setting["cpu"]["data"], overrides)
        size = setting["digits" if why else "cpu"]
        tuned = settings["tuned-on-digits"]
        values = _recipe(table, index, size, setting["methods"], tuned, seeds)
        ours = override(values, [*part.set, *part.cpu, *overrides])
    return Scaled(part, ours, [*_shortfall(ours.data), *_changes(theirs, ours)], why)


def _recipe(
    table: PaperTable,
    index: int,
    size: Mapping[str, Any],
    methods: Mapping[str, Mapping[str, Any]],
    tuned: Mapping[str, Mapping[str, Any]],
    seeds: Sequence[int],
) -> dict[str, Any]:
    """Make the values of a part's recipe.

    size: data, model and training at one size. methods: parameters of methods in this setting.
    tuned: those that were searched for.
    """
    part = table.parts[index]
    defaults = {name: {**tuned.get(name, {}), **methods.get(name, {})} for name in METHODS}
    variants = []
    for row in table.rows:
        if not row.paper or row.paper[index]:
            listed = _methods([*part.first, *row.methods], defaults)
            variants.append({"label": row.label, "methods": listed})
    common = {method["name"] for method in _methods(part.first, {})}
    _mark_tuned(variants, set(tuned), common)
    metrics = dict(size.get("metrics", {})) or {"targets": list(part.targets) or [0.8]}
    metrics["target"] = metrics["targets"][0]
    if "local_top5" in part.columns:
        metrics["bias_every"] = 1
    return {
        "name": f"{table.name}-{part.slug}",
        **size,
        "compare": variants,
        "metrics": metrics,
        "train": {**size["train"], "seeds": list(seeds)},
    }


def _mark_tuned(variants: Sequence[dict[str, Any]], tuned: set[str], common: set[str]) -> None:
    """Mark which variants' parameters were searched for, where some were and some were not.

    common: methods that all variants have, which tell none apart.
    """
    own = []
    for variant in variants:
        names = {m["name"] for m in variant["methods"] if METHODS[m["name"]].model_fields}
        own.append(names - common)
    if not any(names & tuned for names in own):
        return
    for variant, names in zip(variants, own, strict=True):
        if names:
            variant["tuned"] = names <= tuned


def _missing(options: Mapping[str, Any], overrides: Sequence[str]) -> str:
    """Say in which way the files of a data set are not there; nothing if they are.

    Raises InputError for files that are damaged.
    """
    if any(text.startswith("data.path=") for text in overrides):
        return ""  # who names a place wants those files, or to read that they are not there
    try:
        data.DATASETS[options["name"]].load(data.DataOptions(**options))
    except NoFiles as error:
        return str(error)
    return ""


def _shortfall(options: data.DataOptions) -> list[str]:
    """Say that the files are not all that is published."""
    dataset = data.DATASETS[options.name]
    if dataset.published is None:
        return []
    try:
        missing = dataset.published.shortfall(options.path, dataset.load(options))
    except InputError:  # which is said when they are to be trained on
        return []
    return [f"files have {missing}"] if missing else []


def _methods(
    listed: Sequence[Any], defaults: Mapping[str, Mapping[str, Any]]
) -> list[dict[str, Any]]:
    tables = [{"name": m} if isinstance(m, str) else dict(m) for m in listed]
    return [{**defaults.get(m["name"], {}), **m} for m in tables]


def _changes(theirs: Recipe, ours: Recipe) -> list[str]:
    """List what was scaled, in the words of a recipe."""
    sections = {"data", "model", "train"}
    left, right = (r.model_dump(include=sections, exclude_none=True) for r in (theirs, ours))
    changes = []
    for key, paper, here in differences(left, right):
        if key not in ("train.seeds", "data.path"):
            changes.append(f"{key} {_plain(here)} (paper {_plain(paper)})")
    for their_variant, our_variant in zip(theirs.compare, ours.compare, strict=True):
        pairs = zip(their_variant.methods, our_variant.methods, strict=True)
        for method, scaled in pairs:  # the paper does not say what it used
            for key, default, here in differences(method, scaled):
                name = f"{method['name']}.{key}"
                changes.append(f"{name} {_plain(here)} (default {_plain(default)})")
    return list(dict.fromkeys(changes))


def _plain(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:g}" if isinstance(value, float) else str(value)
