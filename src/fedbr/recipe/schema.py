"""The recipe: what to train on what, as TOML, checked before anything is written."""

from __future__ import annotations

import copy
import re
import tomllib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import tomli_w
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from .. import methods as method_table
from .. import models as model_table
from ..core.method import Method, check_methods
from ..data import DATASETS, PARTITIONS, DataOptions
from ..data.partition import CLIENTS
from ..util.errors import InputError, unknown
from ..util.imports import imported, source_hash
from ..util.validation import validated

_as_stored: ContextVar[bool] = ContextVar("as_stored", default=False)


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, strict=True)


def _as_list(value: Any) -> Any:
    return value if isinstance(value, list | tuple) else [value]


class DataConfig(DataOptions):
    @model_validator(mode="before")
    @classmethod
    def _filled(cls, values: Any) -> Any:
        """Write down what the data set itself says where the recipe is silent."""
        if not isinstance(values, dict) or not isinstance(values.get("name", ""), str):
            return values
        dataset = DATASETS.get(values.get("name", "digits"))
        partition = values.get("partition") or (dataset.partition if dataset else "")
        own = {} if partition == "domains" else {"clients": CLIENTS}
        return own | values | {"partition": partition}

    @model_validator(mode="after")
    def _known(self) -> Self:
        if self.name == "memory" and _as_stored.get():  # what Python gave to fedbr.train
            return self
        if self.name not in DATASETS:
            raise unknown("data.name", self.name, DATASETS)
        if self.partition not in PARTITIONS:
            raise unknown("data.partition", self.partition, PARTITIONS)
        for key in ("path", "unseen", "rotation", "size"):
            given, default = getattr(self, key), type(self).model_fields[key].default
            if given != default and key not in DATASETS[self.name].uses:
                raise InputError(f"data.{key} = {given!r}: {self.name} has no use for it")
        return self


class ModelConfig(BaseModel):
    """The name of a model, and beside it the options of that model."""

    model_config = ConfigDict(extra="allow", frozen=True, allow_inf_nan=False)

    name: str = Field("cnn", description="model")

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.model_extra or {})

    @model_validator(mode="after")
    def _known(self) -> Self:
        if self.name == "memory" and _as_stored.get():  # what Python gave to fedbr.train
            return self
        if ":" not in self.name:
            if self.name not in model_table.MODELS:
                raise unknown("model.name", self.name, model_table.MODELS)
            validated(model_table.MODELS[self.name], self.options, "model")
        return self


class TrainConfig(Section):
    rounds: int = Field(40, ge=1, le=10**7, description="communication rounds")
    local_steps: int = Field(50, ge=1, le=10**6, description="steps of every client in a round")
    batch_size: int = Field(
        32, ge=1, le=10**5, description="samples in a step, drawn with replacement"
    )
    lr: float = Field(0.01, gt=0, description="learning rate of the clients' SGD")
    momentum: float = Field(
        0.0, ge=0, lt=1, description="within a round; the optimiser is fresh in each"
    )
    weight_decay: float = Field(0.0, ge=0, description="L2 penalty")
    clients_per_round: int | None = Field(
        None, ge=1, description="drawn anew each round; default: all"
    )
    aggregate: Literal["uniform", "samples"] = Field(
        "uniform", description="weights of the clients' models"
    )
    evaluate_every: int = Field(1, ge=0, description="rounds between tests; 0: only at the end")
    evaluate_samples: int | None = Field(
        None,
        ge=1,
        description="samples of each test set, but all of them in the last round; default: always all",
    )
    seeds: Annotated[list[Annotated[int, Field(ge=0)]], BeforeValidator(_as_list)] = Field(
        [0], min_length=1, description="one run of every variant for each"
    )
    clients_at_once: Annotated[int, Field(ge=1)] | Literal["auto"] = Field(
        "auto", description="clients that train as one tensor program"
    )
    dtype: Literal["float32", "float64"] = Field("float32", description="precision")
    device: str = Field("auto", description="'cpu', 'cuda', ...; auto: a GPU if there is one")
    amp: bool = Field(
        False, description="compute in bfloat16 where that is safe; weights stay as they are"
    )

    @model_validator(mode="before")
    @classmethod
    def _renamed(cls, values: Any) -> Any:
        """Read the key that older recipes have for ``clients_at_once``."""
        if not isinstance(values, dict) or "cohort" not in values:
            return values
        if "clients_at_once" in values:
            raise InputError("train.cohort: is called train.clients_at_once now; give one of them")
        if not _as_stored.get():
            warnings.warn(
                "train.cohort is called train.clients_at_once now", RuntimeWarning, stacklevel=2
            )
        return {k: v for k, v in values.items() if k != "cohort"} | {
            "clients_at_once": values["cohort"]
        }

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        if len(set(self.seeds)) < len(self.seeds):
            raise InputError(f"train.seeds = {self.seeds}: a seed is there twice")
        return self


