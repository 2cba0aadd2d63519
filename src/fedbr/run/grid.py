"""A grid of settings: its keys and values, and the trials of a recipe that it makes."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..methods import METHODS
from ..recipe.load import parse_variant
from ..recipe.overrides import find_method_name, read_value, write_value
from ..recipe.schema import Recipe, Variant, VariantTrain
from ..util.errors import InputError, unknown
from ..util.estimate import Estimate
from ..util.tables import Options

FIXED = ("name", "compare", "train.seeds", "data.holdout", "metrics")  # not allowed in a grid
MAX_LABEL = 60  # characters of a trial's label

Values = dict[str, Any]  # one choice of values, by their keys


@dataclass(frozen=True)
class Grid:
    """The values to try for one key of a recipe."""

    key: str
    values: Sequence[Any]

    @classmethod
    def parse(cls, text: str) -> Grid:
        """Read ``key=v1,v2,...``.

        Raises:
            InputError: the text is malformed, a value is in it twice, or the key is not allowed.

        >>> Grid.parse("train.lr=0.01,0.1").values
        [0.01, 0.1]
        """
        key, equals, rest = (part.strip() for part in text.partition("="))
        parts = re.findall(r"\s*((?:\[[^\]]*\]|[^,\[])+)", rest)
        values = [read_value(part) for part in parts if part.strip()]
        if not equals or not values or "." not in key:
            raise InputError(
                f"--grid {text!r}: expected section.key=v1,v2,..., such as train.lr=0.01,0.1"
            )
        if key in FIXED or key.split(".")[0] in FIXED:
            raise InputError(f"--grid {text!r}: a grid cannot be over {key}; set it with --set")
        if any(value in values[:i] for i, value in enumerate(values)):
            raise InputError(f"--grid {text!r}: duplicate value")
        return cls(key, values)

    @property
    def owner(self) -> str:
        """The method whose parameter it is, or the section of the recipe."""
        return self.key.split(".")[0]

    @property
    def name(self) -> str:
        """The key without the section or the method."""
        return self.key.partition(".")[2]

    @property
    def tunes(self) -> bool:
        """Whether the best value is chosen for each variant.

        Otherwise every value makes a comparison of its own.
        """
        if self.owner not in Recipe.model_fields:
            return True  # a parameter of a method
        return self.owner == "train" and self.name in VariantTrain.model_fields

    def concerns(self, variant: Variant) -> bool:
        """Say whether a variant has the key."""
        if self.owner == "train":
            return True
        names = [find_method_name(method["name"]) for method in variant.methods]
        return self.owner in names


@dataclass(frozen=True)
class Trial:
    """One variant with one choice of values, on the held-out samples."""

    variant: Variant  # with the values in it, under the name that it has in the search
    label: str  # of the variant that it is a version of
    values: Values
    score: Estimate | None = None  # mean of the 5 best rounds; None: it diverged on some seed


def list_conditions(grids: Sequence[Grid]) -> list[Values]:
    """List the combinations of values that are not tuned: each is a comparison of its own.

    >>> list_conditions([Grid("data.alpha", [0.1, 1]), Grid("train.lr", [0.1])])
    [{'data.alpha': 0.1}, {'data.alpha': 1}]
    """
    fixed = [grid for grid in grids if not grid.tunes]
    keys = [grid.key for grid in fixed]
    combinations = itertools.product(*(grid.values for grid in fixed))
    return [dict(zip(keys, values, strict=True)) for values in combinations]


def name_condition(values: Values) -> str:
    """Make the name of a combination, which can be that of a folder.

    >>> name_condition({"data.alpha": 0.5})
    'data.alpha=0.5'
    """
    joined = ",".join(f"{key}={value}" for key, value in values.items())
    return re.sub(r"[^\w.,=+-]", "_", joined)


def make_overrides(values: Values) -> list[str]:
    """Write a combination as overrides of ``--set``.

    >>> make_overrides({"data.alpha": 0.5})
    ['data.alpha=0.5']
    """
    return [f"{key}={write_value(value)}" for key, value in values.items()]


def check_grids(grids: Sequence[Grid]) -> None:
    """Refuse no grid at all, and two over the same key."""
    keys = [grid.key for grid in grids]
    if not grids:
        raise InputError(
            "--grid: at least one KEY=V1,V2 is required, such as --grid train.lr=0.01,0.1"
        )
    if len(set(keys)) < len(keys):
        raise InputError(f"--grid {' '.join(keys)}: duplicate key")


def check_owner(grid: Grid, variants: Sequence[Variant]) -> None:
    """Refuse a grid over the parameters of a method that no variant has."""
    if grid.owner in Recipe.model_fields or any(grid.concerns(variant) for variant in variants):
        return
    if grid.owner in METHODS:
        raise InputError(f"--grid {grid.key}: no variant of the recipe has {grid.owner!r}")
    sections = {*Recipe.model_fields, *METHODS}
    for variant in variants:
        sections |= {find_method_name(method["name"]) for method in variant.methods}
    raise unknown(f"--grid {grid.key}: section", grid.owner, sections)


def make_trials(recipe: Recipe, grids: Sequence[Grid]) -> list[Trial]:
    """Make a variant of every combination of the values that concern it."""
    trials: list[Trial] = []
    for variant in recipe.compare:
        tuned = [grid for grid in grids if grid.tunes and grid.concerns(variant)]
        for values in itertools.product(*(grid.values for grid in tuned)):
            settings = list(zip(tuned, values, strict=True))
            label = variant.label
            for grid, value in settings:
                label += f" {grid.name}={value}"
            is_taken = any(label == trial.variant.label for trial in trials)
            if is_taken or len(label) > MAX_LABEL:
                label = f"{variant.label[:50]} #{len(trials)}"
            by_key = {grid.key: value for grid, value in settings}
            changed = _change_variant(variant, settings, label)
            trials.append(Trial(changed, variant.label, by_key))
    return trials


def _change_variant(variant: Variant, settings: Sequence[tuple[Grid, Any]], label: str) -> Variant:
    """Return a variant with other values, under another label."""
    methods = [dict(method) for method in variant.methods]
    train = {} if variant.train is None else variant.train.model_dump(exclude_none=True)
    for grid, value in settings:
        if grid.owner == "train":
            train[grid.name] = value
        for method in methods:
            if find_method_name(method["name"]) == grid.owner:
                method[grid.name] = value
    values: Options = {"label": label, "methods": methods}
    if train:
        values["train"] = train
    return parse_variant(values)
