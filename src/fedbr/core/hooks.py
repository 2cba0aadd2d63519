"""The methods of a run on the clients of a block: a list that acts in its order, called as one."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from ..util.errors import RunError
from .fast import Block, Outputs
from .method import Batch, ClientContext, Method, grad
from .optim import Gradient
from .wire import State

Pair = tuple[Method, ClientContext]


class Methods:
    """Every hook of the methods, in the listed order, each with its own view of the block."""

    def __init__(self, block: Block) -> None:
        self.block = block
        self.pairs: list[Pair] = []
        self._adding: list[Pair] = []  # those of them that may add to the loss
        self._editing: list[Pair] = []  # those that edit gradients

    def add(self, method: Method, ctx: ClientContext) -> None:
        """Let one more method act, after those before it."""
        pair = method, ctx
        self.pairs.append(pair)
        if _overrides(method, "loss") or _overrides(method, "probe"):
            self._adding.append(pair)
        if method.edits:
            self._editing.append(pair)

    def leave(self) -> None:
        """Forget the contexts, whose ``descend`` leads back here: they would outlive the round."""
        for pairs in (self.pairs, self._adding, self._editing):
            pairs.clear()

    def begin(self) -> None:
        for method, ctx in self.pairs:
            method.begin(ctx)
            for weights in self.block.groups.values():
                if any(p._backward_hooks for p in weights.values()):
                    raise RunError(
                        f"{method.name}: a hook on a weight may not be called; gradients are edited "
                        "in on_grad"
                    )

    def on_batch(self, batch: Batch) -> Batch:
        for method, ctx in self.pairs:
            batch = method.on_batch(ctx, batch)
            if not isinstance(batch, Batch):
                raise RunError(
                    f"{method.name}.on_batch must return the batch to train on, not "
                    f"{type(batch).__name__}"
                )
        return batch

    def adding(self, step: int) -> Terms:
        """Return those who may add to the loss in a step."""
        return Terms([pair for pair in self._adding if not pair[0].rests(step)])

    def on_grad(self, gradient: Gradient) -> Gradient:
        """Let methods edit the gradient of the model's weights; if none does, it stays as it is."""
        if not self._editing:
            return gradient
        params = self.block.groups["model"]
        for p, value in zip(params.values(), gradient.tensors(), strict=True):
            p.grad = value
        for method, ctx in self._editing:
            method.on_grad(ctx, params)
        return Gradient(list(params.values()), [grad(p) for p in params.values()])

    def finish(self) -> dict[str, State]:
        """Return what each method uploads beside the weights."""
        return {m.name: section for m, ctx in self.pairs if (section := m.finish(ctx))}

    def on_upload(self) -> State:
        """Return the weights that leave; where no method edits them, as they are to the bit."""
        editors = [(m, ctx) for m, ctx in self.pairs if _overrides(m, "on_upload")]
        if not editors:
            return self.block.snapshot()
        update = self.block.update()
        shapes = _shapes(update)
        for method, ctx in editors:
            update = method.on_upload(ctx, update)
            if _shapes(update) != shapes:
                raise RunError(
                    f"{method.name}.on_upload must return all weights in the shapes that they have"
                )
        return self.block.moved_by(update)


class Terms:
    """The methods that may add to the loss of a step."""

    def __init__(self, pairs: Sequence[Pair]) -> None:
        self.pairs = pairs
        self.probing: list[ClientContext] = []

    def __bool__(self) -> bool:
        return bool(self.pairs)

    def probes(self, batch: Batch) -> list[Tensor]:
        """Return the further samples that methods want to run."""
        probes = []
        for method, ctx in self.pairs:
            ctx.probed = None
            if (probe := method.probe(ctx, batch)) is not None:
                probes.append(probe)
                self.probing.append(ctx)
        return probes

    def add(self, cross_entropy: Tensor, batch: Batch, outputs: Outputs) -> Tensor:
        """Return the whole loss: [C]."""
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


def _overrides(method: Method, hook: str) -> bool:
    return getattr(type(method), hook) is not getattr(Method, hook)


def _check_term(method: Method, term: object, loss: Tensor) -> None:
    if isinstance(term, Tensor) and term.shape == loss.shape:
        return
    got = f"shape {list(term.shape)}" if isinstance(term, Tensor) else type(term).__name__
    raise RunError(f"{method.name}.loss must return one value per client, [{len(loss)}], not {got}")


def _shapes(update: State) -> dict[str, tuple[int, ...]]:
    return {key: tuple(value.shape) for key, value in update.items()}
