"""What users put into models and methods gives the same for clients together and one at a time."""

from __future__ import annotations

import gc
import warnings
from typing import Any, ClassVar

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fedbr
from fedbr.core.fast import Block
from fedbr.core.fast.block_size import choose_block_size
from fedbr.core.fast.stacked import Residual
from fedbr.core.method import Batch, ClientContext, trained
from fedbr.core.model import FedModel, Output
from fedbr.core.spec import Spec
from fedbr.core.wire import State
from fedbr.util.errors import RunError

OPTIONS: dict[str, Any] = {
    "rounds": 2,
    "local_steps": 3,
    "batch_size": 8,
    "lr": 0.05,
    "dtype": "float64",
}


def together_as_alone(
    federation: fedbr.Federation, model: str | FedModel, *methods: fedbr.Method, **more: Any
) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "clients train one at a time")
        warnings.filterwarnings("ignore", "the model has BatchNorm")
        alone, together = [
            fedbr.train(federation, model, methods, clients_at_once=c, **OPTIONS | more)
            for c in (1, 3)
        ]
    for key, value in together.model.state_dict().items():
        torch.testing.assert_close(value, alone.model.state_dict()[key], rtol=1e-10, atol=1e-12)


class Masked(nn.Module):
    """Has buffers that are no numbers, or not finite ones."""

    mask: Tensor

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.register_buffer(
            "mask", torch.tensor([True, False, True, True, True]).to(dtype), persistent=False
        )

    def forward(self, x: Tensor) -> Tensor:
        return x * self.mask


class Hides(Masked):
    """Needs a mask that is one."""

    def __init__(self) -> None:
        super().__init__(torch.bool)

    def forward(self, x: Tensor) -> Tensor:
        return x.masked_fill(~self.mask, 0)


REPEATED, AGAIN = nn.ReLU(), nn.Dropout(0.3)
MODELS = {
    "a mask": [nn.Linear(6, 5), Masked(torch.bool)],
    "whole numbers": [nn.Linear(6, 5), Masked(torch.int64)],
    "one object twice": [nn.Linear(6, 7), REPEATED, AGAIN, nn.Linear(7, 5), REPEATED, AGAIN],
    "draws on both ways": [
        nn.Linear(6, 5),
        Residual(
            nn.Sequential(nn.Linear(5, 5), nn.Dropout(0.4)),
            nn.Sequential(nn.Dropout(0.2), nn.Linear(5, 5)),
        ),
    ],
    "a chain inside": [
        nn.Linear(6, 5),
        Residual(nn.Sequential(nn.ReLU(), nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 5))),
    ],
    "something between": [
        nn.Linear(6, 7),
        nn.Identity(),
        nn.ReLU(),
        nn.Tanh(),
        nn.Linear(7, 5),
        nn.GELU(),
    ],
}


@pytest.mark.parametrize("variant", [(), (fedbr.FedBR(),)], ids=["fedavg", "fedbr"])
@pytest.mark.parametrize("name", MODELS)
def test_models(federation: fedbr.Federation, name: str, variant: tuple[fedbr.Method, ...]) -> None:
    torch.manual_seed(0)
    together_as_alone(federation, FedModel(nn.Sequential(*MODELS[name]), 5, 4), *variant)


class Replaces(nn.Module):
    """Counts by putting another tensor into the buffer's place."""

    seen: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.seen = self.seen + 1
        return x


def test_a_buffer_that_is_replaced_is_remembered_in_training(federation: fedbr.Federation) -> None:
    model = FedModel(nn.Sequential(nn.Linear(6, 5), Replaces()), 5, 4)
    run = fedbr.train(federation, model, clients_at_once=1, **OPTIONS)
    seen = run.model.state_dict()["encoder.1.seen"].item()
    assert seen == pytest.approx(OPTIONS["rounds"] * OPTIONS["local_steps"])
    assert model.state_dict()["encoder.1.seen"] == 0


def test_statistics_that_are_means_over_all_batches_train_one_client_at_a_time() -> None:
    model = FedModel(nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5, momentum=None)), 5, 4)
    norm = model.encoder[1]  # type: ignore[index]
    norm.num_batches_tracked += 20_000  # one more batch hardly moves them
    spec = Spec((6,), 4, 6, 6, local_steps=3, batch_size=8, lr=0.05)
    with pytest.warns(
        RuntimeWarning, match="one at a time: BatchNorm whose statistics are means over all batches"
    ):
        assert choose_block_size(model, spec, 3) == 1


class Halves(fedbr.Method):
    """Puts other weights into the place of the received ones."""

    name: ClassVar[str] = "halves"

    def begin(self, ctx: ClientContext) -> None:
        for p in ctx.model.groups["model"].values():
            p.data = p.data * 0.5

    def loss(self, ctx: ClientContext, batch: Batch, out: Output) -> Tensor | None:
        return None


class Slopes(fedbr.Method):
    """Differentiates with torch.func."""

    name: ClassVar[str] = "slopes"

    def loss(self, ctx: ClientContext, batch: Batch, out: Output) -> Tensor | None:
        _, slope = torch.func.jvp(
            lambda z: ctx.model(z).logits, (batch.x,), (torch.ones_like(batch.x),)
        )
        by_x = torch.func.grad(lambda z: ctx.model(z).logits.square().sum())(batch.x)
        return slope.square().mean(dim=(1, 2)) + by_x.square().mean(dim=(1, 2))


class Whole(fedbr.Method):
    """Makes labels that are whole numbers."""

    name: ClassVar[str] = "whole"

    def on_batch(self, ctx: ClientContext, batch: Batch) -> Batch:
        return Batch(batch.x, F.one_hot(batch.y.argmax(-1), ctx.spec.num_classes), batch.step)


