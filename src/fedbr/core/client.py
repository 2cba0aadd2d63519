"""All that happens on clients. They have no memory: state comes in and goes out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from ..util.errors import RunError, at_its_place
from .broadcast import Broadcast
from .device import default, moved
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
    """Let the clients of one block answer; return each client's reply and new state."""
    clients, round = broadcast.clients, broadcast.round
    if broadcast.kind == "contribute":
        with at_its_place():  # no state changes
            return [(contribute(setup, data, client, round), {}) for client in clients]
    spec = setup.spec
    layers = layer_streams(spec.seed, round, clients, spec.device)
    with at_its_place(), layers, default(spec.device):
        return _train(setup, data, broadcast, states)


def new_state(setup: Setup) -> Payload:
    """Return the state of a client that never trained."""
    return {m.name: state for m in setup.methods if (state := m.init_client(setup.model))}


def blocks(states: Sequence[Payload], size: int) -> list[list[int]]:
    """Group clients (by position) that can train together: those with the same kind of state.

    Groups have at most ``size`` clients and differ by one at most: a client left over would cost
    more than its share.
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
        count = -(-len(members) // size)
        ends = [i * len(members) // count for i in range(count + 1)]
        groups += [members[start:end] for start, end in pairwise(ends)]
    return groups


def contribute(setup: Setup, data: TrainData, client: int, round: int) -> Reply:
    spec = setup.spec
    x, y = data.of(client, spec.dtype)
    payload = {}
    for method in setup.methods:
        if method.asks_clients and method.shares_in(round):
            rng = stream(spec.seed, method.name, "contribute", round, client)
            if section := method.contribute(x, y, spec, rng):
                payload[method.name] = section
    return Reply(client, len(x), payload)


def _train(
    setup: Setup, data: TrainData, broadcast: Broadcast, states: Sequence[Payload]
) -> list[tuple[Reply, Payload]]:
    spec, clients = setup.spec, broadcast.clients
    received = _start(setup, broadcast)
    states = [moved(state, spec.device) for state in states]
    block = Block(
        setup.model, received["model"], len(clients), len(spec.shape), spec.joint, spec.amp
    )
    optimizers = {
        group: OPTIMIZERS[spec.optimizer](list(params.values()), spec)
        for group, params in block.groups.items()
    }
    methods = Methods(block)

    def descend(loss: Tensor, group: str = "model") -> None:
        gradient = block.gradient(loss, group)
        optimizers[group].step(methods.on_grad(gradient) if group == "model" else gradient)

    shared = moved(broadcast.shared, spec.device)
    for method in setup.methods:
        name, round = method.name, broadcast.round
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
    with block.precision():
        methods.begin()
    batches = _batches(data, clients, broadcast.round, spec)
    losses = list(local_steps(block, methods, optimizers["model"], batches))
    uploads = methods.finish()
    if not setup.alone:
        uploads["model"] = methods.on_upload()
    memory = _memory(methods, states[0])
    methods.leave()
    # Nobody else will see the weights of those who train alone.
    metrics = _summary(losses, block.snapshot() if setup.alone else {})
    parts = {name: _split(section) for name, section in uploads.items()}
    kept = {name: _split(section) for name, section in memory.items()}
    answers = []
    for i, client in enumerate(clients):
        payload = moved({name: part[i] for name, part in parts.items()}, CPU)
        reply = Reply(client, len(data.parts[client]), payload, metrics[i])
        own = {name: {k: v.clone() for k, v in part[i].items()} for name, part in kept.items()}
        answers.append((reply, moved(own, CPU)))
    return answers


def _start(setup: Setup, broadcast: Broadcast) -> Payload:
    """Return what the server sent; whoever trains alone begins with the initial weights."""
    own = {"model": setup.model.weights()} if setup.alone else {}
    return moved(broadcast.payload | own, setup.spec.device)


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
        how = None if moves is None else moves[:, step]
        yield Batch(*data.see(index[step], spec.dtype, how), step)


def _summary(losses: Sequence[Losses], weights: State) -> list[dict[str, float]]:
    """One dictionary per client; the only look at values, so that no step has to wait for one."""
    # [steps, C]
    cross_entropy, whole = (torch.stack(column) for column in zip(*losses, strict=True))
    bad = ~whole.isfinite()
    first = torch.where(bad.any(0), bad.int().argmax(0), -1)
    summary = [
        {"loss": loss, "bad_step": float(step)}
        for loss, step in zip(cross_entropy.mean(0).tolist(), first.tolist(), strict=True)
    ]
    for v in weights.values():
        for i in torch.nonzero(~v.isfinite().reshape(len(v), -1).all(dim=1)).flatten().tolist():
            summary[i]["bad_weights"] = 1.0
    return summary


def _join(states: Sequence[State]) -> State:
    """Give what every client remembers a client axis."""
    return {k: torch.stack([s[k] for s in states]) for k in states[0]}


def _split(state: State) -> list[State]:
    size = len(next(iter(state.values())))
    return [{k: v[i] for k, v in state.items()} for i in range(size)]
