"""Local training from given global weights, by the clients' own code.

Here is also what models make of samples.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from ..backends.pool import WorkerPool
from ..core.evaluation import BATCH, TestPlan
from ..core.fast.block_size import choose_block_size
from ..core.method import Method
from ..core.model import FedModel, Output
from ..core.rng import torch_stream
from ..core.round import play_round
from ..core.server import Server
from ..core.setup import Setup
from ..core.wire import State
from ..data import Federation
from ..metrics.local import local_models
from ..recipe.schema import TrainConfig
from ..run.setup import assemble, connect
from ..util.errors import Diverged, InputError, RunError


@dataclass(frozen=True)
class LocalRound:
    """The models that one round of local training makes."""

    local: Sequence[State]  # of each client
    aggregated: State | None  # of all of them; None where clients train alone


def setup_for(
    model: FedModel,
    methods: Sequence[Method],
    federation: Federation,
    train: TrainConfig,
    seed: int,
) -> Setup:
    """Make a setup that can begin with weights of the model; modules that methods add are fresh.

    Args:
        model: the global model; it stays as it is.
        methods: of the variant.
        federation: the clients.
        train: of a single round.
        seed: random seed.

    Raises:
        InputError: the methods build another model.
    """
    setup = assemble(copy.deepcopy(model), methods, federation, train, seed)
    built = setup.model.weights()
    for name, value in model.weights().items():
        if name not in built or built[name].shape != value.shape:
            names = "+".join(method.name for method in methods)
            raise InputError(
                f"methods = {names}: builds another model, which cannot begin with the same "
                "global weights"
            )
    return setup


def one_round(train: TrainConfig, clients: int, steps: int) -> TrainConfig:
    """Return the settings of a single round of so many clients and steps."""
    return train.model_copy(update={"clients_per_round": clients, "local_steps": steps})


def play_from(
    start: State,
    setup: Setup,
    federation: Federation,
    clients: Sequence[int],
    round: int,
    pool: WorkerPool | None = None,
) -> LocalRound:
    """Play one round from given weights.

    Args:
        start: the weights that clients begin with.
        setup: the methods and the model, whose weights change.
        federation: the samples.
        clients: who trains.
        round: its number, on which the batches depend.
        pool: processes that train; None: this one.

    Raises:
        Diverged: a loss or a weight is not finite.
    """
    setup.model.set_weights(setup.model.weights() | start)
    server = Server(setup)
    block_size = choose_block_size(setup.model, setup.spec, "auto")
    backend = connect(setup, federation.train, TestPlan.empty(), block_size, pool)
    played = play_round(server, backend, round, clients, range(setup.spec.num_clients))
    local = local_models(backend, server, played.replies)
    return LocalRound(local, None if setup.alone else server.params)


def train_centrally(
    model: FedModel, federation: Federation, epochs: int, train: TrainConfig, seed: int
) -> State:
    """Train the model on everybody's samples: one client that has them all.

    Args:
        model: it stays as it is.
        federation: whose samples.
        epochs: how often each sample is trained on.
        train: all other settings.
        seed: random seed.

    Returns:
        The weights of the trained model.

    Raises:
        RunError: training diverged.
    """
    parts = {0: np.concatenate(list(federation.train.parts.values()))}
    everything = Federation(replace(federation.train, parts=parts), federation.tests[:1])
    steps = epochs * math.ceil(len(parts[0]) / train.batch_size)
    setup = assemble(copy.deepcopy(model), [], everything, one_round(train, 1, steps), seed)
    try:
        return play_from(model.weights(), setup, everything, [0], 0).local[0]
    except Diverged as error:
        raise RunError(f"central training diverged: {error.what}") from error


def fresh_classifier(model: FedModel, seed: int) -> State:
    """Return the weights of a classifier that has learnt nothing.

    Raises:
        InputError: a layer of it has no ``reset_parameters``.
    """
    classifier = copy.deepcopy(model.classifier)
    with torch_stream(seed, "diagnose", "classifier"):
        for layer in classifier.modules():
            has_parameters = next(layer.parameters(recurse=False), None) is not None
            if has_parameters:
                _reset(layer)
    return {f"classifier.{k}": v.detach() for k, v in classifier.named_parameters()}


def _reset(layer: nn.Module) -> None:
    reset = getattr(layer, "reset_parameters", None)
    if reset is None:
        raise InputError(
            f"start = 'features': {type(layer).__name__} of the classifier has no "
            "reset_parameters()"
        )
    reset()


@torch.no_grad()
def outputs(setup: Setup, models: Sequence[State], x: Tensor) -> list[Output]:
    """Return every model's features and logits of samples, in eval mode and in main memory."""
    device = setup.spec.device
    net = copy.deepcopy(setup.model).to(device).eval()
    results = []
    for weights in models:
        net.set_weights(weights)
        features, logits = [], []
        for begin in range(0, len(x), BATCH):
            output = net(x[begin : begin + BATCH].to(device))
            features.append(output.features.float().cpu())
            logits.append(output.logits.float().cpu())
        results.append(Output(torch.cat(features), torch.cat(logits)))
    return results
