"""The Python interface: train a model on a federation, compare methods, use what was trained."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import signature
from pathlib import Path
from typing import Any, Literal

import safetensors
import torch
from torch import nn

from . import models
from .core.method import Method, without_neutral
from .core.model import FedModel
from .core.records import RoundRecord
from .core.spec import Spec
from .core.wire import State
from .data import Federation
from .methods import build as build_method
from .recipe.load import OLD_TRAIN_KEYS, rename_train_keys
from .recipe.load import load as load_recipe
from .recipe.schema import MEMORY, MetricsConfig, Recipe, TrainConfig
from .run.arguments import check_federation, check_options
from .run.engines import OneByOne
from .run.from_memory import check_listed, in_memory, label_of
from .run.plan import Experiment, PlannedRun
from .run.results import Results, RunResult
from .run.runner import execute, store_of
from .run.watch import Watcher
from .util.errors import Diverged, InputError
from .util.validation import validated


@dataclass
class Run:
    """A trained model and what was measured.

    With ``Local``, which has no model in common, ``model`` is the untrained start.
    """

    model: FedModel
    rounds: Sequence[RoundRecord] = field(default_factory=list, repr=False)
    models: list[FedModel] = field(default_factory=list, repr=False)  # each client's own, if kept

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Every round as it stands in ``metrics.jsonl``."""
        return [record.to_json() for record in self.rounds]

    @property
    def accuracy(self) -> list[float]:
        """Accuracy of the model, one value per evaluated round."""
        return [record.accuracy for record in self.rounds if record.accuracy is not None]

    @property
    def accuracy_clients(self) -> list[list[float | None]]:
        """Accuracy for each client, one list per evaluated round."""
        tested = (record.accuracy_clients for record in self.rounds)
        return [list(clients) for clients in tested if clients is not None]

    @property
    def loss(self) -> list[float]:
        """Training loss, one value a round."""
        return [record.loss for record in self.rounds]

    @property
    def bias(self) -> list[dict[str, Any]]:
        """How biased the clients' models were before they were averaged.

        One entry per round that was looked at.
        """
        entries = []
        for record in self.rounds:
            if record.bias is not None:
                said = record.bias.to_json()
                local = said["accuracy_local"]
                entries.append({"round": record.round, "accuracy_local": local, **said["bias"]})
        return entries

    @property
    def seconds_train(self) -> list[float]:
        """Wall time of training, one value a round."""
        return [record.seconds_train for record in self.rounds]

    @property
    def bytes(self) -> list[tuple[int, int]]:
        """What was sent up and down, one pair a round."""
        return [(record.bytes_up, record.bytes_down) for record in self.rounds]


