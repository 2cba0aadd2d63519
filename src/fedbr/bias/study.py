"""Diagnose: clients train from the same global weights with each variant, and their models are
compared with the global one.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from inspect import signature
from typing import Any, Literal

import torch
from torch import nn

from ..backends.pool import WorkerPool
from ..core.method import Method, trained
from ..core.model import Output
from ..core.setup import Setup
from ..core.wire import State
from ..data import Federation
from ..metrics.bias import accuracy
from ..metrics.local import Classes, drifts, seen_and_unseen
from ..recipe.schema import TrainConfig
from ..run.arguments import check_federation, check_options, starting_model
from ..run.diagnosis import About, ClientClasses, DiagnosisRecord, Measures, Models, VariantBias
from ..run.from_memory import check_listed
from ..util.errors import Diverged, InputError, RunError
from ..util.processes import one_thread
from ..util.validation import validated
from .case import Case, Options, before_and_after
from .diagnosis import Diagnosis, View
from .measures import DEFINITIONS, guesses, measure_all
from .sample import Probe, choose_clients, draw_balanced
from .training import (
    LocalRound,
    fresh_classifier,
    one_round,
    outputs,
    play_from,
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
    given = dict(locals())
    options = validated(Options, {k: given[k] for k in Options.model_fields}, "diagnose")
    settings = {k: given[k] for k in TrainConfig.model_fields if k in given}
    train = validated(TrainConfig, settings, "diagnose")
    check_federation(federation, workers)
    variants = check_listed(before_and_after() if methods is None else methods)
    check_options("diagnose", model, model_options, signature(diagnose).parameters)
    begin = starting_model(model, model_options, federation, seed)
    begin.extras.clear()
    return examine(Case(federation, begin, variants, train, seed), options, workers, watch)


@dataclass(frozen=True)
class Outcome:
    """What a variant has done to the clients' models."""

    bias: VariantBias
    local: Sequence[Output] = ()  # what each client's model makes of the samples
    averaged: Output | None = None  # what the aggregated model makes of them


@dataclass(frozen=True)
class Study:
    """Everything that is the same for all variants of a case."""

    case: Case
    known: Mapping[int, Classes]  # the clients that train, and the classes of each
    probe: Probe
    start: State  # the weights that clients begin with
    before: Output  # what the global model makes of the samples
    pool: WorkerPool | None

    def play(self, label: str, setup: Setup) -> Outcome:
        """Let the clients train with the methods of a variant, and measure their models."""
        case, clients = self.case, list(self.known)
        try:
            made = play_from(self.start, setup, case.federation, clients, case.round, self.pool)
            local, averaged = self._ask(setup, made)
        except Diverged as error:
            nothing = Models(Measures(), [])
            return Outcome(VariantBias(label, _tables(setup), str(error), nothing, None))
        updates = drifts(self.start, made.local, trained(setup.model))
        bias = VariantBias(
            label,
            _tables(setup),
            diverged=None,
            models=measure_all(self.known, self.probe, self.before, local),
            accuracy_aggregated=averaged and accuracy(guesses(self.probe, averaged)),
            drift=updates.whole,
            layers=updates.layers,
        )
        return Outcome(bias, local, averaged)

    def _ask(self, setup: Setup, made: LocalRound) -> tuple[list[Output], Output | None]:
        """Return what each client's model makes of the samples, and what their average does.

        Raises Diverged if that is not finite.
        """
        local, averaged = outputs(setup, made.local, self.probe.x), None
        if made.aggregated is not None:
            (averaged,) = outputs(setup, [made.aggregated], self.probe.x)
        clients = list(self.known)
        named = list(zip(clients, local, strict=True))
        if averaged is not None:
            named.append((clients[0], averaged))
        for client, out in named:
            if not _is_finite(out):
                what = "the output of its model, or of the average, is not finite"
                raise Diverged(self.case.round, client, what)
        return local, averaged


