"""All that happens on clients. They have no memory: state comes in and goes out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from ..util.errors import RunError, at_its_place
from .broadcast import Broadcast
from .device import autocast, default, moved
from .fast.chain import Chain, Heard
from .method import Batch, ClientContext, Method, soft_cross_entropy
from .method import grad as grad_of
from .model import Block
from .rng import layer_streams, stream
from .samples import TrainData
from .setup import Setup
from .spec import CPU, Spec
from .wire import SHARED, Payload, Reply, State

Acting = Sequence[
    tuple[Method, ClientContext]
]  # the methods in order, each with its view of the block


def handle(
    setup: Setup, data: TrainData, broadcast: Broadcast, states: Sequence[Payload]
) -> list[tuple[Reply, Payload]]:
    """Let the clients of one block answer; return each client's reply and new state."""
    clients, round = broadcast.clients, broadcast.round
    if broadcast.kind == "contribute":
        with at_its_place():  # no state changes
            return [(_contribute(setup, data, client, round), {}) for client in clients]
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


def _contribute(setup: Setup, data: TrainData, client: int, round: int) -> Reply:
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
    spec, round, clients = setup.spec, broadcast.round, broadcast.clients
    own_start = {"model": setup.model.weights()} if setup.alone else {}
    received = moved(broadcast.payload | own_start, spec.device)
    shared = moved(broadcast.shared, spec.device)
    states = [moved(state, spec.device) for state in states]
    start = received["model"]
    local = Block(setup.model, start, len(clients), len(spec.shape), spec.joint)
    edited = {"model"} if any(m.edits for m in setup.methods) else set()
    optimizers = {
        name: SGD(list(params.values()), spec, name in edited)
        for name, params in local.groups.items()
    }

    def descend(loss: Tensor, group: str = "model") -> None:
        move(*local.gradient(loss, group, optimizers[group].seed), group)

    def move(grads: Sequence[Tensor | None], heard: Heard, group: str = "model") -> None:
        optimizer, params = optimizers[group], local.groups[group]
        if optimizer.plain:
            optimizer.add(grads, heard)
            return
        whole = _whole(tuple(params.values()), grads, heard)
        if group == "model":
            for parameter, grad in zip(params.values(), whole, strict=True):
                parameter.grad = grad
            for method, ctx in editors:
                method.on_grad(ctx, params)
            whole = [grad_of(parameter) for parameter in params.values()]
        optimizer.step(whole)

    def context(method: Method) -> ClientContext:
        return ClientContext(
            clients=torch.tensor(clients),
            round=round,
            spec=spec,
            model=local,
            global_params=start,
            rngs=[stream(spec.seed, method.name, round, c) for c in clients],
            descend=descend,
            sampler=lambda rngs, shape: data.draw(clients, rngs, shape, spec.dtype),
            state=_stack([s.get(method.name, {}) for s in states]),
            received=received.get(method.name, {}),
            shared=shared.get(SHARED + method.name, {}),
        )

    stack = [(m, context(m)) for m in setup.methods]
    editors = [(m, ctx) for m, ctx in stack if m.edits]

    def follow(chain: Chain, batch: Batch) -> Tensor:
        cross_entropy, found = chain.cross_entropy(batch.x, batch.y, optimizers["model"].seed)
        move([None] * len(chain.weights), [(chain, found)])
        return cross_entropy

    losses = list(_steps(local, stack, _batches(data, clients, round, spec), descend, follow, spec))
    uploads = {m.name: _unstack(up) for m, ctx in stack if (up := m.finish(ctx))}
    if not setup.alone:
        uploads["model"] = _unstack(local.snapshot())
    for m, ctx in stack:
        if ctx.state.keys() != states[0].get(m.name, {}).keys():
            raise RunError(
                f"{m.name}: a client remembers {sorted(ctx.state)}; init_client must name the same"
            )
    memory = {m.name: _unstack(ctx.state) for m, ctx in stack if ctx.state}
    editors.clear()  # a context has descend, which has the editors, which have contexts: they would outlive the round
    metrics = _summary(
        losses, local.snapshot() if setup.alone else {}
    )  # weights that nobody else will see
    return [
        (
            Reply(
                client,
                len(data.parts[client]),
                moved({k: v[i] for k, v in uploads.items()}, CPU),
                metrics[i],
            ),
            moved({k: {n: t.clone() for n, t in v[i].items()} for k, v in memory.items()}, CPU),
        )
        for i, client in enumerate(clients)
    ]


