"""The recipe's keys: their types, defaults, limits and meaning.

A new key is one field in the class of its section. Its default keeps older recipes and result
folders valid, and its description is what ``fedbr list recipes`` prints. What two keys must not say
together is a validator of the section, or of ``Recipe`` if the keys are in different sections.
Recipes are read in load.py, which also knows the names that keys had in older versions.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

import tomli_w
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    model_validator,
)

from .. import methods as method_table
from .. import models as model_table
from ..core.method import Method
from ..core.method_checks import check_methods
from ..core.optim import OPTIMIZERS
from ..data import DATASETS, PARTITIONS, DataOptions
from ..data.partition import CLIENTS
from ..util.errors import InputError, unknown
from ..util.imports import import_object, source_hash
from ..util.tables import Options
from ..util.validation import validate

# The validation context of a recipe that may be somebody else's: the code it names is not imported.
WITHOUT_CODE = {"import_code": False}
MEMORY = "memory"  # the name of data and models that were given in Python, not by a recipe


def _is_stored(info: ValidationInfo) -> bool:
    """Say whether a recipe is read from a result folder, not for training."""
    return not (info.context or {}).get("import_code", True)


def _refuse_memory(key: str) -> InputError:
    return InputError(
        f"{key} = {MEMORY!r}: was given in Python; call fedbr.train or fedbr.compare again"
    )


class Section(BaseModel):
    """A section of a recipe: unknown keys are refused, values are not converted."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, strict=True)


def _as_list(value: Any) -> Any:
    """Accept one value where a list is expected."""
    return value if isinstance(value, list | tuple) else [value]


class DataConfig(DataOptions):
    """The section [data]."""

    @model_validator(mode="before")
    @classmethod
    def _fill_defaults(cls, values: Any) -> Any:
        """Fill keys that the recipe leaves out with the defaults of the data set."""
        if not isinstance(values, dict):
            return values
        name = values.get("name", "digits")
        if not isinstance(name, str):
            return values
        partition = values.get("partition")
        if not partition:
            partition = DATASETS[name].partition if name in DATASETS else ""
        filled = {**values, "partition": partition}
        if partition != "domains":  # there the data say how many clients there are
            filled.setdefault("clients", CLIENTS)
        return filled

    @model_validator(mode="after")
    def _validate_names(self, info: ValidationInfo) -> Self:
        if self.name == MEMORY:
            if _is_stored(info):
                return self
            raise _refuse_memory("data.name")
        if self.name not in DATASETS:
            raise unknown("data.name", self.name, DATASETS)
        if self.partition not in PARTITIONS:
            raise unknown("data.partition", self.partition, PARTITIONS)
        return self

    @model_validator(mode="after")
    def _validate_uses(self) -> Self:
        """Refuse a key that would change nothing."""
        uses = DATASETS[self.name].uses if self.name in DATASETS else ()
        for key in ("path", "unseen", "rotation", "size"):
            value = getattr(self, key)
            is_default = value == type(self).model_fields[key].default
            if not is_default and key not in uses:
                raise InputError(f"data.{key} = {value!r}: {self.name} has no use for it")
        return self


class ModelConfig(BaseModel):
    """The section [model]: the name of a model, and beside it the options of that model."""

    model_config = ConfigDict(extra="allow", frozen=True, allow_inf_nan=False)

    name: str = Field("cnn", description="model")

    @property
    def options(self) -> Options:
        """The options of the model, by name."""
        return dict(self.model_extra or {})

    @model_validator(mode="after")
    def _validate_options(self, info: ValidationInfo) -> Self:
        if self.name == MEMORY:
            if _is_stored(info):
                return self
            raise _refuse_memory("model.name")
        if ":" in self.name:  # the user's own: it checks its options when it is called
            return self
        if self.name not in model_table.MODELS:
            raise unknown("model.name", self.name, model_table.MODELS)
        validate(model_table.MODELS[self.name], self.options, "model")
        return self


