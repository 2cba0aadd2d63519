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
- server: ``weigh`` chooses the weights of the average, or ``combine`` makes another average, such
  as a median; ``update_server`` follows
- when models are tested: ``personal``

A method whose settings make it do nothing says so by ``neutral``, and is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, ValidationError
from torch import Tensor, nn

from ..util.validation import explain
from .losses import cosine as cosine
from .losses import soft_cross_entropy as soft_cross_entropy
from .model import ClientModels, FedModel, Output
from .spec import Spec
from .wire import Reply, State

Sharing = Literal["never", "once", "round"]


@dataclass(frozen=True)
class Batch:
    """What the clients of a block train on in one local step."""

    x: Tensor  # [C, B, ...]
    y: Tensor  # [C, B, K], soft labels: mixed and one-hot targets are the same thing
    step: int  # 0 is the first of the round


@dataclass
class ClientContext:
    """All that a method may see on the clients of a block during one round.

    C clients train together; a method has a context of its own, with its own memory and its own
    random numbers.
    """

    clients: Tensor  # [C], the clients that train
    round: int
    spec: Spec
    model: ClientModels
    global_params: State
    rngs: Sequence[np.random.Generator]  # one stream per client, the method's own: see draw
    descend: Callable[..., None]  # descend(loss [C], group): the only place where weights change
    sampler: Callable[[Sequence[np.random.Generator], tuple[int, ...]], tuple[Tensor, Tensor]]
    state: State = field(default_factory=dict)  # this method's memory, [C, ...]
    received: State = field(default_factory=dict)  # what this method's ``broadcast`` returned
    shared: State = field(default_factory=dict)  # what this method's ``share`` made
    scratch: dict[str, Tensor] = field(default_factory=dict)  # forgotten at the end of the round
    probed: Output | None = None  # the model's output on what ``probe`` returned in this step

    def draw(self, f: Callable[[np.random.Generator], Any]) -> Tensor:
        """Let every client draw from its own stream: [C, ...].

        Args:
            f: draws for one client, such as ``lambda rng: rng.normal(size=3)``.
        """
        values = np.stack([f(rng) for rng in self.rngs])
        return torch.from_numpy(values).to(self.spec.device, non_blocking=True)

    def local_samples(self, *shape: int) -> tuple[Tensor, Tensor]:
        """Let every client draw some of its own training samples, with replacement.

        Args:
            shape: how many, as one dimension or several.

        Returns:
            The samples, [C, *shape, ...], and their one-hot labels, [C, *shape, K].
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
    Whatever must be remembered lives in the ``State`` dictionaries that the runtime keeps, sends,
    counts and writes to checkpoints.

    Example: a method that keeps features small. ``loss`` returns one value per client, so it
    averages over the batch and the features.

        >>> class SmallFeatures(Method):
        ...     name = "small-features"
        ...     weight: float = 0.1
        ...
        ...     def loss(self, ctx, batch, out):
        ...         return self.weight * out.features.square().mean(dim=(1, 2))
        >>> method = SmallFeatures(weight=0.5)
        >>> out = Output(features=torch.full((2, 8, 3), 2.0), logits=torch.zeros(2, 8, 10))
        >>> method.loss(None, None, out)
        tensor([2., 2.])

    Attributes:
        name: how recipes and folders name the method.
        paper: where it was published.
        alone: whether clients train without a server: nothing is sent and nothing averaged.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, validate_default=True
    )

    name: ClassVar[str]
    paper: ClassVar[str] = ""
    alone: ClassVar[bool] = False

    if not TYPE_CHECKING:  # type checkers know the fields of each method better

        def __init__(self, **values: Any) -> None:
            try:
                super().__init__(**values)
            except ValidationError as error:
                name = getattr(self, "name", type(self).__name__)
                raise explain(type(self), error, name) from None

        def __setattr__(self, name: str, value: Any) -> None:
            if name.startswith("_"):
                super().__setattr__(name, value)
                return
            raise AttributeError(
                f"{type(self).__name__}.{name} cannot be set: a method holds hyper-parameters "
                "only; what is needed later in the round goes into ctx.scratch, what a client "
                "remembers into ctx.state (see init_client)"
            )

    @property
    def neutral(self) -> bool:
        """Say whether these settings make the method do nothing: it is left out of the run."""
        return False

    # Before training, or before a round. No client axis.
    def check(self, spec: Spec, sizes: Sequence[int]) -> None:
        """Refuse clients that the method cannot train.

        Args:
            spec: the facts of the run.
            sizes: how many distinct samples each client has.

        Raises:
            InputError: the method cannot train them; the message says why.
        """

    def rebuild(self, model: FedModel, spec: Spec) -> FedModel:
        """Return the model to train, if the method needs another one than the one given."""
        return model

    def extra_module(self, model: FedModel, spec: Spec) -> nn.Module | None:
        """Return a module to federate along with the model; only this method trains it.

        Its weights are the group of this method's name in ``ctx.model.groups``.
        """
        return None

    @property
    def sharing(self) -> Sharing:
        """Say when ``share`` makes data for all clients."""
        return "once" if overrides(self, "share") else "never"

    def shares_in(self, round: int) -> bool:
        """Say whether ``share`` is called in a round.

        Round 0 is before training, when all clients are asked.
        """
        return self.sharing == ("once" if round == 0 else "round")

    @property
    def asks_clients(self) -> bool:
        """Say whether ``share`` wants the clients' contributions."""
        return overrides(self, "contribute")

    def contribute(self, x: Tensor, y: Tensor, spec: Spec, rng: np.random.Generator) -> State:
        """Return what one client reveals to ``share``.

        Together with ``finish`` and the weights, this is all that a client ever reveals.

        Args:
            x: its samples, as the model sees them.
            y: their classes.
            spec: the facts of the run.
            rng: draws for this client and this method only.
        """
        return {}

    def share(self, contributions: Sequence[State], spec: Spec, rng: np.random.Generator) -> State:
        """Return what every client receives, on the server.

        Args:
            contributions: what ``contribute`` returned, of the clients that revealed something.
            spec: the facts of the run.
            rng: draws for this method only.
        """
        return {}

    # Each round, on the server. No client axis.
    def init_server(self, model: FedModel, spec: Spec) -> State:
        """Return the server's memory at the start."""
        return {}

    def broadcast(self, state: State) -> State:
        """Return what to send with the global model."""
        return {}

    def weigh(self, state: State, replies: Sequence[Reply]) -> Tensor | None:
        """Return the weights of the replies in the average; None leaves the choice to the server.

        Args:
            state: the server's memory.
            replies: of all clients of the round.
        """
        return None

    def combine(self, replies: Sequence[Reply], weights: Sequence[float]) -> State | None:
        """Return another average of the clients' models, ``reply.payload["model"]``.

        Example: the median of every weight.

            >>> class Median(Method):
            ...     name = "median"
            ...
            ...     def combine(self, replies, weights):
            ...         models = [reply.payload["model"] for reply in replies]
            ...         return {
            ...             key: torch.stack([model[key] for model in models]).median(dim=0).values
            ...             for key in models[0]
            ...         }
            >>> values = torch.tensor([1.0, 2.0, 9.0])
            >>> replies = [Reply(c, 10, {"model": {"bias": v}}) for c, v in enumerate(values)]
            >>> Median().combine(replies, [1 / 3] * 3)
            {'bias': tensor(2.)}

        Args:
            replies: of all clients of the round.
            weights: of the replies in the usual average; they sum to 1.

        Returns:
            What the method combines in its own way, in the shapes of the model. The rest is
            averaged. None leaves all of it to the server.
        """
        return None

    def update_server(self, state: State, ctx: ServerContext) -> None:
        """Update ``state`` in place after aggregation; may replace ``ctx.new_params``."""

    # Each round, on C clients.
    def init_client(self, model: FedModel) -> State:
        """Return the memory of one client that never trained, without a client axis.

        It must have all the keys that the client will ever remember.
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
        """Say whether ``probe`` and ``loss`` do nothing in a step, so that they are not called."""
        return False

    @property
    def edits(self) -> bool:
        """Say whether ``on_grad`` changes anything.

        If no method edits the gradient, it need not be written down.
        """
        return overrides(self, "on_grad")

    def on_grad(self, ctx: ClientContext, params: State) -> None:
        """Edit ``p.grad`` in place, before the optimiser step.

        Args:
            ctx: the clients; the weights of the start are in ``ctx.global_params``.
            params: the model's own weights, [C, ...], without the modules that methods add.
        """

    def finish(self, ctx: ClientContext) -> State:
        """Update ``ctx.state``; return what to upload beside the weights, [C, ...]."""
        return {}

    def on_upload(self, ctx: ClientContext, update: State) -> State:
        """Return what leaves in place of the clients' updates: clipped, noised, compressed.

        The clients' own memory keeps what they have trained.

        Example: limit how far any weight moves.

            >>> class Limit(Method):
            ...     name = "limit"
            ...     most: float = 0.1
            ...
            ...     def on_upload(self, ctx, update):
            ...         return {k: v.clamp(-self.most, self.most) for k, v in update.items()}
            >>> Limit(most=0.5).on_upload(None, {"bias": torch.tensor([[0.25, -3.0]])})
            {'bias': tensor([[ 0.2500, -0.5000]])}

        Args:
            ctx: the clients.
            update: how far each client has come from the global model, [C, ...]: all floats of the
                model, with the modules that methods add and with statistics.

        Returns:
            An update with the same keys and shapes.
        """
        return update


def overrides(method: Method, hook: str) -> bool:
    """Say whether a method has a hook of its own."""
    return getattr(type(method), hook) is not getattr(Method, hook)


def grad(p: Tensor) -> Tensor:
    """Return the gradient that ``on_grad`` may edit."""
    assert p.grad is not None
    return p.grad


def trained(model: FedModel) -> State:
    """Return the weights that ``on_grad`` sees.

    They are those that train, without the modules that methods add.
    """
    return {
        key: weight
        for key, weight in model.named_parameters()
        if weight.requires_grad and not key.startswith("extras.")
    }


def take(t: Tensor, index: Tensor) -> Tensor:
    """Let every client pick its own samples: t[c, index[c]]."""
    return t[torch.arange(len(t), device=t.device)[:, None], index]


def per_client(value: Tensor, like: Tensor) -> Tensor:
    """Reshape [C] to [C, 1, ...], ready to multiply with ``like``."""
    return value.to(like.dtype).view(-1, *[1] * (like.dim() - 1))
