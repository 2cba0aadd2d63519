"""Diagnose: clients train from the same global weights with each variant.

Their models are then compared with the global one.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from inspect import signature
from typing import Any, Literal

import torch
from torch import nn

from ..backends.pool import WorkerPool
from ..core.method import Method
from ..core.wire import State
from ..data import Federation
from ..metrics.local import split_classes
from ..recipe.schema import TrainConfig
from ..run.arguments import check_federation, check_options, starting_model
from ..run.diagnosis import About, ClientClasses, DiagnosisRecord
from ..run.from_memory import check_variants
from ..util.errors import InputError, RunError
from ..util.processes import one_thread
from ..util.validation import validate
from .case import Case, Options, before_and_after
from .diagnosis import Diagnosis, View
from .measures import DEFINITIONS, measure_all
from .outcome import Outcome, Study, is_finite
from .sample import Probe, choose_clients, draw_balanced
from .training import (
    fresh_classifier,
    one_round,
    outputs,
    setup_for,
    train_centrally,
)

Watch = Callable[[str, int, int], object]  # what is being done, steps done, steps in all


def diagnose(
    federation: Federation,
    model: nn.Module | str = "cnn",
    methods: Mapping[str, Sequence[Method]] | None = None,
    *,
    clients: int = 10,
    client: int | None = None,
    samples: int = 1000,
    pretrain: int = 0,
    epochs: int | None = None,
    start: Literal["model", "features", "scratch"] = "model",
    local_steps: int = 50,
    batch_size: int = 32,
    lr: float = 0.01,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    aggregate: Literal["uniform", "samples"] = "uniform",
    workers: int = 1,
    seed: int = 0,
    dtype: Literal["float32", "float64"] = "float32",
    device: str = "auto",
    watch: Watch = lambda *_: None,
    **model_options: Any,
) -> Diagnosis:
    """Measure what one round of local training does to a global model.

    Arguments that are not listed here are those of ``train``.

    Args:
        model: the global model: a module of yours with the weights that it has (such as
            ``run.model``), or a name of the table (with ``model_options`` such as
            ``width=0.25``), which ``pretrain`` epochs on everybody's data train first.
        methods: the variants that are compared, lists of methods by label, such as
            {"FedAvg": [], "FedProx": [fedbr.FedProx(mu=0.1)]}. None: FedAvg, either component of
            FedBR, and both.
        clients: how many train, drawn if there are more.
        client: the one in the pictures; None: the first of them.
        samples: test samples to look at, as many of each class.
        epochs: local epochs; None: ``local_steps`` steps.
        start: what clients begin with: the global model, its feature extractor, or fresh weights.
        watch: is called with what is being done, the steps that are done, and those in all.

    Returns:
        All figures, and a view of one client; its ``save`` writes numbers and pictures.

    Raises:
        InputError: an argument is wrong; the line names it and what is allowed.
        RunError: the global model's output is not finite, or every variant diverged.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> x, y = rng.random((60, 4), dtype=np.float32), np.arange(60) % 3
    >>> federation = Federation.from_clients([(x[y < 2], y[y < 2]), (x, y)], test=(x, y))
    >>> diagnosis = diagnose(federation, "mlp", {"FedAvg": []}, local_steps=1, hidden=(5,))
    >>> diagnosis.table()[0]
    ['', 'global', 'FedAvg']
    """
    arguments = dict(locals())
    of_options = {name: arguments[name] for name in Options.model_fields}
    options = validate(Options, of_options, "diagnose")
    of_training = {name: arguments[name] for name in TrainConfig.model_fields if name in arguments}
    train = validate(TrainConfig, of_training, "diagnose")
    check_federation(federation, workers)
    variants = check_variants(before_and_after() if methods is None else methods)
    check_options("diagnose", model, model_options, signature(diagnose).parameters)
    net = starting_model(model, model_options, federation, seed)
    net.extras.clear()
    return examine(Case(federation, net, variants, train, seed), options, workers, watch)


def examine(
    case: Case, options: Options, workers: int = 1, watch: Watch = lambda *_: None
) -> Diagnosis:
    """Train the chosen clients with every variant of the case, and compare.

    Args:
        case: the global model, who trains it, and the variants.
        options: how to look.
        workers: processes; they change no result.
        watch: is called with what is being done, the steps that are done, and those in all.

    Raises:
        InputError: an option does not fit the case.
        RunError: the global model's output is not finite, or every variant diverged.
    """
    start_time = time.perf_counter()
    federation, census = case.federation, case.federation.census
    clients = choose_clients(federation, options.clients, options.client, case.seed)
    probe = draw_balanced(federation, options.samples, case.seed, getattr(torch, case.train.dtype))
    split = split_classes(census.label_mix, census.sizes, clients)
    classes = dict(zip(clients, split, strict=True))
    train = one_round(case.train, len(clients), _count_steps(case, options, clients))
    # All that can be refused is refused before anything is trained.
    fedavg = setup_for(case.model, [], federation, train, case.seed)
    setups = {}
    for label, methods in case.variants.items():
        setups[label] = setup_for(case.model, methods, federation, train, case.seed)
    trains_first = bool(options.pretrain)
    stages = trains_first + len(setups)
    outcomes = {}
    with one_thread(), ExitStack() as exits:
        pool = exits.enter_context(WorkerPool(workers)) if workers > 1 else None
        if trains_first:
            watch("central training", 0, stages)
        weights, start = _make_weights(case, options)
        (before,) = outputs(fedavg, [weights], probe.x)
        if not is_finite(before):
            raise RunError("the global model's output is not finite")
        study = Study(case, classes, probe, start, before, pool)
        for done, (label, setup) in enumerate(setups.items(), start=trains_first):
            watch(label, done, stages)
            outcomes[label] = study.play(label, setup)
        watch("", stages, stages)
    pictured = clients[0] if options.client is None else options.client
    view = _make_view(study, outcomes, pictured)
    record = DiagnosisRecord(
        about=_describe(case, options, train, clients, probe),
        metrics=DEFINITIONS,
        clients=[
            ClientClasses(client, tuple(own.seen), tuple(own.unseen), own.scarce)
            for client, own in classes.items()
        ],
        global_model=measure_all(classes, probe, before, [before] * len(classes)),
        variants=[outcome.bias for outcome in outcomes.values()],
        seconds=time.perf_counter() - start_time,
    )
    return Diagnosis(record, view)


def _count_steps(case: Case, options: Options, clients: Sequence[int]) -> int:
    """Return the number of local steps; an epoch is of the mean size of the clients."""
    if options.epochs is None:
        return case.train.local_steps
    parts = case.federation.train.parts
    size = sum(len(parts[client]) for client in clients) / len(clients)
    return options.epochs * math.ceil(size / case.train.batch_size)


def _make_weights(case: Case, options: Options) -> tuple[State, State]:
    """Return the global weights, and those that the clients begin with."""
    initial = {name: value.clone() for name, value in case.model.weights().items()}
    if options.start == "scratch" and not options.pretrain and case.weights is None:
        raise InputError(
            "start = 'scratch': the global model is not trained either; add pretrain epochs"
        )
    classifier: State = {}
    if options.start == "features":
        classifier = fresh_classifier(case.model, case.seed)
    weights = case.weights or initial
    if options.pretrain:
        epochs = options.pretrain
        weights = train_centrally(case.model, case.federation, epochs, case.train, case.seed)
    start = initial if options.start == "scratch" else weights | classifier
    return weights, start


def _make_view(study: Study, outcomes: Mapping[str, Outcome], client: int) -> View:
    """Return what the pictures show of one client; RunError if every variant diverged."""
    position = list(study.classes).index(client)
    after = {}
    for label, outcome in outcomes.items():
        if outcome.local:
            after[label] = outcome.local[position]
    if not after:
        reasons = [f"{label}: {outcome.bias.diverged}" for label, outcome in outcomes.items()]
        raise RunError(f"every variant diverged ({'; '.join(reasons)})")
    federation, own = study.case.federation, study.classes[client]
    first = next(iter(after))
    return View(
        client,
        x=study.probe.x,
        y=study.probe.y,
        seen=own.seen,
        unseen=own.unseen,
        classes=list(federation.class_names or map(str, range(federation.num_classes))),
        before=study.before,
        after=after,
        averaged=outcomes[first].averaged,
        seed=study.case.seed,
    )


def _describe(
    case: Case, options: Options, train: TrainConfig, clients: Sequence[int], probe: Probe
) -> About:
    return About(
        clients=tuple(clients),
        clients_in_all=len(case.federation.train.parts),
        samples=len(probe.y),
        samples_per_class=probe.per_class,
        samples_available=probe.available,
        round=case.round,
        pretrain_epochs=options.pretrain,
        start=options.start,
        epochs=options.epochs,
        local_steps=train.local_steps,
        batch_size=train.batch_size,
        lr=train.lr,
        momentum=train.momentum,
        weight_decay=train.weight_decay,
        dtype=train.dtype,
        seed=case.seed,
        **asdict(case.origin),
    )