def examine(
    case: Case, options: Options, workers: int = 1, watch: Watch = lambda *_: None
) -> Diagnosis:
    """Train the chosen clients with every variant of the case, and compare."""
    begin, federation = time.perf_counter(), case.federation
    clients = choose_clients(federation, options.clients, options.client, case.seed)
    probe = draw_balanced(federation, options.samples, case.seed, getattr(torch, case.train.dtype))
    census = federation.census
    classes = seen_and_unseen(census.label_mix, census.sizes, clients)
    known = dict(zip(clients, classes, strict=True))
    train = one_round(case.train, len(clients), _steps(case, options, clients))
    # All that can be refused is refused before anything is trained.
    plain = setup_for(case.model, [], federation, train, case.seed)
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
        weights, start = _weights(case, options)
        (before,) = outputs(plain, [weights], probe.x)
        if not _is_finite(before):
            raise RunError("the global model's output is not finite")
        study = Study(case, known, probe, start, before, pool)
        for done, (label, setup) in enumerate(setups.items(), start=trains_first):
            watch(label, done, stages)
            outcomes[label] = study.play(label, setup)
        watch("", stages, stages)
    pictured = clients[0] if options.client is None else options.client
    view = _view(study, outcomes, pictured)
    record = DiagnosisRecord(
        about=_about(case, options, train, clients, probe),
        metrics=DEFINITIONS,
        clients=[
            ClientClasses(client, tuple(own.seen), tuple(own.unseen), own.scarce)
            for client, own in known.items()
        ],
        global_model=measure_all(known, probe, before, [before] * len(known)),
        variants=[outcome.bias for outcome in outcomes.values()],
        seconds=time.perf_counter() - begin,
    )
    return Diagnosis(record, view)


def _steps(case: Case, options: Options, clients: Sequence[int]) -> int:
    """Return how many local steps there are; an epoch is of the mean size of the clients."""
    if options.epochs is None:
        return case.train.local_steps
    size = sum(len(case.federation.train.parts[c]) for c in clients) / len(clients)
    return options.epochs * math.ceil(size / case.train.batch_size)


def _weights(case: Case, options: Options) -> tuple[State, State]:
    """Return the global weights, and those that the clients begin with."""
    initial = {k: v.clone() for k, v in case.model.weights().items()}
    if options.start == "scratch" and not options.pretrain and case.weights is None:
        raise InputError(
            "start = 'scratch': the global model is not trained either; add pretrain epochs"
        )
    classifier = fresh_classifier(case.model, case.seed) if options.start == "features" else {}
    weights = case.weights or initial
    if options.pretrain:
        epochs = options.pretrain
        weights = train_centrally(case.model, case.federation, epochs, case.train, case.seed)
    return weights, initial if options.start == "scratch" else weights | classifier


def _view(study: Study, outcomes: Mapping[str, Outcome], client: int) -> View:
    """Return what the pictures show of one client; RunError if every variant diverged."""
    place = list(study.known).index(client)
    after = {label: made.local[place] for label, made in outcomes.items() if made.local}
    if not after:
        lost = "; ".join(f"{label}: {made.bias.diverged}" for label, made in outcomes.items())
        raise RunError(f"every variant diverged ({lost})")
    federation, own = study.case.federation, study.known[client]
    return View(
        client,
        study.probe.x,
        study.probe.y,
        own.seen,
        own.unseen,
        list(federation.class_names or map(str, range(federation.num_classes))),
        study.before,
        after,
        outcomes[next(iter(after))].averaged,
        study.case.seed,
    )


def _about(
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


def _tables(setup: Setup) -> list[dict[str, Any]]:
    """Write the methods of a variant as a recipe does."""
    return [{"name": m.name, **m.model_dump(exclude_none=True)} for m in setup.methods]


def _is_finite(out: Output) -> bool:
    return all(bool(t.isfinite().all()) for t in out)
