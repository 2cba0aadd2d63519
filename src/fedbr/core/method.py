"""The one interface that an algorithm implements: a few hooks, all of which do nothing by default.

On clients, C of them train at once. What belongs to a client has a leading client axis:
batch.x [C, B, ...], out.logits [C, B, K], p.grad [C, ...], ctx.state[k] [C, ...]. What the server
sent (received, shared, global_params) has none, and broadcasts. So: count dimensions from the end
(dim=-1), average over dim 1 (the batch), and return one value per client.

In the order of a round:

- before training: ``check``, ``rebuild``, ``extra_module``; ``contribute`` (client) and ``share``
  (server) make data for all
- server: ``init_server``, ``broadcast``
- client: ``init_client``, ``begin``; in each step ``on_batch``, ``probe``, ``loss``, ``on_grad``;
  then ``finish``, what a method itself sends and remembers, and ``on_upload``, what becomes of the
  weights before they leave: the place of clipping, noise and compression
- server: ``weigh`` chooses the weights of the average, or ``combine`` makes another average, such as
  a median; ``update_server`` follows
- when models are tested: ``personal``

A method whose settings make it do nothing says so by ``neutral``, and is left out.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, ValidationError
from torch import Tensor, nn

from ..util.errors import InputError
from ..util.validation import explain
from .losses import cosine as cosine
from .losses import soft_cross_entropy as soft_cross_entropy
from .model import ClientModels, FedModel, Output
from .spec import Spec
from .wire import Reply, State

Sharing = Literal["never", "once", "round"]


@dataclass(frozen=True)
class Batch:
    x: Tensor  # [C, B, ...]
    y: Tensor  # [C, B, K], soft labels: mixed and one-hot targets are the same thing
    step: int


@dataclass
class ClientContext:
    """All that a method may see on the clients of a block during one round."""

    clients: Tensor  # [C], who trains
    round: int
    spec: Spec
    model: ClientModels
    global_params: State
    rngs: Sequence[np.random.Generator]  # one stream per client, the method's own: see draw
    descend: Callable[..., None]  # descend(loss [C], group): the only place where weights change
    sampler: Callable[[Sequence[np.random.Generator], tuple[int, ...]], tuple[Tensor, Tensor]]
    state: State = field(default_factory=dict)  # this method's memory, [C, ...]
    received: State = field(default_factory=dict)  # this method's section of the task
    shared: State = field(default_factory=dict)  # what this method's ``share`` made
    scratch: dict[str, Tensor] = field(default_factory=dict)  # forgotten at the end of the round
    probed: Output | None = None  # the model's output on what ``probe`` returned in this step

    def draw(self, f: Callable[[np.random.Generator], Any]) -> Tensor:
        """Let every client draw from its own stream: [C, ...]."""
        return torch.from_numpy(np.stack([f(r) for r in self.rngs])).to(
            self.spec.device, non_blocking=True
        )

    def local_samples(self, *shape: int) -> tuple[Tensor, Tensor]:
        """Let every client draw some of its own training samples.

        Returns x [C, *shape, ...] and y [C, *shape, K].
        """
        return self.sampler(self.rngs, shape)


@dataclass
class ServerContext:
    """All that a method may see on the server at the end of a round."""

    round: int
    spec: Spec
    replies: Sequence[Reply]
    weights: Sequence[float]  # of the replies in the average; they sum to 1
    old_params: State
    new_params: State


class Method(BaseModel):
    """A federated algorithm as a set of hooks.

    An instance holds hyper-parameters only: the fields of the class, checked when it is made.
    Whatever must be remembered lives in the ``State`` dictionaries that the runtime keeps, ships,
    counts and checkpoints.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, validate_default=True
    )

    name: ClassVar[str]
    paper: ClassVar[str] = ""
    # True: clients train without a server, nothing is sent and nothing averaged.
    alone: ClassVar[bool] = False

    if not TYPE_CHECKING:  # type checkers know the fields of each method better

        def __init__(self, **values: Any) -> None:
            try:
                super().__init__(**values)
            except ValidationError as error:
                raise explain(
                    type(self), error, getattr(self, "name", type(self).__name__)
                ) from None

        def __setattr__(self, name: str, value: Any) -> None:
            if name.startswith("_"):
                super().__setattr__(name, value)
                return
            raise AttributeError(
                f"{type(self).__name__}.{name} cannot be set: a method holds hyper-parameters only; "
                "what is needed later in the round goes into ctx.scratch, what a client remembers "
                "into ctx.state (see init_client)"
            )

    @property
    def neutral(self) -> bool:
        """Say whether these settings make the method do nothing: then it is left out of the run."""
        return False

    # Before training, or before a round. No client axis.
    def check(self, spec: Spec, sizes: Sequence[int]) -> None:
        """Refuse, with an InputError, clients that the method cannot train.

        sizes: how many distinct samples each of them has.
        """

    def rebuild(self, model: FedModel, spec: Spec) -> FedModel:
        """Return the model to train, if the method needs another one than the one given."""
        return model

    def extra_module(self, model: FedModel, spec: Spec) -> nn.Module | None:
        """Return a trainable module to federate along with the model; only this method trains it."""
        return None

    @property
    def sharing(self) -> Sharing:
        """Say when ``share`` makes data for all clients."""
        return "never" if type(self).share is Method.share else "once"

    def shares_in(self, round: int) -> bool:
        """Say whether ``share`` is due; round 0 is before training, when all clients are asked."""
        return self.sharing == ("once" if round == 0 else "round")

    @property
    def asks_clients(self) -> bool:
        """Say whether ``share`` wants the clients' contributions."""
        return type(self).contribute is not Method.contribute

    def contribute(self, x: Tensor, y: Tensor, spec: Spec, rng: np.random.Generator) -> State:
        """Client: what it reveals to ``share``.

        With ``finish`` and the weights, all that it ever reveals.
        """
        return {}

    def share(self, contributions: Sequence[State], spec: Spec, rng: np.random.Generator) -> State:
        """Server: what every client receives."""
        return {}

    # Each round, on the server. No client axis.
    def init_server(self, model: FedModel, spec: Spec) -> State:
        """Return the server's memory at the start."""
        return {}

    def broadcast(self, state: State) -> State:
        """Return what to send with the global model."""
        return {}

    def weigh(self, state: State, replies: Sequence[Reply]) -> Tensor | None:
        """Return the aggregation weights, one per reply; None leaves the choice to the server."""
        return None

    def combine(self, replies: Sequence[Reply], weights: Sequence[float]) -> State | None:
        """Return another average of the clients' models, ``reply.payload["model"]``.

        replies: of all clients of the round. weights: theirs in the usual average; they sum to 1.
        Returns what it combines in its own way, in the shapes of the model; the rest is averaged.
        None leaves all of it to the server.
        """
        return None

    def update_server(self, state: State, ctx: ServerContext) -> None:
        """Update ``state`` in place after aggregation; may replace ``ctx.new_params``."""

    # Each round, on C clients.
    def init_client(self, model: FedModel) -> State:
        """Return the memory of one client that never trained, with all the keys it will ever have.

        No client axis.
        """
        return {}

    def personal(self, state: State) -> State | None:
        """Return a client's own model, from its memory, to test in place of the global one.

        No client axis.
        """
        return None

    def begin(self, ctx: ClientContext) -> None:
        """Prepare, before the first local step."""

    def on_batch(self, ctx: ClientContext, batch: Batch) -> Batch:
        """Return the batch to train on."""
        return batch

    def probe(self, ctx: ClientContext, batch: Batch) -> Tensor | None:
        """Return further samples to run, [C, n, ...] or [n, ...] for all.

        The output is ``ctx.probed`` when ``loss`` is called.
        """
        return None

    def loss(self, ctx: ClientContext, batch: Batch, out: Output) -> Tensor | None:
        """Return a term to add to the cross-entropy: [C]."""
        return None

    def rests(self, step: int) -> bool:
        """Say whether ``probe`` and ``loss`` would do nothing in a step: then they are not called."""
        return False

    @property
    def edits(self) -> bool:
        """Say whether ``on_grad`` changes anything.

        If no method edits the gradient, it need not be written down.
        """
        return type(self).on_grad is not Method.on_grad

    def on_grad(self, ctx: ClientContext, params: State) -> None:
        """Edit ``p.grad`` in place, before the optimiser step.

        params: the model's own weights, [C, ...], without the modules that methods add.
        """

    def finish(self, ctx: ClientContext) -> State:
        """Update ``ctx.state``; return what to upload beside the weights, [C, ...]."""
        return {}

    def on_upload(self, ctx: ClientContext, update: State) -> State:
        """Return what leaves in place of the clients' updates: clipped, noised, compressed.

        update: how far each client has come from the global model, [C, ...]: all of its floats,
        with the modules that methods add and statistics. Keys and shapes must stay. The clients'
        own memory keeps what they have trained.
        """
        return update