Accuracy = Annotated[float, Field(gt=0, le=1)]


class MetricsConfig(Section):
    targets: Annotated[list[Accuracy], BeforeValidator(_as_list)] = Field(
        [0.5, 0.6, 0.7, 0.8, 0.9], description="accuracies whose first round is recorded"
    )
    target: Accuracy = Field(0.8, description="the one of them that the comparison table shows")
    bias_every: int = Field(
        0,
        ge=0,
        description="rounds between tests of every client's model before aggregation; 0: never",
    )
    extra: list[str] = Field(
        [], description="metrics beside those that are always measured (fedbr list metrics)"
    )


class Own(Section):
    """What a variant may have of its own instead of the recipe's [train]: what one tunes."""

    lr: float | None = Field(None, gt=0)
    momentum: float | None = Field(None, ge=0, lt=1)
    weight_decay: float | None = Field(None, ge=0)


class Variant(Section):
    """One side of a comparison: a label and the methods in the order in which they act."""

    label: str = Field(min_length=1, max_length=60, pattern=r"^[^\x00-\x1f\x7f]+$")
    methods: list[dict[str, Any]] = []
    train: Own | None = None
    tuned: bool | None = (
        None  # whether its parameters were chosen by a search; None: nothing is said
    )

    @model_validator(mode="before")
    @classmethod
    def _named(cls, values: Any) -> Any:
        """Accept a bare name for a method with default parameters; fill in all defaults."""
        if not isinstance(values, dict):
            return values
        if not values.get("label"):
            raise InputError(
                "compare: every variant has a label, such as: [[compare]] label = 'FedBR' methods = ['fedbr']"
            )
        if isinstance(values.get("methods", []), str | dict):
            raise InputError(
                f"compare.methods = {values['methods']!r}: a list is wanted, such as ['fedbr']"
            )
        if not isinstance(values.get("methods", []), list):
            return values
        label = values.get("label", "?")
        where = f"compare[{label}].methods"
        listed = [_listed(m, where) for m in values.get("methods", [])]
        tables, built = [], []
        for name, options in listed:
            if ":" in name and _as_stored.get():
                tables.append({"name": name, **options})
            elif name != "fedavg":
                method = method_table.build(name, options, where)
                name = (
                    method.name if type(method) is method_table.METHODS.get(method.name) else name
                )
                tables.append({"name": name, **method.model_dump(mode="json", exclude_none=True)})
                built.append(method)
        check_methods(built)
        return values | {"methods": tables}

    def build(self) -> list[Method]:
        return [
            method_table.build(m["name"], {k: v for k, v in m.items() if k != "name"})
            for m in self.methods
        ]


def _variants(value: Any) -> Any:
    if isinstance(value, dict):
        raise InputError(
            "compare: one table where a list is wanted; write [[compare]], once for every variant"
        )
    return value


def _word(value: Any) -> Any:
    if isinstance(value, str) and not re.fullmatch(r"\w[\w.+-]*", value):
        raise InputError(
            f"name = {value!r}: letters, digits, and . + - _ behind the first are allowed"
        )
    return value


class Recipe(Section):
    name: Annotated[str, BeforeValidator(_word)] = "unnamed"
    data: DataConfig = Field(default_factory=DataConfig)
    model: ModelConfig = Field(default_factory=ModelConfig)
    train: TrainConfig = Field(default_factory=TrainConfig)
    metrics: MetricsConfig = Field(default_factory=MetricsConfig)
    compare: Annotated[list[Variant], BeforeValidator(_variants)] = []

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not self.compare:
            raise InputError(
                "compare: at least one variant, such as: [[compare]] label = 'FedAvg' methods = []"
            )
        labels = [variant.label for variant in self.compare]
        if len(set(labels)) < len(labels):
            raise InputError(f"compare: a label is there twice among {', '.join(labels)}")
        if (
            self.data.clients is not None
            and (self.train.clients_per_round or 0) > self.data.clients
        ):
            raise InputError(
                f"train.clients_per_round = {self.train.clients_per_round}: there are only "
                f"{self.data.clients} clients (data.clients); set both"
            )
        return self

    def of(self, variant: Variant) -> Recipe:
        """Return the recipe with what a variant has of its own."""
        if variant.train is None:
            return self
        return self.model_copy(
            update={
                "train": self.train.model_copy(update=variant.train.model_dump(exclude_none=True))
            }
        )

    def code(self, variant: Variant) -> dict[str, str]:
        """Return what a variant trains with that is the user's own code, and a hash of each."""
        named = [self.model.name, *(method["name"] for method in variant.methods)]
        return {name: source_hash(imported(name, "code")) for name in named if ":" in name}

    def to_toml(self) -> str:
        """Write the whole recipe, defaults included."""
        return tomli_w.dumps(self.model_dump(exclude_none=True))


