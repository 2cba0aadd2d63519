"""All that happens on clients. They have no memory: state comes in and goes out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from ..util.errors import RunError, locate_errors
from .broadcast import Broadcast
from .device import default_device, to_device
from .fast import Block
from .hooks import Methods
from .method import Batch, ClientContext
from .optim import OPTIMIZERS, Optimizer
from .rng import layer_streams, stream
from .samples import TrainData
from .setup import Setup
from .spec import CPU, Spec
from .wire import SHARED, Payload, Reply, State


class Losses(NamedTuple):
    """What a local step cost each client: [C]."""

    cross_entropy: Tensor
    whole: Tensor  # with the methods' terms


def local_steps(
    block: Block, methods: Methods, optimizer: Optimizer, batches: Iterator[Batch]
) -> Iterator[Losses]:
    """Train the clients of a block: what happens between the download and the upload."""
    for batch in batches:
        with block.precision():
            batch = methods.on_batch(batch)
            terms = methods.adding(batch.step)
            outputs = block.forward(batch.x, *terms.probes(batch), looked_at=bool(terms))
            cross_entropy = block.cross_entropy(outputs, batch.y)
            loss = terms.add(cross_entropy, batch, outputs)
        del outputs, batch  # what comes takes their place in memory, and in the cache
        optimizer.step(methods.on_grad(block.gradient(loss)))
        yield Losses(cross_entropy.detach(), loss.detach())


def handle(
    setup: Setup, data: TrainData, broadcast: Broadcast, states: Sequence[Payload]
) -> list[tuple[Reply, Payload]]:
    """Let the clients of one block answer.

    Args:
        setup: what does not change in the run.
        data: where the clients' samples are.
        broadcast: what the server sent, for the clients of the block only.
        states: what each of them remembers.

    Returns:
        Each client's reply and new state.
    """
    clients, round = broadcast.clients, broadcast.round
    if broadcast.kind == "contribute":
        with locate_errors():  # no state changes
            return [(contribute(setup, data, client, round), {}) for client in clients]
    spec = setup.spec
    layers = layer_streams(spec.seed, round, clients, spec.device)
    with locate_errors(), layers, default_device(spec.device):
        return _train(setup, data, broadcast, states)


def new_state(setup: Setup) -> Payload:
    """Return the state of a client that never trained."""
    states = {method.name: method.init_client(setup.model) for method in setup.methods}
    return {name: state for name, state in states.items() if state}


def blocks(states: Sequence[Payload], size: int) -> list[list[int]]:
    """Group clients that can train together: those whose states have the same keys and shapes.

    Groups differ by one client at most: a client left over would cost more than its share.

    >>> blocks([{}] * 5, size=3)
    [[0, 1], [2, 3, 4]]

    Args:
        states: what each client remembers.
        size: clients of a group at most.

    Returns:
        The positions of the clients of each group.
    """
    alike: dict[object, list[int]] = {}
    for i, state in enumerate(states):
        schema = [
            (section, key, tuple(value.shape))
            for section, values in state.items()
            for key, value in values.items()
        ]
        alike.setdefault(tuple(sorted(schema)), []).append(i)
    groups = []
    for members in alike.values():
        count = math.ceil(len(members) / size)
        ends = [i * len(members) // count for i in range(count + 1)]
        groups += [members[start:end] for start, end in pairwise(ends)]
    return groups


def contribute(setup: Setup, data: TrainData, client: int, round: int) -> Reply:
    """Return what methods reveal of a client to the server before it trains."""
    spec = setup.spec
    x, y = data.of(client, spec.dtype)
    payload = {}
    for method in setup.methods:
        if method.asks_clients and method.shares_in(round):
            rng = stream(spec.seed, method.name, "contribute", round, client)
            section = method.contribute(x, y, spec, rng)
            if section:
                payload[method.name] = section
    return Reply(client, len(x), payload)


def _train(
    setup: Setup, data: TrainData, broadcast: Broadcast, states: Sequence[Payload]
) -> list[tuple[Reply, Payload]]:
    """Train the clients of a block: what comes before ``local_steps``, and what follows."""
    clients = broadcast.clients
    methods, optimizer = _set_up(setup, data, broadcast, states)
    block = methods.block
    with block.precision():
        methods.begin()
    batches = _batches(data, clients, broadcast.round, setup.spec)
    losses = list(local_steps(block, methods, optimizer, batches))
    uploads = methods.finish()
    if not setup.alone:
        uploads["model"] = methods.on_upload()
    memory = _memory(methods, states[0])
    methods.leave()
    # Nobody else will see the weights of those who train alone.
    metrics = _summary(losses, block.snapshot() if setup.alone else {})
    uploads_by_client = _split(uploads, len(clients))
    memory_by_client = _split(memory, len(clients))
    answers = []
    for i, client in enumerate(clients):
        payload = to_device(uploads_by_client[i], CPU)
        reply = Reply(client, len(data.parts[client]), payload, metrics[i])
        answers.append((reply, to_device(_copy(memory_by_client[i]), CPU)))
    return answers


def _set_up(
    setup: Setup, data: TrainData, broadcast: Broadcast, states: Sequence[Payload]
) -> tuple[Methods, Optimizer]:
    """Return the methods, each with its view of the block, and the optimiser of the model."""
    spec, clients, round = setup.spec, broadcast.clients, broadcast.round
    received = _start(setup, broadcast)
    shared = to_device(broadcast.shared, spec.device)
    states = [to_device(state, spec.device) for state in states]
    dims = len(spec.shape)
    block = Block(setup.model, received["model"], len(clients), dims, spec.joint, spec.amp)
    methods = Methods(block)
    optimizers = {
        group: OPTIMIZERS[spec.optimizer](list(params.values()), spec)
        for group, params in block.groups.items()
    }

    def descend(loss: Tensor, group: str = "model") -> None:
        gradient = block.gradient(loss, group)
        optimizers[group].step(methods.on_grad(gradient) if group == "model" else gradient)

    for method in setup.methods:
        name = method.name
        ctx = ClientContext(
            clients=torch.tensor(clients),
            round=round,
            spec=spec,
            model=block,
            global_params=received["model"],
            rngs=[stream(spec.seed, name, round, client) for client in clients],
            descend=descend,
            sampler=lambda rngs, shape: data.draw(clients, rngs, shape, spec.dtype),
            state=_join([state.get(name, {}) for state in states]),
            received=received.get(name, {}),
            shared=shared.get(SHARED + name, {}),
        )
        methods.add(method, ctx)
    return methods, optimizers["model"]


def _start(setup: Setup, broadcast: Broadcast) -> Payload:
    """Return what the server sent; whoever trains alone begins with the initial weights."""
    payload = broadcast.payload
    if setup.alone:
        payload = payload | {"model": setup.model.weights()}
    return to_device(payload, setup.spec.device)


def _memory(methods: Methods, before: Payload) -> Payload:
    """Return what the clients remember from now on."""
    for method, ctx in methods.pairs:
        if ctx.state.keys() != before.get(method.name, {}).keys():
            raise RunError(
                f"{method.name}: a client remembers {sorted(ctx.state)}; init_client must name the "
                "same"
            )
    return {method.name: ctx.state for method, ctx in methods.pairs if ctx.state}


def _batches(data: TrainData, clients: Sequence[int], round: int, spec: Spec) -> Iterator[Batch]:
    """Every client draws from its own data with its own stream; one gather per step serves all."""
    rngs = [stream(spec.seed, "batches", round, c) for c in clients]
    shape = (spec.local_steps, spec.batch_size)
    index = data.positions(clients, rngs, shape)
    moves = None
    if data.samples.augment is not None:
        moves = data.moves([stream(spec.seed, "augment", round, c) for c in clients], shape)
    index = index.transpose(0, 1).contiguous()  # what a step needs lies together
    for step in range(spec.local_steps):
        step_moves = None if moves is None else moves[:, step]
        # No name for the samples here: it would keep them in memory, and in the cache, for a step
        # longer.
        yield Batch(*data.see(index[step], spec.dtype, step_moves), step)


def _summary(losses: Sequence[Losses], weights: State) -> list[dict[str, float]]:
    """Return the metrics of each client.

    Only here values are looked at, so that no step has to wait for a device.

    Args:
        losses: of every step.
        weights: to look for values that are not finite, [C, ...].
    """
    cross_entropy = torch.stack([step.cross_entropy for step in losses])  # [steps, C]
    whole = torch.stack([step.whole for step in losses])
    bad = ~whole.isfinite()
    first_bad = torch.where(bad.any(0), bad.int().argmax(0), -1)
    means = cross_entropy.mean(0).tolist()
    summary = [
        {"loss": loss, "bad_step": float(step)}
        for loss, step in zip(means, first_bad.tolist(), strict=True)
    ]
    for value in weights.values():
        bad = ~value.isfinite().reshape(len(value), -1).all(dim=1)
        for client in torch.nonzero(bad).flatten().tolist():
            summary[client]["bad_weights"] = 1.0
    return summary


def _join(states: Sequence[State]) -> State:
    """Give what every client remembers a client axis."""
    return {key: torch.stack([state[key] for state in states]) for key in states[0]}


def _split(payload: Payload, clients: int) -> list[Payload]:
    """Give each client its own part of what has a client axis."""
    parts: list[Payload] = []
    for i in range(clients):
        part = {}
        for section, state in payload.items():
            part[section] = {key: value[i] for key, value in state.items()}
        parts.append(part)
    return parts


def _copy(payload: Payload) -> Payload:
    """Return tensors that keep no larger ones alive."""
    return {
        section: {key: value.clone() for key, value in state.items()}
        for section, state in payload.items()
    }
