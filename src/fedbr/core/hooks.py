"""The methods of a run on the clients of a block: a list that acts in its order, called as one."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..util.errors import RunError
from .fast import Block, Outputs
from .method import Batch, ClientContext, Method, grad, overrides
from .optim import Gradient
from .wire import State

Pair = tuple[Method, ClientContext]


class Methods:
    """The methods of a run, each with its own context; every hook is called in the listed order.

    Args:
        block: the models of the clients that train.
    """

    def __init__(self, block: Block) -> None:
        self.block = block
        self.pairs: list[Pair] = []
        self._adding: list[Pair] = []  # those of them that may add to the loss
        self._editing: list[Pair] = []  # those that edit gradients

    def add(self, method: Method, ctx: ClientContext) -> None:
        """Let one more method act, after those before it."""
        pair = method, ctx
        self.pairs.append(pair)
        if overrides(method, "loss") or overrides(method, "probe"):
            self._adding.append(pair)
        if method.edits:
            self._editing.append(pair)

    def leave(self) -> None:
        """Forget the contexts.

        Their ``descend`` refers to this object: without this they would live until the garbage
        collector comes.
        """
        for pairs in (self.pairs, self._adding, self._editing):
            pairs.clear()

    def begin(self) -> None:
        """Prepare all methods.

        Raises:
            RunError: a method has put a PyTorch hook on a weight, which would not be called.
        """
        for method, ctx in self.pairs:
            method.begin(ctx)
            for weights in self.block.groups.values():
                if any(weight._backward_hooks for weight in weights.values()):
                    raise RunError(
                        f"{method.name}: a hook on a weight may not be called; gradients are "
                        "edited in on_grad"
                    )

    def on_batch(self, batch: Batch) -> Batch:
        """Return the batch to train on."""
        for method, ctx in self.pairs:
            batch = method.on_batch(ctx, batch)
            if not isinstance(batch, Batch):
                raise RunError(
                    f"{method.name}.on_batch must return the batch to train on, not "
                    f"{type(batch).__name__}"
                )
        return batch

    def adding(self, step: int) -> Terms:
        """Return the methods that may add to the loss in a step."""
        return Terms([pair for pair in self._adding if not pair[0].rests(step)])

    def on_grad(self, gradient: Gradient) -> Gradient:
        """Let methods edit the gradient of the model's weights.

        If no method does, the gradient is returned as it is, and need not be written down.
        """
        if not self._editing:
            return gradient
        params = self.block.groups["model"]
        weights = list(params.values())
        for weight, value in zip(weights, gradient.tensors(), strict=True):
            weight.grad = value
        for method, ctx in self._editing:
            method.on_grad(ctx, params)
        return Gradient(weights, [grad(weight) for weight in weights])

    def finish(self) -> dict[str, State]:
        """Return what each method uploads beside the weights."""
        sections = {method.name: method.finish(ctx) for method, ctx in self.pairs}
        return {name: section for name, section in sections.items() if section}

    def on_upload(self) -> State:
        """Return the weights that leave; where no method edits them, as they are to the bit."""
        editors = [pair for pair in self.pairs if overrides(pair[0], "on_upload")]
        if not editors:
            return self.block.snapshot()
        update = self.block.update()
        shapes = _shapes(update)
        for method, ctx in editors:
            update = method.on_upload(ctx, update)
            if _shapes(update) != shapes:
                raise RunError(
                    f"{method.name}.on_upload must return all weights with the shapes and types "
                    "that they have"
                )
        return self.block.moved_by(update)


class Terms:
    """The methods that may add to the loss of a step."""

    def __init__(self, pairs: Sequence[Pair]) -> None:
        self.pairs = pairs
        self.probing: list[ClientContext] = []

    def __bool__(self) -> bool:
        """Say whether any method may add to the loss."""
        return bool(self.pairs)

    def probes(self, batch: Batch) -> list[Tensor]:
        """Return the further samples that methods want to run."""
        probes = []
        for method, ctx in self.pairs:
            ctx.probed = None
            probe = method.probe(ctx, batch)
            if probe is not None:
                probes.append(probe)
                self.probing.append(ctx)
        return probes

    def add(self, cross_entropy: Tensor, batch: Batch, outputs: Outputs) -> Tensor:
        """Return the whole loss: [C].

        Args:
            cross_entropy: of the batch, [C].
            batch: what the clients train on.
            outputs: what the models make of it, and of ``probes``.
        """
        loss = cross_entropy
        for ctx, output in zip(self.probing, outputs.probed, strict=True):
            ctx.probed = output
        for method, ctx in self.pairs:
            assert outputs.seen is not None
            term = method.loss(ctx, batch, outputs.seen)
            if term is not None:
                _check_term(method, term, loss)
                loss = loss + term
        return loss


def _check_term(method: Method, term: object, loss: Tensor) -> None:
    if isinstance(term, Tensor) and term.shape == loss.shape:
        return
    returned = f"shape {list(term.shape)}" if isinstance(term, Tensor) else type(term).__name__
    raise RunError(
        f"{method.name}.loss must return one value per client, [{len(loss)}], not {returned}"
    )


def _shapes(update: State) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
    return {key: (tuple(value.shape), value.dtype) for key, value in update.items()}