class TrainConfig(Section):
    """The section [train]: what every client and every round does."""

    rounds: int = Field(40, ge=1, le=10**7, description="communication rounds")
    local_steps: int = Field(50, ge=1, le=10**6, description="steps of every client in a round")
    batch_size: int = Field(
        32, ge=1, le=10**5, description="samples in a step, drawn with replacement"
    )
    optimizer: str = Field("sgd", description="of the clients")
    lr: float = Field(0.01, gt=0, description="learning rate of the clients' optimizer")
    momentum: float = Field(
        0.0, ge=0, lt=1, description="within a round; the optimiser is fresh in each"
    )
    nesterov: bool = Field(False, description="whether the momentum is Nesterov's")
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
        description=(
            "samples of each test set, but all of them in the last round; default: always all"
        ),
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

    @model_validator(mode="after")
    def _validate_optimizer(self) -> Self:
        if self.optimizer not in OPTIMIZERS:
            raise unknown("train.optimizer", self.optimizer, OPTIMIZERS)
        if self.nesterov and not self.momentum:
            raise InputError("train.nesterov = true: expected train.momentum above 0")
        return self

    @model_validator(mode="after")
    def _validate_seeds(self) -> Self:
        if len(set(self.seeds)) < len(self.seeds):
            raise InputError(f"train.seeds = {self.seeds}: duplicate seed")
        return self


Accuracy = Annotated[float, Field(gt=0, le=1)]


class MetricsConfig(Section):
    """The section [metrics]: what is recorded beside the accuracy."""

    targets: Annotated[list[Accuracy], BeforeValidator(_as_list)] = Field(
        [0.5, 0.6, 0.7, 0.8, 0.9], description="accuracies whose first round is recorded"
    )
    target: Accuracy = Field(0.8, description="the one of them that the comparison table shows")
    bias_every: int = Field(
        0,
        ge=0,
        description="rounds between tests of every client's model before aggregation; 0: never",
    )
    extra: Annotated[list[str], BeforeValidator(_as_list)] = Field(
        [], description="metrics beside those that are always measured (fedbr list metrics)"
    )


class VariantTrain(Section):
    """The settings that a variant may have instead of those of [train]: the ones to tune."""

    lr: float | None = Field(None, gt=0)
    momentum: float | None = Field(None, ge=0, lt=1)
    weight_decay: float | None = Field(None, ge=0)


class Variant(Section):
    """One variant of a comparison: a label, and methods in the order in which they act.

    In a recipe a method is a name, or a table with a name and parameters. Here it is always a
    table, with all its parameters.

    >>> [fedbr] = Variant(label="FedBR", methods=["fedbr"]).methods
    >>> fedbr["name"], fedbr["lam"]
    ('fedbr', 0.1)
    """

    label: str = Field(min_length=1, max_length=60, pattern=r"^[^\x00-\x1f\x7f]+$")
    methods: list[Options] = []
    train: VariantTrain | None = None
    # Whether its parameters were chosen by a search; None: the recipe does not say.
    tuned: bool | None = None

    @model_validator(mode="before")
    @classmethod
    def _fill_methods(cls, values: Any, info: ValidationInfo) -> Any:
        """Make every method a table with all its parameters."""
        if not isinstance(values, dict):
            return values
        label = values.get("label")
        if not label:
            raise InputError(
                "compare: expected a label for every variant, such as: "
                "[[compare]] label = 'FedBR' methods = ['fedbr']"
            )
        methods = values.get("methods", [])
        if isinstance(methods, str | dict):
            raise InputError(f"compare.methods = {methods!r}: expected a list, such as ['fedbr']")
        if not isinstance(methods, list):
            return values
        import_code = not _is_stored(info)
        where = f"compare[{label}].methods"
        tables, built = [], []
        for entry in methods:
            name, options = _read_method(entry, where)
            if name == "fedavg":  # the same as no method
                continue
            if ":" in name and not import_code:
                tables.append({"name": name, **options})
                continue
            method = method_table.build(name, options, where)
            if type(method) is method_table.METHODS.get(method.name):
                name = method.name  # it may have been named as "fedbr.methods:FedBR"
            parameters = method.model_dump(mode="json", exclude_none=True)
            tables.append({"name": name, **parameters})
            built.append(method)
        check_methods(built)
        return values | {"methods": tables}

    def build(self) -> list[Method]:
        """Make the methods.

        >>> [fedbr] = Variant(label="FedBR", methods=[{"name": "fedbr", "lam": 1.0}]).build()
        >>> fedbr.lam
        1.0
        """
        built = []
        for table in self.methods:
            options = {key: value for key, value in table.items() if key != "name"}
            built.append(method_table.build(table["name"], options))
        return built