def shipped() -> list[str]:
    """Name the recipes that come with the package."""
    root = resources.files("fedbr") / "recipe" / "shipped"
    return sorted(p.name.removesuffix(".toml") for p in root.iterdir() if p.name.endswith(".toml"))


def load(name: str, overrides: Sequence[str] = (), variants: Sequence[str] = ()) -> Recipe:
    """Read a shipped recipe or a TOML file; apply ``key=value`` overrides and variants such as
    "first+second".
    """
    values = _read(name)
    if variants:
        values["compare"] = compared(variants)
    return override(values, overrides)


def compared(variants: Sequence[str]) -> list[dict[str, Any]]:
    """Read variants such as "mixup+fedbr"; a class of the user's called as another is labelled as it
    is given.
    """
    read = [short(variant) for variant in variants]
    labels, methods = (
        [variant["label"] for variant in read],
        [variant["methods"] for variant in read],
    )
    for text, variant in zip(variants, read, strict=True):
        if ":" in text and labels.count(variant["label"]) > methods.count(variant["methods"]):
            variant["label"] = text
    return read


def left_out(name: str, overrides: Sequence[str], variants: Sequence[str]) -> list[str]:
    """Return the settings of a recipe's methods that variants given instead of its own do not have."""
    used = {method for variant in compared(variants) for method in variant["methods"]}
    given: dict[str, list[dict[str, Any]]] = {}
    for *_, entry in _entries(_read(name)):
        given.setdefault(entry["name"], []).append(entry)
    own = [
        entries[0]
        for method, entries in given.items()
        if method in used and all(e == entries[0] for e in entries)
    ]
    chosen = {text.partition("=")[0].strip() for text in overrides}
    return [
        f"{key}={write_value(value)}"
        for entry in own
        for option, field in method_table.find(entry["name"]).model_fields.items()
        if (value := entry.get(option, field.default)) != field.default
        and (key := f"{called(entry['name'])}.{option}") not in chosen
    ]


def override(values: Mapping[str, Any], overrides: Sequence[str]) -> Recipe:
    """Apply ``key=value`` overrides to a recipe as it would be read, and check it."""
    changed = copy.deepcopy(dict(values))
    model = changed.get("model")
    named = [
        text.partition("=")[2]
        for text in overrides
        if text.partition("=")[0].strip() == "model.name"
    ]
    if named and isinstance(model, dict) and read_value(named[-1]) != model.get("name"):
        del changed["model"]  # another model has other options
    for text in overrides:
        _set(changed, text)
    return parse(changed)


def parse(values: Mapping[str, Any]) -> Recipe:
    """Check a recipe."""
    return validated(Recipe, values, "")


def stored(values: Mapping[str, Any]) -> Recipe:
    """Check the recipe of a result folder, which may be somebody else's: code that it names is not
    imported.
    """
    token = _as_stored.set(True)
    try:
        return parse(values)
    finally:
        _as_stored.reset(token)


def name_of(file: str) -> str:
    """Make a recipe's name of a file's."""
    return re.sub(r"[^\w.+-]|^[.+-]+", "_", file)


def _read(name: str) -> dict[str, Any]:
    if name in shipped():
        text = (resources.files("fedbr") / "recipe" / "shipped" / f"{name}.toml").read_text("utf-8")
        return tomllib.loads(text)
    path = Path(name)
    if path.suffix != ".toml" and not path.exists():
        error = unknown("recipe", name, shipped())
        raise InputError(f"{error}, or a TOML file")
    try:
        return {"name": name_of(path.stem), **tomllib.loads(path.read_text("utf-8-sig"))}
    except OSError as error:
        raise InputError(f"recipe = {name!r}: cannot read it ({error.strerror})") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"recipe = {name!r}: not TOML ({error})") from error


