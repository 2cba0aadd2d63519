"""What methods may do to uploads and to the average, and which methods are left out."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

import fedbr
from fedbr.backends.pool import WorkerPool
from fedbr.core.method_checks import check_methods, without_neutral
from fedbr.core.model import FedModel
from fedbr.core.wire import Reply, State
from fedbr.run.run_folder import RunFolder
from fedbr.util.errors import RunError
from playing import Play


class Clip(fedbr.Method):
    """Scale updates down to a norm: what differential privacy begins with."""

    name: ClassVar[str] = "clip"
    norm: float = 0.01

    def on_upload(self, ctx: fedbr.ClientContext, update: State) -> State:
        squares = sum(v.flatten(1).square().sum(dim=1) for v in update.values())
        assert isinstance(squares, Tensor)
        factor = (self.norm / squares.sqrt()).clamp(max=1)
        return {k: v * factor.view(-1, *[1] * (v.dim() - 1)) for k, v in update.items()}


class Noise(fedbr.Method):
    """Add noise, drawn by each client from its own stream."""

    name: ClassVar[str] = "noise"
    sigma: float = 0.01

    def on_upload(self, ctx: fedbr.ClientContext, update: State) -> State:
        return {
            k: v + self.sigma * ctx.draw(lambda rng, v=v: rng.normal(size=v.shape[1:]))  # type: ignore[misc]
            for k, v in update.items()
        }


class Median(fedbr.Method):
    """Take the median of every weight."""

    name: ClassVar[str] = "median"

    def combine(self, replies: Any, weights: Any) -> State:
        models = [reply.payload["model"] for reply in replies]
        return {k: torch.stack([m[k] for m in models]).median(dim=0).values for k in models[0]}


class Other(Median):
    name: ClassVar[str] = "other"


def norms(play: Play, replies: list[Reply]) -> list[float]:
    start = play.server.params
    lengths = []
    for reply in replies:
        moved = [v - start[k] for k, v in reply.payload["model"].items()]
        lengths.append(math.sqrt(sum(float(v.square().sum()) for v in moved)))
    return lengths


@pytest.mark.parametrize("clients_at_once", [1, 3])
def test_clipped_updates_have_at_most_the_norm(
    federation: fedbr.Federation, clients_at_once: int
) -> None:
    """Each client's by itself, with the modules that other methods add."""
    plain, clipped = (
        Play(federation, methods, clients_at_once=clients_at_once)
        for methods in ([fedbr.FedBR()], [fedbr.FedBR(), Clip()])
    )
    sent = []
    for play in (plain, clipped):
        play.server.absorb_contributions(1, [])
        sent.append(play.backend.run(play.server.broadcast(1, range(4))))
    assert min(norms(plain, sent[0])) > 0.01
    assert norms(clipped, sent[1]) == pytest.approx([0.01] * 4)
    for before, after in zip(*sent, strict=True):
        for key, start in plain.server.params.items():
            one, other = (r.payload["model"][key] - start for r in (before, after))
            scale = 0.01 / norms(plain, [before])[0]
            torch.testing.assert_close(other, scale * one, rtol=1e-6, atol=1e-12)


def test_updates_pass_the_methods_in_the_listed_order(federation: fedbr.Federation) -> None:
    """Noise behind the clipping is longer than the clipped norm; before it, it is clipped too."""
    lengths = []
    for methods in ([Clip(), Noise()], [Noise(), Clip()]):
        play = Play(federation, methods)
        lengths.append(max(norms(play, play.backend.run(play.server.broadcast(1, range(4))))))
    assert lengths[0] > 0.02
    assert lengths[1] == pytest.approx(0.01)


def test_memory_keeps_what_was_trained(federation: fedbr.Federation) -> None:
    """Only what leaves is edited."""
    plays = [
        Play(federation, methods, clients_per_round=6).run(last=1)
        for methods in ([fedbr.Moon()], [fedbr.Moon(), Clip(norm=1e-6)])
    ]
    for client in range(6):
        one, other = (play.backend.states[client]["moon"] for play in plays)
        assert all(torch.equal(one[k], other[k]) for k in one)
    assert not plays[0].same(plays[1], last=1)


def test_counters_are_sent_as_they_are(federation: fedbr.Federation) -> None:
    """Statistics of a norm are floats and pass; the number of batches is none."""
    seen: list[str] = []

    class Looks(fedbr.Method):
        name: ClassVar[str] = "looks"

        def on_upload(self, ctx: fedbr.ClientContext, update: State) -> State:
            seen.extend(update)
            return update

    model = FedModel(nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5)), 5, 4)
    with pytest.warns(RuntimeWarning, match="BatchNorm"):
        run = fedbr.train(federation, model, [Looks()], rounds=1, local_steps=3, batch_size=4)
    assert any("running_mean" in key for key in seen)
    assert not any("num_batches" in key for key in seen)
    assert int(run.model.state_dict()["encoder.1.num_batches_tracked"]) == 3