def train(
    federation: Federation,
    model: nn.Module | str = "cnn",
    methods: Sequence[Method] = (),
    *,
    rounds: int = 40,
    local_steps: int = 50,
    batch_size: int = 32,
    lr: float = 0.01,
    optimizer: str = "sgd",
    momentum: float = 0.0,
    nesterov: bool = False,
    weight_decay: float = 0.0,
    clients_per_round: int | None = None,
    aggregate: Literal["uniform", "samples"] = "uniform",
    evaluate_every: int = 1,
    evaluate_samples: int | None = None,
    bias_every: int = 0,
    metrics: Sequence[str] = (),
    workers: int = 1,
    seed: int = 0,
    clients_at_once: int | Literal["auto"] = "auto",
    dtype: Literal["float32", "float64"] = "float32",
    device: str = "auto",
    amp: bool = False,
    out: str | Path | None = None,
    fresh: bool = False,
    watch: Callable[[dict[str, Any]], object] | None = None,
    **model_options: Any,
) -> Run:
    """Train one model across the clients of a federation.

    Ctrl-C ends the training and returns what is done. With ``workers`` above 1, call it under
    ``if __name__ == "__main__":`` as for every Python process pool.

    Args:
        model: a name of the table (with ``model_options`` such as ``width=0.25``), or a module of
            yours, which is copied and starts from the weights that it has.
        methods: act in the listed order; none is FedAvg.
        optimizer: of the clients, as in ``fedbr.core.optim.OPTIMIZERS``.
        bias_every: rounds between tests of every client's own model (see ``Run.bias``).
        metrics: more metrics, by their names in ``fedbr list metrics`` or "package.module:Class".
        out: a result folder as ``fedbr run`` writes it, with a checkpoint after every round;
            called again with the same arguments, training goes on there. None: nothing is written.
        fresh: start over in ``out``.
        watch: is called after every round with its figures, as in ``metrics.jsonl``; what it
            raises ends the training.

    Returns:
        The trained model and the figures of every round.

    Raises:
        InputError: an argument is wrong; the line names it and what is allowed.
        Diverged: a loss or a weight is no longer finite.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> x, y = rng.random((60, 4), dtype=np.float32), np.arange(60) % 3
    >>> federation = Federation.from_arrays(x, y, x, y, clients=3, partition="iid")
    >>> run = train(federation, "mlp", rounds=2, local_steps=1, hidden=(5,))
    >>> len(run.accuracy)
    2
    """
    given = dict(locals())
    check_federation(federation, workers)
    known = {*signature(train).parameters, *OLD_TRAIN_KEYS}
    check_options("train", model, model_options, known)
    if isinstance(methods, Method) or not isinstance(methods, Sequence):
        raise InputError(f"methods = {methods!r}: must be a list, such as [fedbr.FedBR(lam=0.1)]")
    if watch is not None and not callable(watch):
        raise InputError(
            f"watch = {watch!r}: must be a function of a round's figures, such as print"
        )
    settings, measure = _settings(given, [seed], model_options)
    listed = {label_of(methods): list(methods)}
    experiment = in_memory(federation, model, model_options, listed, settings, measure, out)
    results = _execute(experiment, workers, fresh, _Told(watch))
    return _run(experiment, results.runs[0] if results.runs else None, seed)


def compare(
    federation: Federation,
    methods: Mapping[str, Sequence[Method]],
    model: nn.Module | str = "cnn",
    *,
    seeds: int | Sequence[int] = 3,
    rounds: int = 40,
    local_steps: int = 50,
    batch_size: int = 32,
    lr: float = 0.01,
    optimizer: str = "sgd",
    momentum: float = 0.0,
    nesterov: bool = False,
    weight_decay: float = 0.0,
    clients_per_round: int | None = None,
    aggregate: Literal["uniform", "samples"] = "uniform",
    evaluate_every: int = 1,
    evaluate_samples: int | None = None,
    bias_every: int = 0,
    metrics: Sequence[str] = (),
    targets: Sequence[float] | None = None,
    target: float | None = None,
    workers: int = 1,
    clients_at_once: int | Literal["auto"] = "auto",
    dtype: Literal["float32", "float64"] = "float32",
    device: str = "auto",
    amp: bool = False,
    out: str | Path | None = None,
    fresh: bool = False,
    **model_options: Any,
) -> Results:
    """Compare methods on a federation in memory, as ``fedbr run`` does for a recipe.

    Ctrl-C returns what is done. Arguments that are not listed here are those of ``train``.

    Args:
        methods: lists of methods by label; an empty list is FedAvg.
        seeds: so many, from 0 on, or which; every seed draws its own batches and, for a model by
            its name, its own initial weights.
        targets, target: accuracies whose first round is recorded, and the one in the table.
        out: a result folder; ``fedbr report`` makes a page of it, and the same call goes on there.

    Raises:
        InputError: an argument is wrong; the line names it and what is allowed.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> x, y = rng.random((60, 4), dtype=np.float32), np.arange(60) % 3
    >>> federation = Federation.from_arrays(x, y, x, y, clients=3, partition="iid")
    >>> results = compare(federation, {"FedAvg": []}, "mlp", seeds=2, rounds=1, hidden=(5,))
    >>> [run.seed for run in results.runs]
    [0, 1]
    """
    given = dict(locals())
    check_federation(federation, workers)
    known = {*signature(compare).parameters, *OLD_TRAIN_KEYS}
    check_options("compare", model, model_options, known)
    listed = check_listed(methods)
    settings, measure = _settings(given, _seeds(seeds), model_options)
    experiment = in_memory(federation, model, model_options, listed, settings, measure, out)
    return _execute(experiment, workers, fresh, Watcher())


