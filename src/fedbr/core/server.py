"""The server: holds the global model and the methods' server state. It never touches data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ..util.errors import Diverged, RunError, at_its_place
from .broadcast import Broadcast
from .method import Method, ServerContext
from .rng import stream
from .setup import Setup
from .wire import SHARED, Payload, Reply, State


class Server:
    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        # As they come out of a message, in which nothing lies turned: the last bits of products
        # depend on it.
        plain = torch.contiguous_format
        self.params: State = {
            k: v.clone(memory_format=plain) for k, v in setup.model.weights().items()
        }
        self.state: Payload = {
            m.name: m.init_server(setup.model, setup.spec) for m in setup.methods
        }
        self.shared: Payload = {}
        self.made: dict[str, int] = {}  # shared section -> the round in which it was made
        self.holds: dict[int, dict[str, int]] = {}  # client -> what it holds, as in ``made``
        self.last: dict[int, int] = {}  # client -> the last round in which it trained

    def ask(self, round: int, clients: Sequence[int]) -> Broadcast | None:
        """Ask clients for their contributions; None if no method wants any in this round."""
        if any(m.asks_clients and m.shares_in(round) for m in self.setup.methods):
            return Broadcast("contribute", round, tuple(clients))
        return None

    def absorb_contributions(self, round: int, replies: Sequence[Reply]) -> None:
        """Make what every client receives."""
        for m in self.setup.methods:
            if not m.shares_in(round):
                continue
            parts = [r.payload[m.name] for r in replies if m.name in r.payload]
            with at_its_place():
                section = m.share(
                    parts, self.setup.spec, stream(self.setup.spec.seed, m.name, "share", round)
                )
            if section:
                self.shared[SHARED + m.name] = section
                self.made[SHARED + m.name] = round

    def broadcast(self, round: int, clients: Sequence[int]) -> Broadcast:
        """Send the model, the methods' sections, and what is shared to those who lack it."""
        payload = {} if self.setup.alone else {"model": self.params}
        for method in self.setup.methods:
            if section := method.broadcast(self.state[method.name]):
                payload[method.name] = section
        lacks = {}
        for client in clients:
            held = self.holds.get(client, {})
            lacks[client] = tuple(n for n in self.shared if held.get(n) != self.made[n])
            self.holds[client] = dict(self.made)
        last = {client: self.last[client] for client in clients if client in self.last}
        return Broadcast("train", round, tuple(clients), payload, dict(self.shared), lacks, last)

    def absorb(self, round: int, replies: Sequence[Reply]) -> None:
        """Average the clients' models and let the methods follow."""
        for reply in replies:
            self._check(round, reply)
            self.last[reply.client] = round
        if self.setup.alone:
            return
        weights = self._weights(replies)
        new = self._combine(weights, replies)
        if not all(bool(value.isfinite().all()) for value in new.values()):
            self._blame(round, replies, new)  # one of theirs is not, or overflows
        ctx = ServerContext(round, self.setup.spec, replies, weights, self.params, new)
        for m in self.setup.methods:
            with at_its_place():
                m.update_server(self.state[m.name], ctx)
        self.params = ctx.new_params

    def models(self, states: Mapping[int, Payload]) -> State | list[State]:
        """Return what to test: the global model, or each client's own where a method keeps one."""
        for m in self.setup.methods:
            if type(m).personal is not Method.personal:
                own = {client: m.personal(state[m.name]) for client, state in states.items()}
                return [
                    own.get(client) or self.params for client in range(self.setup.spec.num_clients)
                ]
        return self.params

    def snapshot(self) -> tuple[dict[str, Any], dict[str, Payload]]:
        """Return all that must be kept to go on, as plain JSON and tensors."""
        header = {
            "made": self.made,
            "holds": sorted(self.holds.items()),
            "last": sorted(self.last.items()),
        }
        return header, {
            "server": {"model": self.params},
            "methods": self.state,
            "shared": self.shared,
        }

    def restore(self, header: dict[str, Any], payloads: dict[str, Payload]) -> None:
        """Go on from a snapshot."""
        self.params, self.shared = payloads["server"]["model"], payloads["shared"]
        if lost := [m.name for m in self.setup.methods if m.name not in payloads["methods"]]:
            raise RunError(f"the checkpoint lacks what the server remembers for {', '.join(lost)}")
        self.state = {m.name: payloads["methods"][m.name] for m in self.setup.methods}
        self.made, self.holds, self.last = (
            header["made"],
            dict(header["holds"]),
            dict(header["last"]),
        )

    def _check(self, round: int, reply: Reply) -> None:
        """Refuse a reply that would spoil the average."""
        if (step := int(reply.metrics.get("bad_step", -1))) >= 0:
            raise Diverged(round, reply.client, f"the loss is not finite at local step {step + 1}")
        if reply.metrics.get("bad_weights"):
            raise Diverged(round, reply.client, "a weight is not finite after local training")
        model = reply.payload.get("model", {})
        for key, old in ({} if self.setup.alone else self.params).items():
            if key not in model or model[key].shape != old.shape:
                raise RunError(
                    f"round {round}, client {reply.client}: the reply has no {key} of shape {list(old.shape)}"
                )

    def _blame(self, round: int, replies: Sequence[Reply], new: State) -> None:
        """Name the first client whose weights are not finite."""
        for reply in replies:
            for key, value in reply.payload["model"].items():
                if not value.isfinite().all():
                    raise Diverged(round, reply.client, f"{key} is not finite after local training")
        key = next(k for k, v in new.items() if not v.isfinite().all())
        raise Diverged(round, replies[0].client, f"{key} is not finite after averaging")

    def _weights(self, replies: Sequence[Reply]) -> list[float]:
        for m in self.setup.methods:
            if (weights := m.weigh(self.state[m.name], replies)) is not None:
                chosen: list[float] = weights.tolist()
                return chosen
        sizes = [r.num_examples if self.setup.spec.aggregate == "samples" else 1 for r in replies]
        return [size / sum(sizes) for size in sizes]

    def _combine(self, weights: Sequence[float], replies: Sequence[Reply]) -> State:
        """Make the new global model: the average, or what a method makes in its place."""
        chosen: State = {}
        for m in self.setup.methods:
            with at_its_place():
                combined = m.combine(replies, weights)
            if combined is not None:
                self._check_combined(m, combined)
                chosen = combined
        return {
            key: chosen[key] if key in chosen else self._average(key, weights, replies)
            for key in self.params
        }

    def _check_combined(self, method: Method, combined: State) -> None:
        for key, value in combined.items():
            if key not in self.params or value.shape != self.params[key].shape:
                raise RunError(
                    f"{method.name}.combine: {key} of shape {list(value.shape)} is not in the model"
                )

    def _average(
        self, key: str, weights: Sequence[float], replies: Sequence[Reply]
    ) -> torch.Tensor:
        """Average what is float (weights and buffers alike); copy counters from the first client."""
        first = replies[0].payload["model"][key]
        if not first.is_floating_point():
            return first.clone()
        total = first * weights[0]
        for weight, reply in zip(weights[1:], replies[1:], strict=True):
            total.add_(reply.payload["model"][key], alpha=weight)
        return total