def _read_method(entry: Any, where: str) -> tuple[str, Options]:
    """Return the name of a method and its parameters."""
    table = {"name": entry} if isinstance(entry, str) else entry
    if not isinstance(table, dict) or not isinstance(table.get("name"), str):
        raise InputError(
            f"{where} = {entry!r}: expected a name, or a table with a name and parameters"
        )
    options = {key: value for key, value in table.items() if key != "name"}
    if table["name"] == "fedavg" and options:
        raise InputError(f"{where}: fedavg has no parameters, not {', '.join(options)}")
    return table["name"], options


def _refuse_one_variant(value: Any) -> Any:
    """Explain the mistake of [compare] with single brackets."""
    if isinstance(value, dict):
        raise InputError(
            "compare: expected a list, not one table; write [[compare]], once for every variant"
        )
    return value


def _validate_name(value: Any) -> Any:
    """Refuse a name that cannot be the name of a folder."""
    if isinstance(value, str) and not re.fullmatch(r"\w[\w.+-]*", value):
        raise InputError(
            f"name = {value!r}: expected letters, digits and _, and . + - after the first character"
        )
    return value


class Recipe(Section):
    """What to train on what: data, model, training, and the variants to compare.

    >>> recipe = Recipe(compare=[{"label": "FedBR", "methods": ["fedbr"]}])
    >>> recipe.data.name, recipe.train.rounds
    ('digits', 40)
    """

    name: Annotated[str, BeforeValidator(_validate_name)] = "unnamed"
    data: DataConfig = Field(default_factory=DataConfig)
    model: ModelConfig = Field(default_factory=ModelConfig)
    train: TrainConfig = Field(default_factory=TrainConfig)
    metrics: MetricsConfig = Field(default_factory=MetricsConfig)
    compare: Annotated[list[Variant], BeforeValidator(_refuse_one_variant)] = []

    @model_validator(mode="after")
    def _validate_labels(self) -> Self:
        if not self.compare:
            raise InputError(
                "compare: expected at least one variant, such as: "
                "[[compare]] label = 'FedAvg' methods = []"
            )
        labels = [variant.label for variant in self.compare]
        if len(set(labels)) < len(labels):
            raise InputError(f"compare: duplicate label among {', '.join(labels)}")
        return self

    @model_validator(mode="after")
    def _validate_clients(self) -> Self:
        per_round, clients = self.train.clients_per_round, self.data.clients
        if per_round is not None and clients is not None and per_round > clients:
            raise InputError(
                f"train.clients_per_round = {per_round}: there are only "
                f"{clients} clients (data.clients); set both"
            )
        return self

    def of(self, variant: Variant) -> Recipe:
        """Return the recipe with the settings of a variant.

        >>> tuned = {"label": "Tuned", "train": {"lr": 0.5}}
        >>> recipe = Recipe(compare=[{"label": "FedAvg"}, tuned])
        >>> [recipe.of(variant).train.lr for variant in recipe.compare]
        [0.01, 0.5]
        """
        if variant.train is None:
            return self
        settings = variant.train.model_dump(exclude_none=True)
        train = self.train.model_copy(update=settings)
        return self.model_copy(update={"train": train})

    def code(self, variant: Variant) -> dict[str, str]:
        """Return the names of the user's own code in a variant, each with a hash of its source."""
        names = [self.model.name, *(method["name"] for method in variant.methods)]
        code = {}
        for name in names:
            if ":" in name:
                code[name] = source_hash(import_object(name, "code"))
        return code

    def to_toml(self) -> str:
        """Write the whole recipe as TOML, defaults included."""
        return tomli_w.dumps(self.model_dump(exclude_none=True))