def run_recipe(
    recipe: Recipe | str | Path,
    out: str | Path | None = None,
    *,
    overrides: Sequence[str] = (),
    methods: Sequence[str] = (),
    workers: int | None = 1,
    fresh: bool = False,
) -> Results:
    """Train every variant of a recipe for every seed: ``fedbr run`` from Python.

    Args:
        recipe: a shipped one by its name, a TOML file, or one that was loaded.
        out: the result folder; called again with the same, training goes on there. None: results
            stay in memory.
        overrides: as of ``--set``, such as "train.rounds=5".
        methods: as of ``--methods``, such as "fedavg" or "mixup+fedbr".
        workers: processes; None: one for every core that there is work for.
        fresh: start over in ``out``.

    >>> short = ["train.rounds=1", "train.local_steps=1"]
    >>> results = run_recipe("digits", overrides=short, methods=["fedavg"])
    >>> results.runs[0].label
    'FedAvg'
    """
    if not isinstance(recipe, Recipe):
        recipe = load_recipe(str(recipe), overrides, methods)
    experiment = Experiment(recipe, None if out is None else Path(out))
    return _execute(experiment, workers, fresh, Watcher())


def _settings(
    given: Mapping[str, Any], seeds: list[int], model_options: dict[str, Any]
) -> tuple[TrainConfig, MetricsConfig]:
    """Check the arguments that are settings of a recipe too."""
    train = {name: value for name, value in given.items() if name in TrainConfig.model_fields}
    for old, new in OLD_TRAIN_KEYS.items():
        if old in model_options:
            train[old] = model_options.pop(old)
            del train[new]
    measure = {"bias_every": given["bias_every"], "extra": list(given["metrics"])}
    for name in ("targets", "target"):
        if given.get(name) is not None:
            value = given[name]
            measure[name] = list(value) if isinstance(value, tuple) else value
    return (
        validated(TrainConfig, rename_train_keys(train, warn=True) | {"seeds": seeds}, "train"),
        validated(MetricsConfig, measure, "train"),
    )


def _seeds(seeds: int | Sequence[int]) -> list[int]:
    if isinstance(seeds, int):
        if seeds < 1:
            raise InputError(f"seeds = {seeds}: at least one, or a list such as [0, 1, 2]")
        return list(range(seeds))
    return list(seeds)


def _execute(experiment: Experiment, workers: int | None, fresh: bool, watch: Watcher) -> Results:
    """Train, and return what is done: all of it, or what there is when Ctrl-C comes."""
    store = store_of(experiment)
    try:
        execute([experiment], OneByOne(workers), fresh=fresh, watch=watch, stores=[store])
    except KeyboardInterrupt:
        if not any(store.run(run.variant, run.seed).begun for run in experiment.runs()):
            raise
    return store.results()


class _Told(Watcher):
    """Tells a function of the user's."""

    def __init__(self, watch: Callable[[dict[str, Any]], object] | None) -> None:
        self.watch = watch

    def round_done(self, run: PlannedRun, record: RoundRecord) -> None:
        if self.watch is not None:
            self.watch(record.to_json())