def _steps(
    local: Block,
    stack: Acting,
    batches: Iterator[Batch],
    descend: Callable[[Tensor], None],
    follow: Callable[[Chain, Batch], Tensor],
    spec: Spec,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Do the local steps; yield the cross-entropy and the whole loss of each, [C]."""
    with autocast(spec.device, spec.amp):
        for method, ctx in stack:
            method.begin(ctx)
            if any(p._backward_hooks for group in local.groups.values() for p in group.values()):
                raise RunError(
                    f"{method.name}: a hook on a weight may not be called; gradients are edited in on_grad"
                )
    adding = [
        (m, ctx)
        for m, ctx in stack
        if type(m).loss is not Method.loss or type(m).probe is not Method.probe
    ]
    chain = None if spec.amp else local.as_chain()
    for batch in batches:
        with autocast(spec.device, spec.amp):
            for method, ctx in stack:
                batch = method.on_batch(ctx, batch)
                if not isinstance(batch, Batch):
                    raise RunError(
                        f"{method.name}.on_batch must return the batch to train on, not {type(batch).__name__}"
                    )
        acting = [(m, ctx) for m, ctx in adding if not m.rests(batch.step)]
        if acting or chain is None:
            with autocast(spec.device, spec.amp):
                cross_entropy, loss = _forward(local, acting, batch)
            descend(loss)
        else:
            cross_entropy = loss = follow(chain, batch)
        del batch  # the next one takes its place in memory, and in the cache
        yield cross_entropy.detach(), loss.detach()


def _forward(local: Block, acting: Acting, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return the cross-entropy of a step and, with the methods' terms, the whole loss: [C] each."""
    probes = [(ctx, p) for method, ctx in acting if (p := method.probe(ctx, batch)) is not None]
    out, *probed = local.outputs([batch.x, *(p for _, p in probes)])
    for _, ctx in acting:
        ctx.probed = None
    for (ctx, _), output in zip(probes, probed, strict=True):
        ctx.probed = output
    cross_entropy = loss = soft_cross_entropy(out.logits, batch.y)
    for method, ctx in acting:
        if (term := method.loss(ctx, batch, out)) is not None:
            if not isinstance(term, Tensor) or term.shape != loss.shape:
                found = (
                    f"shape {list(term.shape)}" if isinstance(term, Tensor) else type(term).__name__
                )
                raise RunError(
                    f"{method.name}.loss must return one value per client, [{len(loss)}], not {found}"
                )
            loss = loss + term
    return cross_entropy, loss


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
        yield Batch(
            *data.see(index[step], spec.dtype, None if moves is None else moves[:, step]), step
        )


def _summary(losses: Sequence[tuple[Tensor, Tensor]], weights: State) -> list[dict[str, float]]:
    """One dictionary per client; the only look at values, so that no step has to wait for one."""
    cross_entropy, whole = (
        torch.stack(column) for column in zip(*losses, strict=True)
    )  # [steps, C]
    bad = ~whole.isfinite()
    first = torch.where(bad.any(0), bad.int().argmax(0), -1)
    found = [
        {"loss": loss, "bad_step": float(step)}
        for loss, step in zip(cross_entropy.mean(0).tolist(), first.tolist(), strict=True)
    ]
    for v in weights.values():
        for i in torch.nonzero(~v.isfinite().reshape(len(v), -1).all(dim=1)).flatten().tolist():
            found[i]["bad_weights"] = 1.0
    return found


def _whole(params: Sequence[Tensor], grads: Sequence[Tensor | None], heard: Heard) -> list[Tensor]:
    """Return the gradient of each weight: what autograd returned and what it left to the chains."""
    sums = {id(p): g for p, g in zip(params, grads, strict=True) if g is not None}
    for chain, found in heard:
        for p, g in zip(chain.weights, chain.gradient(found), strict=True):
            sums[id(p)] = sums[id(p)] + g if id(p) in sums else g
    return [sums[id(p)] if id(p) in sums else torch.zeros_like(p) for p in params]


class SGD:
    """The step of torch.optim.SGD, without what it does around the step, which small models feel.

    A plain step (no momentum, no decay, nobody edits the gradient) only adds: the loss has been
    multiplied by ``seed``, minus the learning rate, before its gradient was taken. Any other step
    is torch's to the bit.
    """

    def __init__(self, params: list[Tensor], spec: Spec, edited: bool = False) -> None:
        self.params, self.spec = params, spec
        # In half precision so small a loss would vanish.
        self.plain = not (edited or spec.momentum or spec.weight_decay or spec.amp)
        self.seed = -spec.lr if self.plain else 1.0
        self.velocity: list[Tensor] = []

    @torch.no_grad()
    def add(self, grads: Sequence[Tensor | None], heard: Heard) -> None:
        """Do a plain step."""
        for chain, found in heard:
            chain.add(found)
        if pairs := [(p, g) for p, g in zip(self.params, grads, strict=True) if g is not None]:
            torch._foreach_add_(*map(list, zip(*pairs, strict=True)))

    @torch.no_grad()
    def step(self, grads: list[Tensor]) -> None:
        """Do any other step."""
        spec = self.spec
        if spec.weight_decay:
            grads = list(torch._foreach_add(grads, self.params, alpha=spec.weight_decay))
        if spec.momentum:
            if self.velocity:
                torch._foreach_mul_(self.velocity, spec.momentum)
                torch._foreach_add_(self.velocity, grads)
            else:
                self.velocity = [g.clone() for g in grads]
            grads = self.velocity
        torch._foreach_add_(self.params, grads, alpha=-spec.lr)


def _stack(states: Sequence[State]) -> State:
    return {k: torch.stack([s[k] for s in states]) for k in states[0]}


def _unstack(state: State) -> list[State]:
    size = len(next(iter(state.values())))
    return [{k: v[i] for k, v in state.items()} for i in range(size)]
