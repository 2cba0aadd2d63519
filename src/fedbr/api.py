"""The Python interface: train a model on a federation, compare methods, run recipes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import signature
from pathlib import Path
from typing import Any, Literal

from torch import nn

from .core.method import Method
from .core.model import FedModel
from .core.records import RoundRecord
from .data import Federation
from .recipe.load import OLD_TRAIN_KEYS, rename_train_keys
from .recipe.load import load as load_recipe
from .recipe.schema import MetricsConfig, Recipe, TrainConfig
from .run.arguments import check_federation, check_options
from .run.engines import OneByOne
from .run.from_memory import check_variants, make_experiment, make_label
from .run.plan import Experiment, PlannedRun
from .run.results import Results, RunResult
from .run.runner import execute, store_of
from .run.saved_model import add_facts, finish_model, load_model
from .run.watch import Watcher
from .util.errors import Diverged, InputError
from .util.tables import Json, Options
from .util.validation import validate

__all__ = ["Run", "compare", "load_model", "run_recipe", "train"]


@dataclass
class Run:
    """A trained model, and the values that were measured in every round.

    With ``Local``, which has no model in common, ``model`` is the untrained start.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> x, y = rng.random((60, 4), dtype=np.float32), np.arange(60) % 3
    >>> federation = Federation.from_arrays(x, y, x, y, clients=3, partition="iid")
    >>> run = train(federation, "mlp", rounds=3, local_steps=1, hidden=(5,), evaluate_every=2)
    >>> len(run.loss), len(run.accuracy)  # tested after rounds 2 and 3
    (3, 2)
    >>> run.model.predict(x).shape
    torch.Size([60])
    """

    model: FedModel
    rounds: Sequence[RoundRecord] = field(default_factory=list, repr=False)
    models: list[FedModel] = field(default_factory=list, repr=False)  # each client's own, if kept

    @property
    def lines(self) -> list[Json]:
        """Every round as a line of ``metrics.jsonl``."""
        return [record.to_json() for record in self.rounds]

    @property
    def accuracy(self) -> list[float]:
        """Accuracy of the model, one value for every round that was tested."""
        return [record.accuracy for record in self.rounds if record.accuracy is not None]

    @property
    def accuracy_clients(self) -> list[list[float | None]]:
        """Accuracy for each client, one list for every round that was tested."""
        values = []
        for record in self.rounds:
            if record.accuracy_clients is not None:
                values.append(list(record.accuracy_clients))
        return values

    @property
    def loss(self) -> list[float]:
        """Training loss, one value a round."""
        return [record.loss for record in self.rounds]

    @property
    def bias(self) -> list[Json]:
        """How biased the clients' models were before they were averaged.

        One entry for every round in which they were tested (``bias_every``).
        """
        entries = []
        for record in self.rounds:
            if record.bias is not None:
                line = record.bias.to_json()
                local = line["accuracy_local"]
                entries.append({"round": record.round, "accuracy_local": local, **line["bias"]})
        return entries

    @property
    def seconds_train(self) -> list[float]:
        """Wall time of training, one value a round."""
        return [record.seconds_train for record in self.rounds]

    @property
    def bytes(self) -> list[tuple[int, int]]:
        """Bytes that clients sent and received, one pair a round."""
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
    watch: Callable[[Json], object] | None = None,
    **model_options: Any,
) -> Run:
    """Train one model across the clients of a federation.

    Ctrl-C ends the training and returns what is done. With ``workers`` above 1, call it under
    ``if __name__ == "__main__":`` as for every Python process pool.

    Args:
        federation: the clients and their samples.
        model: one of ``fedbr list models`` by its name, or your own module, which is copied and
            starts from the weights that it has.
        methods: the methods, in the order in which they act; none is FedAvg.
        rounds: how many rounds are trained.
        local_steps: steps of every client in a round.
        batch_size: samples in a step, drawn with replacement.
        lr: learning rate of the clients' optimizer.
        optimizer: of the clients, one of ``fedbr.core.optim.OPTIMIZERS``.
        momentum: within a round; the optimizer is fresh in each.
        nesterov: whether the momentum is Nesterov's.
        weight_decay: L2 penalty.
        clients_per_round: how many clients are drawn for each round; None: all.
        aggregate: whether clients' models are averaged with equal weights, or with weights by
            their numbers of samples.
        evaluate_every: rounds between tests of the model; 0: only at the end.
        evaluate_samples: samples of each test set in the rounds before the last; None: all.
        bias_every: rounds between tests of every client's own model (see ``Run.bias``); 0: never.
        metrics: more metrics, by their names in ``fedbr list metrics`` or "package.module:Class".
        workers: processes that the clients of a round are spread over.
        seed: of the initial weights, the batches and the clients of each round.
        clients_at_once: clients that train as one tensor program.
        dtype: precision of the weights.
        device: such as "cpu" or "cuda"; "auto" is a GPU if there is one.
        amp: compute in bfloat16 where that is safe.
        out: a result folder as ``fedbr run`` writes it, with a checkpoint after every round;
            called again with the same arguments, training goes on there. None: nothing is written.
        fresh: start over in ``out``.
        watch: is called after every round with its line of ``metrics.jsonl``; an exception in it
            ends the training.
        model_options: options of a model by name, such as ``width=0.25``.

    Returns:
        The trained model and the values of every round.

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
    arguments = dict(locals())
    check_federation(federation, workers)
    parameters = {*signature(train).parameters, *OLD_TRAIN_KEYS}
    check_options("train", model, model_options, parameters)
    if isinstance(methods, Method) or not isinstance(methods, Sequence):
        raise InputError(f"methods = {methods!r}: must be a list, such as [fedbr.FedBR(lam=0.1)]")
    if watch is not None and not callable(watch):
        raise InputError(
            f"watch = {watch!r}: must be a function of a round's values, such as print"
        )
    settings = _read_settings(arguments, [seed], model_options)
    variants = {make_label(methods): list(methods)}
    experiment = make_experiment(
        federation, model, model_options, variants, settings.train, settings.metrics, out
    )
    results = _execute(experiment, workers, fresh, _Callback(watch))
    return _make_run(experiment, results.runs[0] if results.runs else None, seed)


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
        seeds: how many, from 0 on, or a list of them. Every seed draws its own batches and, for a
            model by its name, its own initial weights.
        targets: accuracies whose first round is recorded.
        target: the one of them that the table shows.
        out: a result folder, of which ``fedbr report`` makes a page; called again with the same
            arguments, training goes on there.

    Returns:
        The results of all runs, variant by variant and seed by seed.

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
    arguments = dict(locals())
    check_federation(federation, workers)
    parameters = {*signature(compare).parameters, *OLD_TRAIN_KEYS}
    check_options("compare", model, model_options, parameters)
    variants = check_variants(methods)
    settings = _read_settings(arguments, _list_seeds(seeds), model_options)
    experiment = make_experiment(
        federation, model, model_options, variants, settings.train, settings.metrics, out
    )
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
        recipe: a shipped one by its name, a TOML file, or a ``Recipe``.
        out: the result folder; called again with the same arguments, training goes on there. None:
            results stay in memory.
        overrides: as of ``--set``, such as "train.rounds=5".
        methods: as of ``--methods``, such as "fedavg" or "mixup+fedbr".
        workers: processes; None: one for every core that there is work for.
        fresh: start over in ``out``.

    Returns:
        The results of all runs, variant by variant and seed by seed.

    Raises:
        InputError: the recipe is wrong; the line names the key and what is allowed.

    >>> short = ["train.rounds=1", "train.local_steps=1"]
    >>> results = run_recipe("digits", overrides=short, methods=["fedavg"])
    >>> results.runs[0].label
    'FedAvg'
    """
    if not isinstance(recipe, Recipe):
        recipe = load_recipe(str(recipe), overrides, methods)
    experiment = Experiment(recipe, None if out is None else Path(out))
    return _execute(experiment, workers, fresh, Watcher())


@dataclass(frozen=True)
class _Settings:
    """The sections of a recipe that the arguments of a function make."""

    train: TrainConfig
    metrics: MetricsConfig


def _read_settings(arguments: Options, seeds: list[int], model_options: Options) -> _Settings:
    """Validate the arguments that are settings of a recipe too."""
    train = {}
    for name, value in arguments.items():
        if name in TrainConfig.model_fields:
            train[name] = value
    for old, new in OLD_TRAIN_KEYS.items():
        if old in model_options:
            train[old] = model_options.pop(old)
            del train[new]
    train = rename_train_keys(train, warn=True) | {"seeds": seeds}
    metrics = {"bias_every": arguments["bias_every"], "extra": list(arguments["metrics"])}
    for name in ("targets", "target"):
        value = arguments.get(name)
        if value is not None:
            metrics[name] = list(value) if isinstance(value, tuple) else value
    return _Settings(
        train=validate(TrainConfig, train, "train"),
        metrics=validate(MetricsConfig, metrics, "train"),
    )


def _list_seeds(seeds: int | Sequence[int]) -> list[int]:
    if isinstance(seeds, int):
        if seeds < 1:
            raise InputError(f"seeds = {seeds}: expected at least 1, or a list such as [0, 1, 2]")
        return list(range(seeds))
    return list(seeds)


def _execute(experiment: Experiment, workers: int | None, fresh: bool, watch: Watcher) -> Results:
    """Train, and return the results: of all runs, or of those that have begun when Ctrl-C comes."""
    store = store_of(experiment)
    try:
        execute([experiment], OneByOne(workers), fresh=fresh, watch=watch, stores=[store])
    except KeyboardInterrupt:
        has_begun = any(store.run(run.variant, run.seed).begun for run in experiment.runs())
        if not has_begun:
            raise
    return store.results()


class _Callback(Watcher):
    """Calls a function of the user's after every round."""

    def __init__(self, watch: Callable[[Json], object] | None) -> None:
        self.watch = watch

    def round_done(self, run: PlannedRun, record: RoundRecord) -> None:
        if self.watch is not None:
            self.watch(record.to_json())


def _make_run(experiment: Experiment, result: RunResult | None, seed: int) -> Run:
    """Make the models of a run from its weights after the last round that is done."""
    if result is not None and result.diverged_at is not None:
        at = result.diverged_at
        raise Diverged(at.round, at.client, at.what)
    source, (variant,) = experiment.source, experiment.recipe.compare
    clients = source.clients(seed)
    model = source.setup(variant, seed, clients).model
    add_facts(model, clients.census.seen_as | {"shape": clients.census.shape})
    weights = None if result is None else result.weights()
    if result is None or weights is None:
        return Run(finish_model(model, model.weights()))
    personal = [finish_model(model, state) for state in weights.personal]
    return Run(finish_model(model, weights.common), result.rounds, personal)