def _run(experiment: Experiment, result: RunResult | None, seed: int) -> Run:
    """Make the models of a run that is done, or as far as it has come."""
    if result is not None and (at := result.diverged_at) is not None:
        raise Diverged(at.round, at.client, at.what)
    source, (variant,) = experiment.source, experiment.recipe.compare
    clients = source.clients(seed)
    model = source.setup(variant, seed, clients).model
    _equip(model, clients.census.seen_as | {"shape": clients.census.shape})
    weights = None if result is None else result.weights()
    if result is None or weights is None:
        return Run(_final(model, model.weights()))
    own = [_final(model, each) for each in weights.personal]
    return Run(_final(model, weights.common), result.rounds, own)


def load_model(path: str | Path, client: int | None = None, own_code: bool = False) -> FedModel:
    """Read a ``model.safetensors`` of a result folder.

    Args:
        client: one of the models that each client kept for itself.
        own_code: import and call what the file names as "package.module:name", a model or methods
            of one's own; a file from somebody else could name anything.

    Raises:
        InputError: the file is none of fedbr's, or names code, or a model that only Python had.
    """
    try:
        if Path(path).is_dir():
            raise IsADirectoryError("a folder")
        with safetensors.safe_open(path, "pt") as file:
            if "fedbr" not in (file.metadata() or {}):
                raise ValueError("it does not say of what model")
            facts = json.loads(file.metadata()["fedbr"])
            names = file.keys()
            weights = {name: file.get_tensor(name) for name in names}
    except (OSError, safetensors.SafetensorError, ValueError) as error:
        raise InputError(
            f"path = {str(path)!r}: not a model.safetensors, as DIR/runs/LABEL-SEED of a result "
            f"folder has ({error})"
        ) from error
    weights = _one_of(weights, client)
    if facts["name"] == MEMORY:
        raise InputError(
            f"path = {str(path)!r}: its model was given in Python, not by name; make it again and "
            "load the weights: module.load_state_dict(safetensors.torch.load_file(path))"
        )
    named = [facts["name"], *(method["name"] for method in facts["methods"])]
    if not own_code and (code := [name for name in named if ":" in name]):
        raise InputError(
            f"path = {str(path)!r}: names code, {', '.join(code)}, that would be imported and "
            "called; if it is yours, pass own_code=True"
        )
    shape, classes = tuple(map(int, facts["shape"])), int(facts["num_classes"])
    model = models.build(facts["name"], facts["options"], shape, classes)
    spec = Spec(shape, classes, 1, 1, 1, 1, 1.0)
    for table in facts["methods"]:
        options = {key: value for key, value in table.items() if key != "name"}
        for method in without_neutral([build_method(table["name"], options)]):
            model = method.rebuild(model, spec)
    model = model.to(next(iter(weights.values())).dtype)
    model.load_state_dict(weights)
    _equip(model, facts)
    return model.eval()


def _one_of(weights: State, client: int | None) -> State:
    """Choose a client's own weights from a file that has one model for each."""
    owners = {
        int(name.split(".")[0].removeprefix("client")) for name in weights if name[:6] == "client"
    }
    if not owners:
        if client is not None:
            raise InputError(f"client = {client}: there is one model for all; leave it out")
        return weights
    if client not in owners:
        raise InputError(
            f"client = {client}: every client has a model of its own; one of 0 to {max(owners)}"
        )
    prefix = f"client{client}."
    own = {name: value for name, value in weights.items() if name.startswith(prefix)}
    return {name.removeprefix(prefix): value for name, value in own.items()}


def _equip(model: FedModel, facts: Mapping[str, Any]) -> None:
    """Let a model see bytes as it did in training, and know what classes are called."""
    scale, shift = (
        torch.tensor(v) if isinstance(v, list) else v for v in (facts["scale"], facts["shift"])
    )
    model.bytes_seen_as, model.class_names = (scale, shift), facts["class_names"]
    model.sample_shape = tuple(map(int, facts["shape"]))


def _final(model: FedModel, weights: State) -> FedModel:
    """Return the model as it is after training, without the modules that methods added."""
    final = copy.deepcopy(model)
    final.set_weights(weights)
    final.extras.clear()
    return final.eval()
