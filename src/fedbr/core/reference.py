"""A reference implementation of a round: one client after the other, in plain PyTorch.

Read this to learn what a round does; ``client.py`` and ``fast/`` do the same for many clients at
once, and tests hold both to the same weights. It uses the model as it is, autograd and one loop.
Methods see blocks of one client.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch.func import functional_call

from .broadcast import Broadcast
from .client import contribute, new_state
from .losses import soft_cross_entropy
from .method import Batch, ClientContext, Method, grad
from .model import FedModel, Output
from .optim import OPTIMIZERS, Gradient
from .rng import layer_streams, stream
from .samples import TrainData
from .setup import Setup
from .spec import Spec
from .wire import SHARED, Payload, Reply, State


class Reference:
    """A carrier for ``play_round``.

    Args:
        setup: what does not change in the run.
        data: the clients' samples.

    Attributes:
        states: what the clients remember.
    """

    def __init__(self, setup: Setup, data: TrainData) -> None:
        self.setup, self.data = setup, data
        self.states: dict[int, Payload] = {}

    def run(self, broadcast: Broadcast) -> list[Reply]:
        """Let the clients answer, one after the other."""
        spec, round = self.setup.spec, broadcast.round
        replies = []
        for client in broadcast.clients:
            if broadcast.kind == "contribute":
                replies.append(contribute(self.setup, self.data, client, round))
                continue
            with layer_streams(spec.seed, round, [client], spec.device):
                replies.append(self._train(client, broadcast))
        return replies

    def _train(self, client: int, broadcast: Broadcast) -> Reply:
        """Train one client, from the download to the upload."""
        setup = self.setup
        start = setup.model.weights() if setup.alone else broadcast.payload["model"]
        one = OneClient(setup.model, start, len(setup.spec.shape))
        descend = Descent(one, setup.spec)
        methods = descend.methods
        for method in setup.methods:
            methods.append((method, self._context(method, client, broadcast, one, descend)))
        for method, ctx in methods:
            method.begin(ctx)
        losses = []
        for batch in self._batches(client, broadcast.round):
            for method, ctx in methods:
                batch = method.on_batch(ctx, batch)
            probes = [method.probe(ctx, batch) for method, ctx in methods]
            output, *probed = self._outputs(one, [batch.x, *probes])
            for (_, ctx), answer in zip(methods, probed, strict=True):
                ctx.probed = answer
            assert output is not None
            loss = cross_entropy = soft_cross_entropy(output.logits, batch.y)
            for method, ctx in methods:
                term = method.loss(ctx, batch, output)
                loss = loss if term is None else loss + term
            descend(loss)
            losses.append(float(cross_entropy.detach()))
        sections = {method.name: method.finish(ctx) for method, ctx in methods}
        upload = {name: _of_one(section) for name, section in sections.items() if section}
        if not setup.alone:
            upload["model"] = self._upload(one, start, methods)
        self.states[client] = {m.name: _of_one(ctx.state) for m, ctx in methods if ctx.state}
        metrics = {"loss": sum(losses) / len(losses)}
        return Reply(client, len(self.data.parts[client]), upload, metrics)

    def _context(
        self, method: Method, client: int, broadcast: Broadcast, one: OneClient, descend: Descent
    ) -> ClientContext:
        """Return what a method sees of one client."""
        spec, name = self.setup.spec, method.name
        memory = self.states.get(client) or new_state(self.setup)
        return ClientContext(
            clients=torch.tensor([client]),
            round=broadcast.round,
            spec=spec,
            model=one,
            global_params=one.start,
            rngs=[stream(spec.seed, name, broadcast.round, client)],
            descend=descend,
            sampler=lambda rngs, shape: self.data.draw([client], rngs, shape, spec.dtype),
            state={key: value[None] for key, value in memory.get(name, {}).items()},
            received=broadcast.payload.get(name, {}),
            shared=broadcast.shared.get(SHARED + name, {}),
        )

    def _outputs(self, one: OneClient, inputs: Sequence[Tensor | None]) -> list[Output | None]:
        """Run the batch and what methods probe, where there is a probe.

        They run together if the run says so: layers that draw then draw for all of it at once.
        """
        if not self.setup.spec.joint:
            return [None if x is None else one(x) for x in inputs]
        given = [x if one.has_axis(x) else x[None] for x in inputs if x is not None]
        sizes = [x.shape[1] for x in given]
        features, logits = one(torch.cat(given, dim=1))
        parts = zip(torch.split(features, sizes, 1), torch.split(logits, sizes, 1), strict=True)
        return [None if x is None else Output(*next(parts)) for x in inputs]

    def _upload(
        self, one: OneClient, start: State, methods: Sequence[tuple[Method, ClientContext]]
    ) -> State:
        """Return the weights that leave: the start, and what methods make of the update."""
        weights = _of_one(one.snapshot())
        floats = [key for key, value in weights.items() if value.is_floating_point()]
        update = {key: (weights[key] - start[key])[None] for key in floats}
        for method, ctx in methods:
            update = method.on_upload(ctx, update)
        return weights | {key: start[key] + update[key][0] for key in floats}

    def _batches(self, client: int, round: int) -> Iterator[Batch]:
        """Draw batches from the client's samples, with replacement."""
        spec = self.setup.spec
        shape = (spec.local_steps, spec.batch_size)
        index = self.data.positions([client], [stream(spec.seed, "batches", round, client)], shape)
        moves = self.data.moves([stream(spec.seed, "augment", round, client)], shape)
        for step in range(spec.local_steps):
            step_moves = None if moves is None else moves[:, step]
            x, y = self.data.see(index[:, step], spec.dtype, step_moves)
            yield Batch(x, y, step)


