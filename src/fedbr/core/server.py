"""The server: holds the global model and the methods' server state. It never touches data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from ..util.errors import Diverged, RunError, locate_errors
from .broadcast import Broadcast
from .method import Method, ServerContext, overrides
from .rng import stream
from .setup import Setup
from .snapshot import Snapshot
from .wire import SHARED, Payload, Reply, State


class Server:
    """The global model, what methods remember beside it, and who was sent what.

    Args:
        setup: what does not change in the run; its model has the weights of the start.
    """

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        # Contiguous, as tensors come out of a message: the last bits of products depend on it.
        self.params: State = {
            key: value.clone(memory_format=torch.contiguous_format)
            for key, value in setup.model.weights().items()
        }
        self.state: Payload = {
            method.name: method.init_server(setup.model, setup.spec) for method in setup.methods
        }
        self.shared: Payload = {}
        self.made: dict[str, int] = {}  # shared section -> the round in which it was made
        self.holds: dict[int, dict[str, int]] = {}  # client -> what it holds, as in ``made``
        self.last: dict[int, int] = {}  # client -> the last round in which it trained

    def ask(self, round: int, clients: Sequence[int]) -> Broadcast | None:
        """Ask clients for their contributions; None if no method wants any in this round."""
        for method in self.setup.methods:
            if method.asks_clients and method.shares_in(round):
                return Broadcast("contribute", round, tuple(clients))
        return None

    def absorb_contributions(self, round: int, replies: Sequence[Reply]) -> None:
        """Make what every client receives."""
        spec = self.setup.spec
        for method in self.setup.methods:
            name = method.name
            if not method.shares_in(round):
                continue
            contributions = [reply.payload[name] for reply in replies if name in reply.payload]
            rng = stream(spec.seed, name, "share", round)
            with locate_errors():
                section = method.share(contributions, spec, rng)
            if section:
                self.shared[SHARED + name] = section
                self.made[SHARED + name] = round

    def broadcast(self, round: int, clients: Sequence[int]) -> Broadcast:
        """Send the model, the methods' sections, and what is shared to those who lack it."""
        payload = {} if self.setup.alone else {"model": self.params}
        for method in self.setup.methods:
            section = method.broadcast(self.state[method.name])
            if section:
                payload[method.name] = section
        lacks = {}
        for client in clients:
            held = self.holds.get(client, {})
            lacks[client] = tuple(n for n in self.shared if held.get(n) != self.made[n])
            self.holds[client] = dict(self.made)
        last = {client: self.last[client] for client in clients if client in self.last}
        return Broadcast("train", round, tuple(clients), payload, dict(self.shared), lacks, last)

    def absorb(self, round: int, replies: Sequence[Reply]) -> None:
        """Average the clients' models and let the methods follow.

        Raises:
            Diverged: a loss or a weight is not finite.
            RunError: a reply lacks something, or a method returned what does not fit.
        """
        for reply in replies:
            self._check(round, reply)
            self.last[reply.client] = round
        if self.setup.alone:
            return
        weights = self._weights(replies)
        new = self._combine(weights, replies)
        if not all(_is_finite(value) for value in new.values()):
            raise self._divergence(round, replies, new)
        ctx = ServerContext(round, self.setup.spec, replies, weights, self.params, new)
        for method in self.setup.methods:
            with locate_errors():
                method.update_server(self.state[method.name], ctx)
        self.params = ctx.new_params

    def models(self, states: Mapping[int, Payload]) -> State | list[State]:
        """Return what to test: the global model, or each client's own where a method keeps one.

        Args:
            states: what clients remember; without it a client is tested with the global model.
        """
        for method in self.setup.methods:
            if overrides(method, "personal"):
                personal = {c: method.personal(state[method.name]) for c, state in states.items()}
                clients = range(self.setup.spec.num_clients)
                return [personal.get(client) or self.params for client in clients]
        return self.params

    def snapshot(self) -> Snapshot:
        """Return all that must be kept to go on."""
        return Snapshot(
            params=self.params,
            methods=self.state,
            shared=self.shared,
            made=self.made,
            holds=self.holds,
            last=self.last,
        )

    def restore(self, snapshot: Snapshot) -> None:
        """Go on from a snapshot.

        Raises:
            RunError: it has nothing of a method of this run.
        """
        names = [method.name for method in self.setup.methods]
        missing = [name for name in names if name not in snapshot.methods]
        if missing:
            raise RunError(
                f"the checkpoint lacks what the server remembers for {', '.join(missing)}"
            )
        self.params = snapshot.params
        self.state = {name: snapshot.methods[name] for name in names}
        self.shared = snapshot.shared
        self.made = dict(snapshot.made)
        self.holds = {client: dict(held) for client, held in snapshot.holds.items()}
        self.last = dict(snapshot.last)

    def _check(self, round: int, reply: Reply) -> None:
        """Refuse a reply that would spoil the average."""
        step = int(reply.metrics.get("bad_step", -1))
        if step >= 0:
            raise Diverged(round, reply.client, f"the loss is not finite at local step {step + 1}")
        if reply.metrics.get("bad_weights"):
            raise Diverged(round, reply.client, "a weight is not finite after local training")
        if self.setup.alone:
            return
        model = reply.payload.get("model", {})
        for key, old in self.params.items():
            if key not in model or model[key].shape != old.shape:
                raise RunError(
                    f"round {round}, client {reply.client}: the reply has no {key} of shape "
                    f"{list(old.shape)}"
                )

    def _divergence(self, round: int, replies: Sequence[Reply], new: State) -> Diverged:
        """Name the first client whose weights are not finite, or what overflowed in the average."""
        for reply in replies:
            for key, value in reply.payload["model"].items():
                if not _is_finite(value):
                    what = f"{key} is not finite after local training"
                    return Diverged(round, reply.client, what)
        key = next(key for key, value in new.items() if not _is_finite(value))
        return Diverged(round, replies[0].client, f"{key} is not finite after averaging")

    def _weights(self, replies: Sequence[Reply]) -> list[float]:
        """Return the weights of the replies in the average; they sum to 1."""
        for method in self.setup.methods:
            weights = method.weigh(self.state[method.name], replies)
            if weights is not None:
                values: list[float] = weights.tolist()
                return values
        if self.setup.spec.aggregate == "samples":
            sizes = [reply.num_examples for reply in replies]
        else:
            sizes = [1] * len(replies)
        return [size / sum(sizes) for size in sizes]

    def _combine(self, weights: Sequence[float], replies: Sequence[Reply]) -> State:
        """Make the new global model: the average, or what a method makes in its place."""
        combined: State = {}
        for method in self.setup.methods:
            with locate_errors():
                values = method.combine(replies, weights)
            if values is not None:
                self._check_combined(method, values)
                combined = values
        new = {}
        for key in self.params:
            if key in combined:
                new[key] = combined[key]
            else:
                new[key] = _average([reply.payload["model"][key] for reply in replies], weights)
        return new

    def _check_combined(self, method: Method, combined: State) -> None:
        for key, value in combined.items():
            if key not in self.params or value.shape != self.params[key].shape:
                raise RunError(
                    f"{method.name}.combine: {key} of shape {list(value.shape)} is not in the model"
                )


def _average(values: Sequence[torch.Tensor], weights: Sequence[float]) -> torch.Tensor:
    """Average floats, weights and buffers alike; copy a counter from the first client."""
    first = values[0]
    if not first.is_floating_point():
        return first.clone()
    total = first * weights[0]
    for value, weight in zip(values[1:], weights[1:], strict=True):
        total.add_(value, alpha=weight)
    return total


def _is_finite(value: torch.Tensor) -> bool:
    return bool(value.isfinite().all())