def test_an_upload_of_another_shape_is_refused(federation: fedbr.Federation) -> None:
    class Drops(fedbr.Method):
        name: ClassVar[str] = "drops"

        def on_upload(self, ctx: fedbr.ClientContext, update: State) -> State:
            return dict(list(update.items())[1:])

    with pytest.raises(RunError, match=r"drops.on_upload must return all weights with the shapes"):
        Play(federation, [Drops()]).run(last=1)


def test_the_median_is_that_of_the_replies(federation: fedbr.Federation) -> None:
    play = Play(federation, [Median()], clients_per_round=3)
    replies = play.backend.run(play.server.broadcast(1, range(3)))
    play.server.absorb(1, replies)
    for key, value in play.server.params.items():
        middle = torch.stack([r.payload["model"][key] for r in replies]).sort(dim=0).values[1]
        assert torch.equal(value, middle)


def test_what_is_not_combined_is_averaged(federation: fedbr.Federation) -> None:
    class First(fedbr.Method):
        """Takes the classifier of the first client."""

        name: ClassVar[str] = "first"

        def combine(self, replies: Any, weights: Any) -> State:
            model = replies[0].payload["model"]
            assert sum(weights) == pytest.approx(1)
            return {k: v for k, v in model.items() if k.startswith("classifier.")}

    plain, first = (Play(federation, m).run(last=1) for m in ([], [First()]))
    for key, value in first.server.params.items():
        own = key.startswith("classifier.")
        assert torch.equal(value, plain.server.params[key]) is not own


def test_a_weight_that_the_model_lacks_is_refused(federation: fedbr.Federation) -> None:
    class Invents(fedbr.Method):
        name: ClassVar[str] = "invents"

        def combine(self, replies: Any, weights: Any) -> State:
            return {"more": torch.zeros(2)}

    with pytest.raises(
        RunError, match=r"^invents.combine: more of shape \[2\] is not in the model$"
    ):
        Play(federation, [Invents()]).run(last=1)


def test_two_averages_are_refused() -> None:
    with pytest.raises(fedbr.InputError, match="median and other both make the average; keep one"):
        check_methods([Median(), Other()])
    check_methods([Median(), fedbr.GroupDRO(), Clip()])


def test_pool_serial_and_resume_agree(federation: fedbr.Federation, tmp_path: Path) -> None:
    methods = [fedbr.FedBR(), Clip(), Noise(), Median()]
    whole = Play(federation, methods).run()
    with WorkerPool(2) as pool:
        assert whole.same(Play(federation, methods, pool).run())
    folder = RunFolder(tmp_path, 9)
    for first, last in ((1, 2), (3, 4)):
        play = Play(federation, methods)
        assert folder.resume(play.server, play.backend) == first - 1
        play.run(first, last)
        for record in play.records:
            folder.append(record)
        folder.checkpoint(last, play.server, play.backend)
    assert whole.same(play)


def test_where_nobody_edits_uploads_no_bit_is_lost(federation: fedbr.Federation) -> None:
    """An update is a difference: added again, it is not always what it was."""

    class Identity(fedbr.Method):
        name: ClassVar[str] = "identity"

        def on_upload(self, ctx: fedbr.ClientContext, update: State) -> State:
            return update

    plain, same = (Play(federation, m).run(last=1) for m in ([], [Identity()]))
    for one, other in zip(plain.models(), same.models(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-14)


class Mine(fedbr.FedProx):
    """A subclass with a hook of its own, of which FedProx's ``neutral`` knows nothing."""

    name: ClassVar[str] = "mine"

    def loss(self, ctx: Any, batch: Any, out: Any) -> Tensor:
        term: Tensor = out.logits.square().mean(dim=(1, 2))
        return term


class Renamed(fedbr.FedProx):
    name: ClassVar[str] = "renamed"


class MineToo(Mine):
    name: ClassVar[str] = "mine-too"

    @property
    def neutral(self) -> bool:
        return True


def test_neutral_methods_are_left_out(federation: fedbr.Federation) -> None:
    kept = [fedbr.FedProx(), Mine(mu=0), fedbr.FedBR(lam=0), fedbr.FedBR(components=1)]
    left = [fedbr.FedProx(mu=0), Renamed(mu=0), MineToo(), fedbr.FedBR(lam=0, mu=0)]
    left += [fedbr.FedBR(components=1, lam=0), fedbr.FedBR(components=2, mu=0)]
    assert without_neutral(kept) == kept
    assert without_neutral(left) == []
    play = Play(federation, [fedbr.Moon(weight=0), fedbr.FedProx(), fedbr.DANN(weight=0)])
    assert [method.name for method in play.server.setup.methods] == ["fedprox"]
    assert not play.server.setup.model.extras
