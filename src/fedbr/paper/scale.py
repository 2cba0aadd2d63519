"""The recipes of a table: as in the paper, or at a size for two cores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from .. import data
from ..methods import METHODS
from ..recipe.load import override
from ..recipe.schema import Recipe
from ..report.summary import describe_model
from ..report.words import pluralize
from ..run.same_recipe import find_differences
from ..util.errors import InputError, NoFiles
from .table import SETTINGS, PaperTable, Part, TomlTable, read

Scale = Literal["cpu", "paper"]
SEEDS = (0, 1, 2)
Parameters = Mapping[str, TomlTable]  # of methods, by name
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
        model = describe_model(recipe.model.model_dump(exclude_none=True))
        rounds = pluralize(recipe.train.rounds, "round")
        seeds = pluralize(len(recipe.train.seeds), "seed")
        return f"{recipe.data.name}, {model}, {rounds}, {seeds}"

    @property
    def heading(self) -> str:
        """The paper's name of the part, and what stands for it here if it is scaled."""
        return f"{self.part.name}, here {self.here}" if self.changes else self.part.name

    @property
    def untuned(self) -> set[str]:
        """Rows whose parameters nobody searched for in this setting."""
        return {variant.label for variant in self.recipe.compare if variant.tuned is False}


def parse_seeds(text: str | None) -> list[int] | None:
    """Read seeds such as 0,1,2.

    Raises:
        InputError: it is something else.

    >>> parse_seeds("0, 2")
    [0, 2]
    """
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    seeds = [int(part) for part in parts if part.isdecimal()]
    if len(set(seeds)) < len(parts):
        raise InputError(f"--seeds {text!r}: expected different whole numbers, such as 0,1,2")
    return seeds


def recipes(
    table: PaperTable,
    scale: Scale,
    seeds: Sequence[int] | None = None,
    overrides: Sequence[str] = (),
) -> list[Scaled]:
    """Make the recipe of every part.

    Args:
        table: the paper's.
        scale: cpu for two cores, or paper.
        seeds: random seeds; None: ``default_seeds``.
        overrides: settings such as train.rounds=3, for all parts.

    Raises:
        InputError: an override does not fit, or files are there but damaged.
    """
    seeds = seeds or default_seeds(table, scale)
    _refuse_rows(table, overrides)
    return [_scale(table, i, scale, seeds, overrides) for i in range(len(table.parts))]


def _refuse_rows(table: PaperTable, overrides: Sequence[str]) -> None:
    """Refuse to change what the rows of a table differ in: their labels would no longer be true."""
    keys_of_rows = set()
    for row in table.rows:
        for method in _fill_methods(row.methods, {}):
            keys_of_rows |= {f"{method['name']}.{key}" for key in method if key != "name"}
    for text in overrides:
        key = text.partition("=")[0].strip()
        if key in keys_of_rows:
            raise InputError(
                f"--set {text}: the rows of {table.name} say {key} themselves; change anything else"
            )


def default_seeds(table: PaperTable, scale: Scale) -> Sequence[int]:
    """Take three seeds, or two where three would take too long."""
    runs = len(table.parts) * len(table.rows)  # of each seed
    if scale == "cpu" and runs > FEW:
        return SEEDS[:2]
    return SEEDS


def cpu_rounds(table: PaperTable) -> list[int]:
    """Return the rounds of every part at the size for two cores."""
    settings = read(SETTINGS)
    rounds = []
    for part in table.parts:
        values = {**settings[part.setting]["cpu"], "compare": [{"label": "FedAvg"}]}
        rounds.append(override(values, part.cpu).train.rounds)
    return rounds


def _scale(
    table: PaperTable, index: int, scale: Scale, seeds: Sequence[int], overrides: Sequence[str]
) -> Scaled:
    """Make the recipe of one part, and say what of it is not as in the paper."""
    part, settings = table.parts[index], read(SETTINGS)
    setting = settings[part.setting]
    values = _make_values(table, index, setting["paper"], setting["methods"], {}, seeds)
    original = override(values, part.set)
    why = ""
    if scale == "paper":
        ours = override(values, [*part.set, *overrides])
    else:
        why = _missing_files(setting["cpu"]["data"], overrides)
        size = setting["digits" if why else "cpu"]
        tuned = settings["tuned-on-digits"]
        values = _make_values(table, index, size, setting["methods"], tuned, seeds)
        ours = override(values, [*part.set, *part.cpu, *overrides])
    changes = [*_missing_samples(ours.data), *_list_changes(original, ours)]
    return Scaled(part, ours, changes, why)


