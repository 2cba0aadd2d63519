"""Diagnose: clients train from the same global weights with each method; models before and after
are compared.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
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
from ..run.arguments import check_federation, starting_model
from ..util.errors import Diverged, InputError, RunError
from ..util.processes import one_thread
from ..util.validation import validated
from .case import Case, Options, Sides, before_and_after
from .local import as_one, centrally, fresh_classifier, local_round, outputs, prepared
from .numbers import definitions, guesses, summary
from .report import Diagnosis, View
from .sample import Probe, balanced, choose_clients

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
    """Measure what one round of local training does to a global model, with FedAvg and with the
    parts of FedBR.

    ``model`` is the global model: a module of yours with the weights that it has (such as
    ``run.model``), or a name of the table (with ``model_options`` such as width=0.25), which
    ``pretrain`` epochs on everybody's data train first. ``methods`` names other sides to compare:
    {"FedAvg": [], "FedProx": [fedbr.FedProx(mu=0.1)]}. ``save`` of the result writes figures and
    numbers.
    """
    given = locals()
    options = validated(Options, {k: given[k] for k in Options.model_fields}, "diagnose")
    train = validated(
        TrainConfig, {k: given[k] for k in TrainConfig.model_fields if k in given}, "diagnose"
    )
    check_federation(federation, workers)
    sides = _checked(before_and_after() if methods is None else methods)
    begin = starting_model(
        "diagnose", model, model_options, federation, seed, signature(diagnose).parameters
    )
    begin.extras.clear()
    return examine(Case(federation, begin, sides, train, seed), options, workers, watch)


def _checked(sides: Any) -> Sides:
    example = "such as {'FedAvg': [], 'FedBR': [fedbr.FedBR()]}"
    if not isinstance(sides, Mapping) or not sides:
        raise InputError(f"methods: wants lists of methods by label, {example}")
    for label, variant in sides.items():
        if not isinstance(label, str) or not label:
            raise InputError(
                f"methods: {label!r} is no label; wants lists of methods by label, {example}"
            )
        if not isinstance(variant, Sequence) or not all(isinstance(m, Method) for m in variant):
            raise InputError(
                f"methods[{label!r}] = {variant!r}: must be a list of methods, {example}"
            )
    return sides


def examine(
    case: Case, options: Options, workers: int = 1, watch: Watch = lambda *_: None
) -> Diagnosis:
    """Train the chosen clients with every side of the case, and compare."""
    begun, federation = time.perf_counter(), case.federation
    chosen = choose_clients(federation, options.clients, options.client, case.seed)
    probe = balanced(federation, options.samples, case.seed, getattr(torch, case.train.dtype))
    known = dict(
        zip(chosen, seen_and_unseen(federation.label_mix, federation.sizes, chosen), strict=True)
    )
    train = as_one(case.train, len(chosen), _steps(case, options, chosen))
    # All that can be refused is refused before anything is trained.
    judge = prepared(case.model, [], federation, train, case.seed)
    jobs = {
        k: prepared(case.model, methods, federation, train, case.seed)
        for k, methods in case.sides.items()
    }
    stages = bool(options.pretrain) + len(jobs)
    found = {}
    with one_thread(), ExitStack() as exits:
        pool = exits.enter_context(WorkerPool(workers)) if workers > 1 else None
        everybody, start = weights(case, options, lambda: watch("central training", 0, stages))
        (before,) = outputs(judge, [everybody], probe.x)
        if not _finite(before):
            raise RunError("the global model's output is not finite")
        for i, (label, setup) in enumerate(jobs.items()):
            watch(label, bool(options.pretrain) + i, stages)
            found[label] = _side(setup, start, case, pool, known, probe, before)
        watch("", stages, stages)
    shown = chosen[0] if options.client is None else options.client
    after = {label: made[chosen.index(shown)] for label, (_, made, _) in found.items() if made}
    if not after:
        lost = "; ".join(f"{label}: {side['diverged']}" for label, (side, *_) in found.items())
        raise RunError(f"every side diverged ({lost})")
    numbers = {
        "about": case.about | _about(case, options, train, chosen, probe),
        "metrics": definitions(),
        "clients": [{"client": client, **own._asdict()} for client, own in known.items()],
        "global": summary(known, probe, before, [before] * len(known)),
        "methods": [{"label": label, **side} for label, (side, *_) in found.items()],
        "seconds": time.perf_counter() - begun,
    }
    names = federation.class_names or [str(c) for c in range(federation.num_classes)]
    own, averaged = known[shown], found[next(iter(after))][2]
    view = View(
        shown,
        probe.x,
        probe.y,
        own.seen,
        own.unseen,
        list(names),
        before,
        after,
        averaged,
        case.seed,
    )
    return Diagnosis(numbers, view)


def _steps(case: Case, options: Options, chosen: list[int]) -> int:
    if options.epochs is None:
        return case.train.local_steps
    size = sum(len(case.federation.train.parts[c]) for c in chosen) / len(chosen)
    return options.epochs * math.ceil(size / case.train.batch_size)


def _side(
    setup: Setup,
    start: State,
    case: Case,
    pool: WorkerPool | None,
    known: Mapping[int, Classes],
    probe: Probe,
    before: Output,
) -> tuple[dict[str, Any], list[Output], Output | None]:
    """Let the clients train; return the numbers, and what their models and the aggregated one make
    of the samples.
    """
    side: dict[str, Any] = {
        "methods": [{"name": m.name, **m.model_dump(exclude_none=True)} for m in setup.methods]
    }
    try:
        local, together = local_round(setup, start, case.federation, list(known), case.round, pool)
        made = list(outputs(setup, [*local, *([] if together is None else [together])], probe.x))
        if (bad := next((i for i, out in enumerate(made) if not _finite(out)), None)) is not None:
            client = [*known, next(iter(known))][
                bad
            ]  # behind the clients' models comes their average
            raise Diverged(
                case.round, client, "the output of its model, or of the average, is not finite"
            )
    except Diverged as error:
        nothing: dict[str, Any] = {
            "mean": {},
            "clients": [],
            "accuracy_aggregated": None,
            "drift": drifts(None, [], []),
        }
        return side | {"diverged": str(error), **nothing}, [], None
    each, averaged = made[: len(local)], None if together is None else made[-1]
    numbers = {
        **summary(known, probe, before, each),
        "accuracy_aggregated": None if averaged is None else accuracy(guesses(probe, averaged)),
        "drift": drifts(start, local, trained(setup.model)),
    }
    return side | {"diverged": None, **numbers}, each, averaged


def _finite(out: Output) -> bool:
    return all(bool(t.isfinite().all()) for t in out)


def weights(case: Case, options: Options, announce: Callable[[], None]) -> tuple[State, State]:
    """Return the global weights, and those that the clients begin with."""
    initial = {k: v.clone() for k, v in case.model.weights().items()}
    everybody = case.weights or initial
    if options.start == "scratch" and not options.pretrain and case.weights is None:
        raise InputError(
            "start = 'scratch': the global model is not trained either; add pretrain epochs"
        )
    classifier = fresh_classifier(case.model, case.seed) if options.start == "features" else {}
    if options.pretrain:
        announce()
        everybody = centrally(case.model, case.federation, options.pretrain, case.train, case.seed)
    return everybody, initial if options.start == "scratch" else everybody | classifier


def _about(
    case: Case, options: Options, train: TrainConfig, chosen: list[int], probe: Probe
) -> dict[str, Any]:
    return {
        "clients": chosen,
        "clients_in_all": len(case.federation.train.parts),
        "samples": len(probe.y),
        "samples_per_class": probe.per_class,
        "samples_available": probe.available,
        "round": case.round,
        "pretrain_epochs": options.pretrain,
        "start": options.start,
        "epochs": options.epochs,
        **train.model_dump(
            include={"local_steps", "batch_size", "lr", "momentum", "weight_decay", "dtype"}
        ),
        "seed": case.seed,
    }
