"""The helpers that methods are written with."""

import pytest
import torch

import fedbr
from fedbr.core.method import cosine, per_client, soft_cross_entropy, take
from fedbr.core.method_checks import check_methods, loss_returns_nothing


def test_take_lets_every_client_pick_its_own() -> None:
    t = torch.arange(2 * 3 * 4).view(2, 3, 4)
    index = torch.tensor([[2, 0], [1, 1]])
    assert torch.equal(take(t, index), torch.stack([t[0, [2, 0]], t[1, [1, 1]]]))


def test_per_client_broadcasts_over_samples() -> None:
    scaled = per_client(torch.tensor([2.0, 3.0]), torch.zeros(2, 4, 5)) * torch.ones(2, 4, 5)
    assert torch.equal(scaled[0], torch.full((4, 5), 2.0))
    assert torch.equal(scaled[1], torch.full((4, 5), 3.0))


def test_cross_entropy_and_cosine_are_those_of_each_client() -> None:
    torch.manual_seed(0)
    logits, y = torch.randn(3, 5, 4), torch.randint(4, (3, 5))
    soft = soft_cross_entropy(logits, torch.nn.functional.one_hot(y, 4))
    alone = torch.stack([torch.nn.functional.cross_entropy(logits[c], y[c]) for c in range(3)])
    assert torch.allclose(soft, alone)
    a, b = torch.randn(3, 5, 4), torch.randn(3, 5, 4)
    assert torch.allclose(cosine(a, b)[1, 2], a[1, 2] @ b[1, 2] / (a[1, 2].norm() * b[1, 2].norm()))


class Weighs(fedbr.Method):
    name = "weighs"

    def weigh(self, state, replies):  # type: ignore[no-untyped-def]
        return None


class WeighsToo(Weighs):
    name = "weighs-too"


class Nameless(fedbr.Method):
    pass


class Reserved(fedbr.Method):
    name = "model"


def test_what_cannot_be_combined_is_refused_with_the_reason() -> None:
    check_methods([Weighs(), fedbr.FedBR()])
    for methods, reason in (
        ([Weighs(), WeighsToo()], "both choose the aggregation weights"),
        ([fedbr.FedBR(), fedbr.FedBR(lam=1)], "duplicate"),
        ([Nameless()], "Nameless.name"),
        ([Reserved()], "Reserved.name"),
    ):
        with pytest.raises(fedbr.InputError, match=reason):
            check_methods(methods)


class Forgets(fedbr.Method):
    name = "forgets"

    def loss(self, ctx, batch, out):  # type: ignore[no-untyped-def]
        out.logits.square().mean(dim=(1, 2))


class Looks(fedbr.Method):
    name = "looks"

    def loss(self, ctx, batch, out):  # type: ignore[no-untyped-def]
        ctx.scratch["seen"] = out.logits
        return None  # noqa: RET501


class Short(fedbr.Method):
    name = "short"
    loss = lambda self, ctx, batch, out: out.logits.mean(dim=(1, 2))  # noqa: E731


class ForgetsOutside(fedbr.Method):
    name = "forgets-outside"

    def loss(self, ctx, batch, out):  # type: ignore[no-untyped-def]
        def inner():  # type: ignore[no-untyped-def]
            return out.logits

        inner()


class Fails(fedbr.Method):
    name = "fails"

    def loss(self, ctx, batch, out):  # type: ignore[no-untyped-def]
        raise ValueError


def test_a_loss_without_a_return_is_noticed(federation: fedbr.Federation) -> None:
    others = [Looks(), Short(), Fails(), fedbr.FedBR(), fedbr.GroupDRO(), fedbr.Mixup()]
    assert [loss_returns_nothing(m) for m in (Forgets(), ForgetsOutside())] == [True, True]
    assert not any(loss_returns_nothing(m) for m in others)
    with pytest.warns(
        RuntimeWarning, match=r"^methods: Forgets\.loss has no return, so it adds no term"
    ):
        fedbr.train(federation, "mlp", [Forgets()], rounds=1, local_steps=1)
