"""Make the objects of a run from a recipe: model, methods, settings, backend."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace

import torch

from .. import models
from ..backends.base import Backend
from ..backends.memory import ClientMemory
from ..backends.pool import PoolBackend, WorkerPool
from ..backends.serial import SerialBackend
from ..core import device as devices
from ..core.census import Clients
from ..core.evaluation import TestPlan
from ..core.fast.block_size import has_batch_norm, joins
from ..core.method import Method
from ..core.method_checks import check_methods, loss_returns_nothing, without_neutral
from ..core.model import FedModel
from ..core.rng import torch_stream
from ..core.samples import TrainData
from ..core.setup import Setup
from ..core.spec import Spec
from ..recipe.schema import Recipe, TrainConfig, Variant
from ..util.errors import InputError


def build_setup(recipe: Recipe, variant: Variant, clients: Clients, seed: int) -> Setup:
    """Make what stays the same during a run: methods, model with its initial weights, settings.

    Raises:
        InputError: see ``assemble``.
    """
    census, config = clients.census, recipe.model
    with torch_stream(seed, "model"):
        model = models.build(config.name, config.options, census.shape, census.num_classes)
    return assemble(model, variant.build(), clients, recipe.train, seed)


# Keys of [train] that methods may read, too.
SPEC_KEYS = {
    "local_steps",
    "batch_size",
    "optimizer",
    "lr",
    "momentum",
    "nesterov",
    "weight_decay",
    "aggregate",
}


def assemble(
    model: FedModel, methods: Sequence[Method], clients: Clients, train: TrainConfig, seed: int
) -> Setup:
    """Put the parts of a run together.

    Raises:
        InputError: methods do not fit one another, the clients or the model, or this machine
            cannot do what a setting asks for.
    """
    check_methods(methods)
    methods = without_neutral(methods)
    spec = _make_spec(clients, train, seed)
    for method in methods:
        method.check(spec, clients.census.distinct)
    model = _rebuild(model, methods, spec).to(spec.dtype)
    models.check(model, spec.shape, spec.num_classes)
    _warn(model, methods)
    return Setup(methods, model, replace(spec, joint=joins(model, spec)))


def _make_spec(clients: Clients, train: TrainConfig, seed: int) -> Spec:
    """Collect the facts of a run that the server and all clients know."""
    census, dtype = clients.census, getattr(torch, train.dtype)
    count = census.num_clients
    if train.clients_per_round is not None and train.clients_per_round > count:
        raise InputError(
            f"train.clients_per_round = {train.clients_per_round}: there are only {count} clients"
        )
    device = devices.choose(train.device)
    if train.amp and (reason := devices.bfloat16_obstacle(str(device))):
        raise InputError(
            f"train.amp = true: bfloat16 does not work on {device} here ({reason}); use false"
        )
    return Spec(
        shape=census.shape,
        num_classes=census.num_classes,
        num_clients=count,
        clients_per_round=train.clients_per_round or count,
        seed=seed,
        dtype=dtype,
        device=device,
        amp=train.amp,
        proxy=None if clients.proxy is None else clients.proxy.see(slice(None), dtype),
        **train.model_dump(include=SPEC_KEYS),
    )


def _rebuild(model: FedModel, methods: Sequence[Method], spec: Spec) -> FedModel:
    """Let methods change the model and add their modules.

    Each draws from a stream of its own, so that the model starts the same for all variants.
    """
    for method in methods:
        with torch_stream(spec.seed, "model", method.name, "rebuild"):
            model = method.rebuild(model, spec)
    for method in methods:
        with torch_stream(spec.seed, "model", method.name):
            extra = method.extra_module(model, spec)
        if extra is not None:
            model.extras[method.name] = extra
    return model


def _warn(model: FedModel, methods: Sequence[Method]) -> None:
    """Warn of what is allowed, but seldom intended."""
    for method in methods:
        if loss_returns_nothing(method):
            name = type(method).__name__
            message = f"methods: {name}.loss has no return, so it adds no term to the cross-entropy"
            warnings.warn(message, RuntimeWarning, stacklevel=4)
    if has_batch_norm(model):
        message = (
            "the model has BatchNorm: its statistics are averaged over clients, which differ; "
            "GroupNorm is safer"
        )
        warnings.warn(message, RuntimeWarning, stacklevel=4)


def connect(
    setup: Setup,
    data: TrainData,
    plan: TestPlan,
    block_size: int,
    pool: WorkerPool | None = None,
    memory: ClientMemory | None = None,
) -> Backend:
    """Make the backend of a run: this process, or a pool of processes."""
    if pool is None:
        return SerialBackend(setup, data, plan, block_size, memory)
    return PoolBackend(setup, data, plan, block_size, pool, memory)