def short(text: str) -> dict[str, Any]:
    """Read a variant such as "mixup+fedbr"; "fedavg" is the empty one."""
    known = {
        name.casefold(): name for name in (*method_table.METHODS, "fedavg")
    }  # also as tables print them
    words = [known.get(word.strip().casefold(), word.strip()) for word in text.split("+")]
    names = [n for n in words if n != "fedavg"]
    if "," in text:
        raise InputError(
            f"--methods {text!r}: variants stand apart, as in --methods {' '.join(text.split(','))}"
        )
    if "" in names:
        raise InputError(f"--methods {text!r}: names of methods joined by '+', such as mixup+fedbr")
    titles = [method_table.find(n, f"--methods {text!r}: method").__name__ for n in names]
    return {"label": " + ".join(titles) or "FedAvg", "methods": names}


def _listed(value: Any, where: str) -> tuple[str, dict[str, Any]]:
    """Read an entry of a variant: how the method is named, and its parameters."""
    name, options = (value, {}) if isinstance(value, str) else (None, {})
    if isinstance(value, dict):
        name, options = value.get("name"), {k: v for k, v in value.items() if k != "name"}
    if not isinstance(name, str):
        raise InputError(f"{where} = {value!r}: a name, or a table with a name and parameters")
    if name == "fedavg" and options:  # what the runtime does by itself
        raise InputError(f"{where}: fedavg has no parameters, not {', '.join(options)}")
    return name, options


def called(name: str) -> str:
    """Return what a method calls itself, however a recipe names it: "mixup",
    "package.module:Class".
    """
    return method_table.find(name).name if ":" in name else name


def _set(values: dict[str, Any], override: str) -> None:
    """Apply one ``key=value``; ``fedbr.lam=1`` reaches that method in every variant that has it."""
    key, equals, text = override.partition("=")
    path = key.strip().split(".")
    if not equals or (len(path) < 2 and path != ["name"]):
        raise InputError(f"--set {override!r}: wants section.key=value, such as train.rounds=5")
    if path[0] not in Recipe.model_fields:
        own = [called(entry["name"]) for *_, entry in _entries(values)]
        if path[0] not in (*method_table.METHODS, *own):
            known = [*Recipe.model_fields, *method_table.METHODS, *own]
            raise unknown(f"--set {override!r}: section", path[0], dict.fromkeys(known))
        _set_method(values, path[0], path[1:], read_value(text))
        return
    target: Any = values
    for i, part in enumerate(path[:-1]):
        if isinstance(target, list):
            if not part.isdigit() or int(part) >= len(target):
                raise InputError(
                    f"--set {override!r}: {'.'.join(path[:i])} has entries 0 to {len(target) - 1}, not {part}"
                )
            target = target[int(part)]
        else:
            target = target.setdefault(part, {})
        if not isinstance(target, dict | list):
            raise InputError(f"--set {override!r}: {'.'.join(path[: i + 1])} is not a table")
    if isinstance(target, list):
        raise InputError(f"--set {override!r}: name a key inside {'.'.join(path[:-1])}")
    target[path[-1]] = read_value(text)


def _set_method(values: dict[str, Any], name: str, path: Sequence[str], value: Any) -> None:
    found = [
        (listed, i, entry) for listed, i, entry in _entries(values) if called(entry["name"]) == name
    ]
    if not found:
        raise InputError(f"--set {name}.{'.'.join(path)}: no variant of the recipe has {name!r}")
    for listed, i, entry in found:
        listed[i] = entry | {".".join(path): value}


def _entries(values: Mapping[str, Any]) -> Iterator[tuple[list[Any], int, dict[str, Any]]]:
    """Find the methods of all variants of a recipe that was not checked yet: in which list, where,
    and the table.
    """
    variants = values.get("compare", [])
    for variant in variants if isinstance(variants, list) else []:
        listed = variant.get("methods", []) if isinstance(variant, dict) else []
        for i, entry in enumerate(listed if isinstance(listed, list) else []):
            entry = {"name": entry} if isinstance(entry, str) else entry
            if isinstance(entry, dict) and isinstance(entry.get("name"), str):
                yield listed, i, entry


def parse_variant(values: Mapping[str, Any]) -> Variant:
    """Check one variant."""
    return validated(Variant, values, "compare")


def write_value(value: Any) -> str:
    """Write a value so that ``read_value`` reads it again."""
    return tomli_w.dumps({"value": value}).partition("=")[2].strip()


def read_value(text: str) -> Any:
    """Read a value as TOML would; what TOML cannot read is a word, with commas a list."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        if "," in text:
            return [read_value(part.strip()) for part in text.split(",") if part.strip()]
        return text.strip()


def headline(name: str) -> str:
    """Return the first line of a shipped recipe, which says what it is for."""
    text = (resources.files("fedbr") / "recipe" / "shipped" / f"{name}.toml").read_text("utf-8")
    return text.splitlines()[0].removeprefix("#").strip()