def _make_values(
    table: PaperTable,
    index: int,
    size: TomlTable,
    methods: Parameters,
    tuned: Parameters,
    seeds: Sequence[int],
) -> TomlTable:
    """Make the values of a part's recipe.

    Args:
        table: the paper's.
        index: which part of the table.
        size: data, model and training at one size.
        methods: parameters of methods in this setting.
        tuned: those that were searched for.
        seeds: random seeds.
    """
    part = table.parts[index]
    defaults = {}
    for name in METHODS:
        defaults[name] = {**tuned.get(name, {}), **methods.get(name, {})}
    variants = []
    for row in table.rows:
        if not row.paper or row.paper[index]:
            filled = _fill_methods([*part.first, *row.methods], defaults)
            variants.append({"label": row.label, "methods": filled})
    common = {method["name"] for method in _fill_methods(part.first, {})}
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


def _mark_tuned(variants: Sequence[TomlTable], tuned: set[str], common: set[str]) -> None:
    """Mark which variants' parameters were searched for, where some were and some were not.

    Args:
        variants: of the recipe, in which the mark is set.
        tuned: methods whose parameters were searched for.
        common: methods that all variants have, which tell none apart.
    """
    with_parameters = {name for name, method in METHODS.items() if method.model_fields}
    distinctive = []  # of each variant, its methods that have parameters
    for variant in variants:
        names = {method["name"] for method in variant["methods"]}
        distinctive.append((names & with_parameters) - common)
    if not any(names & tuned for names in distinctive):
        return
    for variant, names in zip(variants, distinctive, strict=True):
        if names:
            variant["tuned"] = names <= tuned


def _missing_files(options: TomlTable, overrides: Sequence[str]) -> str:
    """Say in which way the files of a data set are not there; nothing if they are.

    Raises:
        InputError: files are there, but damaged.
    """
    if any(text.startswith("data.path=") for text in overrides):
        return ""  # those are the files to use, and training says it if they are not there
    try:
        data.DATASETS[options["name"]].load(data.DataOptions(**options))
    except NoFiles as error:
        return str(error)
    return ""


def _missing_samples(options: data.DataOptions) -> list[str]:
    """Say that the files are not all that is published."""
    dataset = data.DATASETS[options.name]
    if dataset.published is None:
        return []
    try:
        missing = dataset.published.shortfall(options.path, dataset.load(options))
    except InputError:  # which is said when they are to be trained on
        return []
    return [f"files have {missing}"] if missing else []


def _fill_methods(
    methods: Sequence[str | TomlTable], defaults: Mapping[str, TomlTable]
) -> list[TomlTable]:
    """Make every method a table with its parameters.

    Args:
        methods: names, or tables with a name and parameters.
        defaults: parameters by the name of the method, which a table of its own may change.
    """
    filled = []
    for method in methods:
        table = {"name": method} if isinstance(method, str) else method
        filled.append({**defaults.get(table["name"], {}), **table})
    return filled


def _list_changes(original: Recipe, ours: Recipe) -> list[str]:
    """List what was scaled, in the words of a recipe."""
    sections = {"data", "model", "train"}
    paper_settings = original.model_dump(include=sections, exclude_none=True)
    our_settings = ours.model_dump(include=sections, exclude_none=True)
    changes = []
    for key, paper, here in find_differences(paper_settings, our_settings):
        if key not in ("train.seeds", "data.path"):
            changes.append(f"{key} {_show(here)} (paper {_show(paper)})")
    for paper_variant, our_variant in zip(original.compare, ours.compare, strict=True):
        pairs = zip(paper_variant.methods, our_variant.methods, strict=True)
        for method, scaled in pairs:  # the paper does not say which parameters it used
            for key, default, here in find_differences(method, scaled):
                name = f"{method['name']}.{key}"
                changes.append(f"{name} {_show(here)} (default {_show(default)})")
    return list(dict.fromkeys(changes))


def _show(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:g}" if isinstance(value, float) else str(value)