class OneClient:
    """One client's model, with the client axis that methods expect; see core.model.ClientModels.

    Args:
        model: the architecture.
        start: the weights that it begins with.
        sample_dims: how many dimensions a sample has.
    """

    size = 1

    def __init__(self, model: FedModel, start: State, sample_dims: int) -> None:
        self.module, self.initial = model.train(), model.weights()
        self.start, self.sample_dims = start, sample_dims
        self.weights = {key: value[None].clone() for key, value in start.items()}
        self.groups: dict[str, State] = {"model": {}}  # each module that a method adds has its own
        for key, p in model.named_parameters():
            if p.requires_grad:
                group = key.split(".")[1] if key.startswith("extras.") else "model"
                self.groups.setdefault(group, {})[key] = self.weights[key].requires_grad_()

    def backward(self, loss: Tensor, group: str) -> None:
        """Leave the gradient of a loss, [1], where methods and optimisers look for it."""
        weights = list(self.groups[group].values())
        values = torch.autograd.grad(loss.sum(), weights, allow_unused=True)
        for weight, value in zip(weights, values, strict=True):
            weight.grad = torch.zeros_like(weight) if value is None else value

    def __call__(self, x: Tensor) -> Output:
        samples = x[0] if self.has_axis(x) else x
        output = functional_call(self.module, _of_one(self.weights), (samples,))
        return Output(*(part[None] for part in output))

    def extra(self, name: str, z: Tensor) -> Tensor:
        prefix = f"extras.{name}."
        weights = {}
        for key, value in self.weights.items():
            if key.startswith(prefix):
                weights[key.removeprefix(prefix)] = value[0]
        out: Tensor = functional_call(self.module.extras[name], weights, (z[0],))
        return out[None]

    @torch.no_grad()
    def frozen(self, weights: State, x: Tensor) -> Output:
        key = next(iter(weights))
        personal = weights[key].dim() > self.initial[key].dim()
        with_axis = personal or self.has_axis(x)
        given = self.initial | (_of_one(weights) if personal else weights)
        samples = x[0] if self.has_axis(x) else x
        self.module.eval()
        try:
            output = functional_call(self.module, given, (samples,), strict=True)
        finally:
            self.module.train()
        return Output(*(part[None] if with_axis else part for part in output))

    def snapshot(self) -> State:
        return {key: value.detach().clone() for key, value in self.weights.items()}

    @torch.no_grad()
    def load(self, weights: State) -> None:
        for key, value in self.weights.items():
            value.copy_(weights[key])

    def has_axis(self, x: Tensor) -> bool:
        """Say whether samples have the client axis."""
        return x.dim() == self.sample_dims + 2


class Descent:
    """The only place where weights change: one step along the gradient of a loss, [1]."""

    def __init__(self, one: OneClient, spec: Spec) -> None:
        self.one = one
        self.methods: list[tuple[Method, ClientContext]] = []
        self.optimizers = {
            group: OPTIMIZERS[spec.optimizer](list(weights.values()), spec)
            for group, weights in one.groups.items()
        }

    def __call__(self, loss: Tensor, group: str = "model") -> None:
        weights = self.one.groups[group]
        self.one.backward(loss, group)
        if group == "model":
            for method, ctx in self.methods:
                method.on_grad(ctx, weights)
        values = [grad(w) for w in weights.values()]
        self.optimizers[group].step(Gradient(list(weights.values()), values))


def _of_one(state: State) -> State:
    return {key: value[0] for key, value in state.items()}