class Keeps(fedbr.Method):
    """Remembers what trains, without statistics, and looks at features there."""

    name: ClassVar[str] = "keeps"

    def init_client(self, model: FedModel) -> State:
        return {k: p.detach().clone() for k, p in trained(model).items()}

    def loss(self, ctx: ClientContext, batch: Batch, out: Output) -> Tensor | None:
        old = ctx.model.frozen(ctx.state, batch.x).features
        return (out.features - old).square().mean(dim=(1, 2))


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # within torch.func.jvp
@pytest.mark.parametrize("method", [Halves(), Slopes(), Whole(), Keeps()], ids=lambda m: m.name)
def test_methods(federation: fedbr.Federation, method: fedbr.Method) -> None:
    torch.manual_seed(0)
    layers = [nn.Linear(6, 5), nn.BatchNorm1d(5) if isinstance(method, Keeps) else nn.ReLU()]
    together_as_alone(federation, FedModel(nn.Sequential(*layers), 5, 4), method)


def test_frozen_weights_without_statistics_use_those_of_the_start() -> None:
    torch.manual_seed(0)
    model = FedModel(nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), Hides()), 5, 4)
    model.encoder[1].running_mean += 3  # type: ignore[index, operator]
    x, some = torch.randn(8, 6), {k: p.detach() for k, p in model.named_parameters()}
    expected = model.eval()(x).features
    for size in (1, 3):
        local = Block(model, model.weights(), size, 1)
        for weights in (some, {k: v.expand(size, *v.shape) for k, v in some.items()}):
            result = local.frozen(weights, x).features
            torch.testing.assert_close(result.expand(size, 8, 5)[-1], expected)


class Hooks(fedbr.Method):
    name: ClassVar[str] = "hooks"

    def begin(self, ctx: ClientContext) -> None:
        for p in ctx.model.groups["model"].values():
            p.register_hook(lambda g: g.clamp(-0.01, 0.01))


@pytest.mark.parametrize("clients_at_once", [1, 3])
def test_hooks_on_weights_are_refused(federation: fedbr.Federation, clients_at_once: int) -> None:
    with pytest.raises(RunError, match=r"hooks: a hook on a weight may not be called; .* on_grad"):
        fedbr.train(federation, "mlp", [Hooks()], clients_at_once=clients_at_once, **OPTIONS)


class Own(fedbr.FedProx):
    def on_grad(self, ctx: ClientContext, params: State) -> None:
        for p in params.values():
            assert p.grad is not None
            p.grad.zero_()


class OwnMomentum(fedbr.FedCM):
    on_grad = Own.on_grad


def test_what_another_class_edits_is_edited(federation: fedbr.Federation) -> None:
    start, *runs = [
        fedbr.train(federation, "mlp", methods, **OPTIONS | {"rounds": rounds})
        for methods, rounds in (([Own(mu=0)], 1), ([Own(mu=0)], 2), ([OwnMomentum(alpha=1)], 2))
    ]
    for run in runs:  # nothing ever moves
        torch.testing.assert_close(run.model.state_dict(), start.model.state_dict())


class OwnTerm(fedbr.FedBR):
    """Adds a term in every step, also in those in which FedBR rests."""

    def loss(self, ctx: ClientContext, batch: Batch, out: Output) -> Tensor:
        seen.append(batch.step)
        term = super().loss(ctx, batch, out)
        return out.logits.square().mean(dim=(1, 2)) + (0 if term is None else term)


class Sleeper(fedbr.Method):
    """A term in every other step."""

    name = "sleeper"

    def rests(self, step: int) -> bool:
        return step % 2 == 1

    def loss(self, ctx: ClientContext, batch: Batch, out: Output) -> Tensor:
        seen.append(batch.step)
        return out.logits.square().mean(dim=(1, 2))


class Insomniac(Sleeper):
    """The same, asked in every step."""

    name = "sleeper"

    def rests(self, step: int) -> bool:
        return False

    def loss(self, ctx: ClientContext, batch: Batch, out: Output) -> Tensor | None:  # type: ignore[override]
        return None if batch.step % 2 else super().loss(ctx, batch, out)


seen: list[int] = []


def test_who_rests_is_not_asked_and_nothing_else_changes(federation: fedbr.Federation) -> None:
    options = OPTIONS | {"rounds": 1, "local_steps": 4, "clients_at_once": 3}
    for method, steps in ((OwnTerm(lazy=2), [0, 1, 2, 3]), (Sleeper(), [0, 2])):
        seen.clear()
        fedbr.train(federation, "mlp", [method], **options)
        assert list(dict.fromkeys(seen)) == steps
    for clients_at_once in (1, 3):
        for others in ([], [fedbr.Mixup(), fedbr.FedProx(mu=0.1)], [fedbr.FedNTD()]):
            runs = [
                fedbr.train(
                    federation,
                    "mlp",
                    [*others, own],
                    **options | {"clients_at_once": clients_at_once},
                )
                for own in (Sleeper(), Insomniac())
            ]
            assert all(map(torch.equal, *(run.model.state_dict().values() for run in runs)))


def test_nothing_of_a_round_outlives_it(federation: fedbr.Federation) -> None:
    def count(rounds: int) -> int:
        gc.collect()
        gc.disable()
        try:
            fedbr.train(
                federation, "mlp", [fedbr.SCAFFOLD(), fedbr.FedBR()], **OPTIONS | {"rounds": rounds}
            )
            return sum(type(o) is Tensor for o in gc.get_objects())
        finally:
            gc.enable()

    count(1)
    assert count(5) == count(2)