def grad(p: Tensor) -> Tensor:
    """Return the gradient that ``on_grad`` may edit."""
    assert p.grad is not None
    return p.grad


def trained(model: FedModel) -> State:
    """Return the weights that ``on_grad`` sees.

    They are those that train, without the modules that methods add.
    """
    return {
        k: p for k, p in model.named_parameters() if p.requires_grad and not k.startswith("extras.")
    }


def take(t: Tensor, index: Tensor) -> Tensor:
    """Let every client pick its own samples: t[c, index[c]]."""
    return t[torch.arange(len(t), device=t.device)[:, None], index]


def per_client(value: Tensor, like: Tensor) -> Tensor:
    """Reshape [C] to [C, 1, ...], ready to multiply with ``like``."""
    return value.to(like.dtype).view(-1, *[1] * (like.dim() - 1))


# What recipes, overrides and payloads use already.
RESERVED = ("compare", "data", "fedavg", "metrics", "model", "name", "train")


def check_name(cls: type[Method]) -> None:
    """Refuse a name by which a method could not be found again."""
    name = getattr(cls, "name", None)
    if not isinstance(name, str) or not re.fullmatch(r"[\w-]+", name) or name in RESERVED:
        said = "" if name is None else f" = {name!r}"
        raise InputError(
            f"methods: {cls.__name__}.name{said} must be a word of its own, of letters, digits, - "
            f"and _, and none of {', '.join(RESERVED)}"
        )


