"""Diagnose: clients train from the same global weights with each method; models before and after are compared."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict
from inspect import signature
from typing import Any, Literal

import torch
from torch import nn

from .. import models
from ..backends.pool import WorkerPool
from ..backends.process import one_thread
from ..config import TrainConfig
from ..core.errors import InputError, unknown
from ..core.method import trained
from ..core.model import Output
from ..core.rng import torch_stream
from ..core.validation import validated
from ..core.wire import State
from ..data import Federation
from ..metrics.bias import drift, gram
from ..results.diagnosis import Diagnosis, View
from .case import Case, Options, Sides, before_and_after
from .local import as_one, centrally, fresh_classifier, local_round, outputs, prepared
from .numbers import definitions, describe, summary
from .sample import Known, Probe, balanced, choose_clients, known

Watch = Callable[[str, int, int], None]  # what is being done, steps done, steps in all


def diagnose(
    federation: Federation,
    model: nn.Module | str = "cnn",
    methods: Sides | None = None,
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
    """Measure what one round of local training does to a global model, with FedAvg and with the parts of FedBR.

    ``model`` is the global model: a module of yours with the weights that it has (such as ``run.model``), or a name of
    the table (with ``model_options`` such as width=0.25), which ``pretrain`` epochs on everybody's data train first.
    ``methods`` names other sides to compare: {"FedAvg": [], "FedProx": [fedbr.FedProx(mu=0.1)]}.
    ``save`` of the result writes figures and numbers.
    """
    given = locals()
    options = validated(Options, {k: given[k] for k in Options.model_fields}, "diagnose")
    train = validated(TrainConfig, {k: given[k] for k in TrainConfig.model_fields if k in given}, "diagnose")
    if not isinstance(federation, Federation):
        raise InputError(
            f"federation: {type(federation).__name__} is not one; make it with fedbr.Federation.from_arrays"
        )
    if not isinstance(workers, int) or workers < 1:
        raise InputError(f"workers = {workers!r}: must be a whole number of at least 1")
    sides = before_and_after() if methods is None else methods
    if not hasattr(sides, "items") or not sides:
        raise InputError("methods: wants lists of methods by label, such as {'FedAvg': [], 'FedBR': [fedbr.FedBR()]}")
    if model_options and not isinstance(model, str):
        raise unknown("diagnose: argument", next(iter(model_options)), signature(diagnose).parameters)
    with torch_stream(seed, "model"):
        begin = (
            models.build(model, model_options, federation.shape, federation.num_classes)
            if isinstance(model, str)
            else models.adopt(copy.deepcopy(model), federation.shape)
        )
    begin.extras.clear()
    return examine(Case(federation, begin, sides, train, seed), options, workers, watch)


def examine(case: Case, options: Options, workers: int = 1, watch: Watch = lambda *_: None) -> Diagnosis:
    """Train the chosen clients with every side of the case, and compare."""
    begun, federation = time.perf_counter(), case.federation
    chosen = choose_clients(federation, options.clients, options.client, case.seed)
    probe = balanced(federation, options.samples, case.seed, getattr(torch, case.train.dtype))
    shown = chosen[0] if options.client is None else options.client
    whose = known(federation, chosen)
    size = sum(len(federation.train.parts[c]) for c in chosen) / len(chosen)
    steps = case.train.local_steps
    if options.epochs is not None:
        steps = options.epochs * math.ceil(size / case.train.batch_size)
    train = as_one(case.train, len(chosen), steps)
    stages = bool(options.pretrain) + len(case.sides)
    with one_thread(), ExitStack() as exits:
        pool = exits.enter_context(WorkerPool(workers)) if workers > 1 else None
        everybody, start = weights(case, options, lambda: watch("central training", 0, stages))
        job = prepared(case.model, everybody, [], federation, train, case.seed)
        (before,) = outputs(job, [everybody], probe.x)
        sides, after, averaged = [], {}, None
        for i, (label, methods) in enumerate(case.sides.items()):
            watch(label, bool(options.pretrain) + i, stages)
            job = prepared(case.model, start, methods, federation, train, case.seed)
            local, aggregated = local_round(job, federation, chosen, case.round, pool)
            *each, whole = outputs(job, [*local, aggregated], probe.x)
            after[label] = each[chosen.index(shown)]
            averaged = averaged or whole
            products = {name: gram(job.model.weights(), local, name) for name in trained(job.model)}
            sides.append(
                {
                    "label": label,
                    "methods": [{"name": m.name, **m.model_dump(exclude_none=True)} for m in methods],
                    **summary(whose, probe, before, each),
                    "accuracy_aggregated": describe(whose[0], probe, before, whole)["accuracy"],
                    "drift": drift(torch.stack(list(products.values())).sum(dim=0))
                    | {"layers": {name: drift(product) for name, product in products.items()}},
                }
            )
        watch("pictures", stages, stages)
    numbers = {
        "about": case.about | _about(case, options, train, whose, probe, steps),
        "metrics": definitions(),
        "clients": [asdict(one) for one in whose],
        "global": summary(whose, probe, before, [before] * len(whose)),
        "methods": sides,
        "seconds": time.perf_counter() - begun,
    }
    assert averaged is not None  # a case has sides
    return Diagnosis(numbers, _view(case, shown, whose, probe, (before, after, averaged)))


def weights(case: Case, options: Options, announce: Callable[[], None]) -> tuple[State, State]:
    """Return the global weights, and those that the clients begin with."""
    initial = {k: v.clone() for k, v in case.model.weights().items()}
    everybody = case.weights or initial
    if options.pretrain:
        announce()
        everybody = centrally(case.model, case.federation, options.pretrain, case.train, case.seed)
    if options.start == "scratch":
        if not options.pretrain and case.weights is None:
            raise InputError("start = 'scratch': the global model is not trained either; add pretrain epochs")
        return everybody, initial
    if options.start == "features":
        return everybody, fresh_classifier(case.model, everybody, case.seed)
    return everybody, everybody


def _about(
    case: Case, options: Options, train: TrainConfig, whose: list[Known], probe: Probe, steps: int
) -> dict[str, Any]:
    return {
        "clients": [one.client for one in whose],
        "clients_in_all": len(case.federation.train.parts),
        "samples": len(probe.y),
        "samples_per_class": probe.per_class,
        "samples_available": probe.available,
        "round": case.round,
        "pretrain_epochs": options.pretrain,
        "start": options.start,
        "local_steps": steps,
        "epochs": options.epochs,
        **train.model_dump(include={"batch_size", "lr", "momentum", "weight_decay", "dtype"}),
        "seed": case.seed,
    }


def _view(
    case: Case, shown: int, whose: list[Known], probe: Probe, found: tuple[Output, dict[str, Output], Output]
) -> View:
    own = next(one for one in whose if one.client == shown)
    names = case.federation.class_names or [str(c) for c in range(case.federation.num_classes)]
    return View(shown, probe.x, probe.y, own.seen, own.unseen, list(names), *found, case.seed)
