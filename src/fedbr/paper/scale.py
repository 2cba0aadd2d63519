"""The recipes of a table: as in the paper, or at a size for two cores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from .. import data
from ..data import official
from ..methods import METHODS
from ..recipe import load as config
from ..recipe.schema import Recipe
from ..report.tables import model_words, number
from ..run.folder import differences
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
    found = [int(s) if s.strip().isdecimal() else -1 for s in text.split(",")]
    if min(found) < 0 or len(set(found)) < len(found):
        raise InputError(f"--seeds {text!r}: different whole numbers, such as 0,1,2")
    return found


def recipes(
    table: PaperTable,
    scale: Scale,
    seeds: Sequence[int] | None = None,
    overrides: Sequence[str] = (),
) -> list[Scaled]:
    """Make the recipe of every part."""
    settings = read("settings")
    seeds = seeds or default_seeds(table, scale)
    _refuse_rows(table, overrides)
    return [
        _scaled(table, part, i, settings, scale, seeds, overrides)
        for i, part in enumerate(table.parts)
    ]


def _refuse_rows(table: PaperTable, overrides: Sequence[str]) -> None:
    """Refuse to change what the rows of a table differ in: their labels would no longer be true."""
    own = {
        f"{m['name']}.{key}"
        for row in table.rows
        for m in _methods(row.methods, {})
        for key in m
        if key != "name"
    }
    for override in overrides:
        if (key := override.partition("=")[0].strip()) in own:
            raise InputError(
                f"--set {override}: the rows of {table.name} say {key} themselves; change anything else"
            )


def default_seeds(table: PaperTable, scale: Scale) -> Sequence[int]:
    """Take three seeds, or two where three would take too long."""
    return SEEDS[:2] if scale == "cpu" and len(table.parts) * len(table.rows) > FEW else SEEDS


def cpu_rounds(table: PaperTable) -> list[int]:
    """Return the rounds of every part at the size for two cores."""
    settings = read("settings")
    found = []
    for part in table.parts:
        values = config.override(
            {**settings[part.setting]["cpu"], "compare": [{"label": "FedAvg"}]}, part.cpu
        )
        found.append(values.train.rounds)
    return found


def _scaled(
    table: PaperTable,
    part: Part,
    index: int,
    settings: Mapping[str, Any],
    scale: Scale,
    seeds: Sequence[int],
    overrides: Sequence[str],
) -> Scaled:
    setting = settings[part.setting]
    found, why = (
        ("paper", "") if scale == "paper" else ("cpu", _missing(setting["cpu"]["data"], overrides))
    )
    size = "digits" if why else found
    tuned = settings["tuned-on-digits"] if scale == "cpu" else {}

    def recipe(size: str, chosen: Sequence[str], found: Mapping[str, Mapping[str, Any]]) -> Recipe:
        values = {"name": f"{table.name}-{part.slug}", **setting[size]}
        defaults = {
            name: {**found.get(name, {}), **setting["methods"].get(name, {})} for name in METHODS
        }
        values["compare"] = [
            {"label": row.label, "methods": _methods([*part.first, *row.methods], defaults)}
            for row in table.rows
            if not row.paper or row.paper[index]
        ]
        values["metrics"] = values.get("metrics", {}) or {"targets": list(part.targets) or [0.8]}
        values["metrics"] = values["metrics"] | {"target": values["metrics"]["targets"][0]}
        values["train"] = values["train"] | {"seeds": list(seeds)}
        if "local_top5" in part.columns:
            values["metrics"]["bias_every"] = 1
        _mark(values["compare"], {*found}, {m["name"] for m in _methods(part.first, {})})
        return config.override(values, chosen)

    ours = recipe(size, [*part.set, *(part.cpu if scale == "cpu" else ()), *overrides], tuned)
    theirs = recipe("paper", part.set, {})
    return Scaled(part, ours, [*_shortfall(ours.data), *_changes(theirs, ours)], why)


def _mark(variants: Sequence[dict[str, Any]], tuned: set[str], common: set[str]) -> None:
    """Where the parameters of some methods were searched for, mark whose were and whose not, but
    for what all have.
    """
    having = [
        {m["name"] for m in variant["methods"] if METHODS[m["name"]].model_fields} - common
        for variant in variants
    ]
    if any(names & tuned for names in having):
        for variant, names in zip(variants, having, strict=True):
            variant |= {"tuned": names <= tuned} if names else {}


def _missing(options: Mapping[str, Any], overrides: Sequence[str]) -> str:
    """Say in which way the files of a data set are not there; nothing if they are. Refuse files
    that are no use.
    """
    if any(o.startswith("data.path=") for o in overrides):
        return ""  # whoever names a place wants those files, or to hear that they are not there
    try:
        data.DATASETS[options["name"]].load(data.DataOptions(**options))
    except NoFiles as error:
        return str(error)
    return ""


def _shortfall(options: data.DataOptions) -> list[str]:
    """Say that the files are not all that is published."""
    name = data.DATASETS[options.name].files
    if not name:
        return []
    try:
        found = official.shortfall(name, options.path, data.DATASETS[options.name].load(options))
    except InputError:  # which is told when they are to be trained on
        return []
    return [f"files have {found}"] if found else []


def _methods(
    listed: Sequence[Any], defaults: Mapping[str, Mapping[str, Any]]
) -> list[dict[str, Any]]:
    tables = [{"name": m} if isinstance(m, str) else dict(m) for m in listed]
    return [{**defaults.get(m["name"], {}), **m} for m in tables]


def _changes(theirs: Recipe, ours: Recipe) -> list[str]:
    """List what was scaled, in the words of a recipe."""
    left, right = (
        r.model_dump(include={"data", "model", "train"}, exclude_none=True) for r in (theirs, ours)
    )
    quiet = ("train.seeds", "data.path")
    found = [
        f"{key} {_word(b)} (paper {_word(a)})"
        for key, a, b in differences(left, right)
        if key not in quiet
    ]
    for one, other in zip(theirs.compare, ours.compare, strict=True):
        for a, b in zip(
            one.methods, other.methods, strict=True
        ):  # of which the paper does not say what it used
            found += [
                f"{a['name']}.{key} {_word(y)} (default {_word(x)})"
                for key, x, y in differences(a, b)
            ]
    return list(dict.fromkeys(found))


def _word(value: Any) -> str:
    return "-" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