# What the runtime calls, or asks.
HOOKS = tuple(name for name in vars(Method) if not name.startswith(("_", "model_")))


def without_neutral(methods: Sequence[Method]) -> list[Method]:
    """Leave out the methods whose settings make them do nothing."""
    return [method for method in methods if not (method.neutral and _knows_all_hooks(method))]


def _knows_all_hooks(method: Method) -> bool:
    """Say whether ``neutral`` was written for this class.

    A subclass may have hooks of its own, of which the ``neutral`` that it inherits knows nothing.
    """
    for kind in type(method).__mro__:
        if "neutral" in vars(kind):
            return True
        if any(hook in vars(kind) for hook in HOOKS):
            return False
    return False


def _takes(hook: Callable[..., Any], wanted: inspect.Signature) -> bool:
    """Say whether a hook can be called as the runtime calls it."""
    try:
        inspect.signature(hook).bind(*wanted.parameters)
    except TypeError:
        return False
    return True


def forgets_its_term(method: Method) -> bool:
    """Say whether ``loss`` ends without a word, as one does whose last line was forgotten."""
    try:
        (hook,) = ast.parse(textwrap.dedent(inspect.getsource(type(method).loss))).body
    except (OSError, TypeError, SyntaxError):  # typed in, or not written in Python
        return False
    return isinstance(hook, ast.FunctionDef) and not _returns(hook)


def _returns(node: ast.AST) -> bool:
    inner = [
        n
        for n in ast.iter_child_nodes(node)
        if not isinstance(n, ast.FunctionDef | ast.Lambda | ast.ClassDef)
    ]
    return any(isinstance(n, ast.Return | ast.Raise) or _returns(n) for n in inner)


def check_methods(methods: Sequence[Method]) -> None:
    """Refuse what cannot be combined, with the reason."""
    for method in methods:
        if not isinstance(method, Method):
            raise InputError(
                f"methods: {method!r} is not a method; list instances, such as "
                "[fedbr.FedBR(lam=0.1)]"
            )
        check_name(type(method))
        _check_hooks(type(method))
    names = [method.name for method in methods]
    listed = "+".join(names)
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"methods = {listed}: {name!r} is there twice; list a method once")
    lone = [method.name for method in methods if method.alone]
    if lone and len(methods) > 1:
        raise InputError(
            f"methods = {listed}: with {lone[0]!r} clients train alone; it goes with no other method"
        )
    for hook, what in ONLY_ONE.items():
        claimed = [m.name for m in methods if getattr(type(m), hook) is not getattr(Method, hook)]
        if len(claimed) > 1:
            raise InputError(f"methods = {listed}: {' and '.join(claimed)} both {what}; keep one")


# Hooks that only one of the methods of a run may have.
ONLY_ONE = {
    "weigh": "choose the aggregation weights",
    "combine": "make the average",
    "personal": "keep a client's own model",
}


def _check_hooks(kind: type[Method]) -> None:
    """Refuse what is nearly a hook, and hooks that cannot be called."""
    for name, thing in vars(kind).items():
        if not callable(thing) or name.startswith("_"):
            continue
        if name not in HOOKS:
            if close := difflib.get_close_matches(name, HOOKS, n=1, cutoff=0.75):
                raise InputError(
                    f"methods: {kind.__name__}.{name} is no hook; did you mean {close[0]!r}?"
                )
            continue
        wanted = inspect.signature(getattr(Method, name))
        if not _takes(getattr(kind, name), wanted):
            given = ", ".join(wanted.parameters)
            raise InputError(
                f"methods: {kind.__name__}.{name} is called with ({given}), which it does not take"
            )
