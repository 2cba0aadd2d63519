"""Local training from given global weights, by the clients' own code; and what the models make of
samples.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from ..backends.pool import WorkerPool
from ..core.evaluation import BATCH
from ..core.fast.blocks import choose
from ..core.method import Method
from ..core.model import FedModel, Output
from ..core.rng import torch_stream
from ..core.server import Server
from ..core.setup import Setup
from ..core.wire import State
from ..data import Federation
from ..metrics.local import local_models
from ..recipe.schema import TrainConfig
from ..run.setup import assemble, connect
from ..util.errors import Diverged, InputError, RunError


def prepared(
    model: FedModel,
    methods: Sequence[Method],
    federation: Federation,
    train: TrainConfig,
    seed: int,
) -> Setup:
    """Make a setup that can begin with weights of the model; modules that methods add are fresh."""
    setup = assemble(copy.deepcopy(model), methods, federation, train, seed)
    own = setup.model.weights()
    if any(key not in own or own[key].shape != v.shape for key, v in model.weights().items()):
        variant = "+".join(m.name for m in methods)
        raise InputError(
            f"methods = {variant}: builds another model, which cannot begin with the same global weights"
        )
    return setup


def local_round(
    setup: Setup,
    start: State,
    federation: Federation,
    clients: Sequence[int],
    round: int,
    pool: WorkerPool | None,
) -> tuple[list[State], State | None]:
    """Let clients train for one round from given weights; return their models and the aggregated
    one, if there is.
    """
    setup.model.set_weights(setup.model.weights() | start)
    server = Server(setup)
    backend = connect(setup, federation, choose(setup.model, setup.spec, "auto"), pool)
    for when, asked in ((0, range(setup.spec.num_clients)), (round, clients)):
        server.absorb_contributions(when, backend.run(server.contribute_tasks(when, asked)))
    replies = backend.run(server.train_tasks(round, clients))
    server.absorb(round, replies)
    return local_models(backend, server, replies), None if setup.alone else server.params


def centrally(
    model: FedModel, federation: Federation, epochs: int, train: TrainConfig, seed: int
) -> State:
    """Train the model on everybody's samples: one client that has them all."""
    parts = {0: np.concatenate(list(federation.train.parts.values()))}
    everything = Federation(replace(federation.train, parts=parts), federation.tests[:1])
    steps = epochs * math.ceil(len(parts[0]) / train.batch_size)
    setup = assemble(copy.deepcopy(model), [], everything, as_one(train, 1, steps), seed)
    try:
        (weights,), _ = local_round(setup, model.weights(), everything, [0], 0, None)
    except Diverged as error:
        raise RunError(f"central training diverged: {error.what}") from error
    return weights


def as_one(train: TrainConfig, clients: int, steps: int) -> TrainConfig:
    """Return the settings of a single round of so many clients and steps."""
    return train.model_copy(update={"clients_per_round": clients, "local_steps": steps})


def fresh_classifier(model: FedModel, seed: int) -> State:
    """Return the weights of a classifier that has learnt nothing."""
    classifier = copy.deepcopy(model.classifier)
    layers = [
        m for m in classifier.modules() if next(m.parameters(recurse=False), None) is not None
    ]
    with torch_stream(seed, "diagnose", "classifier"):
        for layer in layers:
            _reset(layer)
    return {f"classifier.{k}": v.detach() for k, v in classifier.named_parameters()}


def _reset(layer: nn.Module) -> None:
    reset = getattr(layer, "reset_parameters", None)
    if reset is None:
        raise InputError(
            f"start = 'features': {type(layer).__name__} of the classifier has no reset_parameters()"
        )
    reset()


@torch.no_grad()
def outputs(setup: Setup, models: Sequence[State], x: Tensor) -> Iterator[Output]:
    """Yield every model's features and logits of samples, in eval mode and in main memory."""
    device = setup.spec.device
    looking = copy.deepcopy(setup.model).to(device).eval()
    for weights in models:
        looking.set_weights(weights)
        parts = [looking(x[i : i + BATCH].to(device)) for i in range(0, len(x), BATCH)]
        yield Output(*(torch.cat([part[i].float().cpu() for part in parts]) for i in (0, 1)))
