"""What the runtime promises whatever the method.

Blocks and workers change nothing, few clients of many may take part, clients may be tiny, and
divergence is noticed.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import nn

import fedbr
from conftest import blobs
from fedbr.core.rng import stream
from fedbr.models import fingerprint
from fedbr.run.results import RunResult

VARIANTS = {"fedavg": [], "fedbr": [fedbr.FedBR()]}  # all methods: tests/contract
SHORT_PLAIN = {"rounds": 1, "local_steps": 2, "batch_size": 8}
SHORT = {"rounds": 3, "local_steps": 4, "batch_size": 8, "lr": 0.05, "hidden": (7,)}


def weights(run: fedbr.Run) -> list[torch.Tensor]:
    return list(run.model.state_dict().values())


def same(a: fedbr.Run, b: fedbr.Run) -> bool:
    timeless = [
        [{k: v for k, v in line.items() if "seconds" not in k} for line in run.lines]
        for run in (a, b)
    ]
    return all(map(torch.equal, weights(a), weights(b))) and timeless[0] == timeless[1]


@pytest.mark.parametrize("variant", VARIANTS)
def test_same_seed_same_bits_other_seed_other_bits(
    federation: fedbr.Federation, variant: str
) -> None:
    first, again, other = (
        fedbr.train(federation, "mlp", VARIANTS[variant], seed=s, **SHORT) for s in (1, 1, 2)
    )
    assert same(first, again)
    assert not same(first, other)


def test_the_torch_generator_and_threads_of_the_caller_are_left_alone(
    federation: fedbr.Federation,
) -> None:
    torch.manual_seed(1)
    expected = torch.rand(1)
    torch.manual_seed(1)
    threads = torch.get_num_threads()
    fedbr.train(federation, "mlp", [fedbr.FedBR()], **SHORT)
    assert torch.equal(torch.rand(1), expected)
    assert torch.get_num_threads() == threads


def test_fedavg_is_sgd_and_a_mean(federation: fedbr.Federation) -> None:
    """FedAvg written out: two clients of unequal size, both ways to weigh them."""
    sizes = [len(p) for p in federation.train.parts.values()]
    x, y = federation.train.samples.x, federation.train.samples.y
    for aggregate in ("uniform", "samples"):
        model = fedbr.FedModel(nn.Sequential(nn.Linear(6, 5), nn.Tanh()), 5, 4).double()
        settings = {"rounds": 1, "local_steps": 3, "batch_size": 4, "lr": 0.1, "dtype": "float64"}
        run = fedbr.train(federation, model, aggregate=aggregate, **settings)
        total = [torch.zeros_like(p) for p in model.parameters()]
        for client, part in federation.train.parts.items():
            own = [p.detach().clone().requires_grad_() for p in model.parameters()]
            draws = stream(0, "batches", 1, client).integers(len(part), size=(3, 4))
            for step in range(3):
                rows = torch.from_numpy(part[draws[step]])
                logits = torch.tanh(x[rows] @ own[0].T + own[1]) @ own[2].T + own[3]
                grads = torch.autograd.grad(nn.functional.cross_entropy(logits, y[rows]), own)
                own = [
                    (p - 0.1 * g).detach().requires_grad_() for p, g in zip(own, grads, strict=True)
                ]
            share = sizes[client] / sum(sizes) if aggregate == "samples" else 1 / len(sizes)
            total = [t + share * p.detach() for t, p in zip(total, own, strict=True)]
        for got, wanted in zip(run.model.parameters(), total, strict=True):
            assert torch.allclose(got, wanted, rtol=0, atol=1e-12)


def test_momentum_and_weight_decay_act_and_the_optimiser_is_fresh_each_round(
    federation: fedbr.Federation,
) -> None:
    plain = fedbr.train(federation, "mlp", **SHORT)
    for options in ({"momentum": 0.9}, {"weight_decay": 0.1}):
        assert not same(plain, fedbr.train(federation, "mlp", **SHORT, **options))
    # With one local step a fresh momentum buffer is the gradient itself.
    one_step = SHORT | {"local_steps": 1, "dtype": "float64"}
    runs = [
        fedbr.train(federation, "mlp", momentum=momentum, **one_step) for momentum in (0.0, 0.9)
    ]
    for a, b in zip(*(run.model.parameters() for run in runs), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-14)


def test_a_client_with_a_single_sample_trains() -> None:
    x, y = blobs()
    clients = [(x[:1], y[:1]), (x[1:60], y[1:60]), (x[60:], y[60:])]
    federation = fedbr.Federation.from_clients(clients, test=(x, y))
    run = fedbr.train(federation, "mlp", [fedbr.FedBR()], **SHORT)
    assert all(np.isfinite(run.loss))


def test_partial_participation_draws_anew_and_evaluates_everybody(
    federation: fedbr.Federation,
) -> None:
    run = fedbr.train(
        federation, "mlp", [fedbr.FedBR()], clients_per_round=2, **SHORT | {"rounds": 8}
    )
    chosen = [tuple(line["clients"]) for line in run.lines]
    assert all(len(set(c)) == 2 for c in chosen)
    assert len(set(chosen)) > 2
    assert all(len(line["accuracy_clients"]) == 6 for line in run.lines)


def test_bytes_are_counted(federation: fedbr.Federation) -> None:
    model_bytes = 4 * (6 * 7 + 7 + 7 * 4 + 4)
    projector_bytes = 4 * (7 * 256 + 256 + 256 * 256 + 256 + 256 * 128 + 128)
    pseudo_bytes = 4 * 6  # one sample of six features
    plain = fedbr.train(federation, "mlp", **SHORT)
    assert plain.bytes == [(6 * model_bytes, 6 * model_bytes)] * 3
    each = fedbr.train(federation, "mlp", [fedbr.FedBR()], **SHORT)
    means = 6 * 2  # ceil(8 / 6) from each of six clients
    both = 6 * (model_bytes + projector_bytes)
    assert each.bytes == [(both + means * pseudo_bytes, both + 6 * 8 * pseudo_bytes)] * 3
    once = fedbr.train(federation, "mlp", [fedbr.FedBR(refresh="once")], **SHORT)
    assert once.bytes == [each.bytes[0], (both, both), (both, both)]
    first = fedbr.train(federation, "mlp", [fedbr.FedBR(components=1)], **SHORT)
    assert (
        first.bytes[0][0] == 6 * model_bytes + means * pseudo_bytes
    )  # no projector, nothing of it sent


class SaysOnce(fedbr.Method):
    """Asks every client for one number, once."""

    name: ClassVar[str] = "says-once"

    def contribute(self, x, y, spec, rng):  # type: ignore[no-untyped-def]
        return {"n": torch.tensor([len(x)], dtype=torch.float32)}

    def share(self, contributions, spec, rng):  # type: ignore[no-untyped-def]
        return {"total": sum(c["n"] for c in contributions)}

    def begin(self, ctx: fedbr.ClientContext) -> None:
        assert ctx.shared["total"] == 160


def test_what_is_asked_once_is_sent_once_beside_what_is_asked_each_round(
    federation: fedbr.Federation,
) -> None:
    plain = fedbr.train(federation, "mlp", [fedbr.FedBR()], clients_per_round=2, **SHORT)
    both = fedbr.train(federation, "mlp", [SaysOnce(), fedbr.FedBR()], clients_per_round=2, **SHORT)
    more_up = [b[0] - p[0] for b, p in zip(both.bytes, plain.bytes, strict=True)]
    assert more_up == [6 * 4, 0, 0]
    seen: set[int] = set()
    for line, before in zip(both.lines, plain.lines, strict=True):
        new = set(line["clients"]) - seen
        assert line["bytes_down"] - before["bytes_down"] == 4 * len(new)
        seen |= new


def test_new_clients_get_shared_data_when_they_come(federation: fedbr.Federation) -> None:
    settings = SHORT | {"rounds": 12, "clients_per_round": 2}
    run = fedbr.train(federation, "mlp", [fedbr.FedBR(refresh="once")], **settings)
    fixed = min(down for _, down in run.bytes)
    seen: set[int] = set()
    for line in run.lines:
        new = set(line["clients"]) - seen
        assert line["bytes_down"] == fixed + len(new) * 8 * 6 * 4
        seen |= new


@pytest.mark.parametrize("workers", [1, 2])
def test_divergence_names_round_and_client(federation: fedbr.Federation, workers: int) -> None:
    samples = federation.train.samples
    samples.x[torch.from_numpy(federation.train.parts[4])] *= 1e200
    with pytest.raises(fedbr.Diverged) as caught:
        fedbr.train(federation, "mlp", workers=workers, clients_at_once=2, dtype="float64", **SHORT)
    assert (caught.value.round, caught.value.client) == (1, 4)
    assert "round 1, client 4" in str(caught.value)


def test_dropout_that_no_rule_reaches_is_noticed_in_the_classifier_too(
    federation: fedbr.Federation,
) -> None:
    model = fedbr.FedModel(nn.Linear(6, 6), 6, 4, nn.Sequential(Noisy(), nn.Linear(8, 4)))
    with pytest.warns(RuntimeWarning, match="one at a time"):
        fedbr.train(federation, model, rounds=1, local_steps=2)


IMAGES = (1, 2, 3)  # the six numbers of a sample
DRAWING = {
    "dropout": [nn.Linear(6, 9), nn.Dropout(0.3), nn.ReLU(), nn.Linear(9, 5), nn.Dropout(0.5)],
    "all or nothing": [
        nn.Linear(6, 5),
        nn.Dropout(1.0),
        nn.Dropout(0.0),
        nn.Linear(5, 5),
        nn.Dropout(0.5),
    ],
    "batch norm": [nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU()],
    "images": [
        nn.Unflatten(1, IMAGES),
        nn.Conv2d(1, 8, 2),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Dropout2d(0.3),
        nn.Dropout(0.2),
        nn.Conv2d(8, 5, 1),
        nn.BatchNorm2d(5, affine=False),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(0.2),
    ],
}


@pytest.mark.filterwarnings("ignore:the model has BatchNorm")
@pytest.mark.filterwarnings("error:clients train one at a time")
@pytest.mark.parametrize(
    "methods", [[], [fedbr.FedBR()], [fedbr.Moon(), fedbr.SCAFFOLD()]], ids=str
)
@pytest.mark.parametrize("kind", DRAWING)
def test_every_client_draws_and_remembers_what_it_would_alone(
    federation: fedbr.Federation, kind: str, methods: list[fedbr.Method]
) -> None:
    torch.manual_seed(0)
    model = fedbr.FedModel(nn.Sequential(*DRAWING[kind]), 5, 4)
    options = {k: v for k, v in SHORT.items() if k != "hidden"} | {
        "dtype": "float64",
        "clients_per_round": 5,
    }
    alone, *together = [
        fedbr.train(federation, model, methods, clients_at_once=c, **options) for c in (1, 2, 5)
    ]
    assert (alone.model.classifier.bias - model.classifier.bias).abs().max() > 1e-3  # type: ignore[operator, union-attr]
    for run in together:
        for key, value in run.model.state_dict().items():
            torch.testing.assert_close(value, alone.model.state_dict()[key], rtol=1e-9, atol=1e-9)


def test_batch_norm_without_memory_would_mix_clients(federation: fedbr.Federation) -> None:
    encoder = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5, track_running_stats=False))
    with warnings.catch_warnings(record=True) as messages:
        warnings.simplefilter("always")
        fedbr.train(federation, fedbr.FedModel(encoder, 5, 4), rounds=1, local_steps=2)
    assert any(
        "one at a time: BatchNorm that remembers no statistics" in str(w.message) for w in messages
    )


@pytest.mark.filterwarnings("ignore:the model has BatchNorm")
def test_statistics_that_a_rule_does_not_know_are_noticed(federation: fedbr.Federation) -> None:
    encoder = nn.Sequential(
        nn.Linear(6, 5), nn.BatchNorm1d(5, momentum=None)
    )  # a mean over all batches
    with pytest.warns(
        RuntimeWarning, match="one at a time: BatchNorm whose statistics are means over all batches"
    ):
        fedbr.train(federation, fedbr.FedModel(encoder, 5, 4), rounds=1, local_steps=2)


class Counts(nn.Module):
    """A buffer that is not in the state_dict must not leak from client to client."""

    seen: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 5)
        self.register_buffer("seen", torch.zeros(()), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.seen.add_(1)
        out: torch.Tensor = self.linear(x) * (1 + 0.1 * self.seen)
        return out


def test_buffers_that_are_not_saved_belong_to_a_client_all_the_same(
    federation: fedbr.Federation,
) -> None:
    model = fedbr.FedModel(Counts(), 5, 4)
    options = {k: v for k, v in SHORT.items() if k != "hidden"}
    one, two = (
        fedbr.train(federation, model, clients_at_once=1, workers=w, **options) for w in (1, 2)
    )
    assert same(one, two)


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)
        self.second.weight = self.first.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.second(torch.relu(self.first(x)))
        return out


def test_tied_weights_stay_tied(federation: fedbr.Federation) -> None:
    run = fedbr.train(federation, fedbr.FedModel(Tied(), 6, 4), rounds=2, local_steps=3, lr=0.1)
    encoder = run.model.encoder
    assert isinstance(encoder, Tied)
    assert encoder.first.weight is encoder.second.weight


class EveryOther(fedbr.Method):
    """Probes in every other step only, and sends a weight as it is."""

    name: ClassVar[str] = "every-other"

    def probe(self, ctx: fedbr.ClientContext, batch: fedbr.Batch) -> torch.Tensor | None:
        return batch.x if batch.step % 2 else None

    def loss(
        self, ctx: fedbr.ClientContext, batch: fedbr.Batch, out: fedbr.Output
    ) -> torch.Tensor | None:
        assert (ctx.probed is not None) == bool(batch.step % 2)
        return None if ctx.probed is None else ctx.probed.logits.square().mean(dim=(1, 2))

    def finish(self, ctx: fedbr.ClientContext) -> dict[str, torch.Tensor]:
        return {"bias": ctx.model.weights["classifier.bias"].detach()}


@pytest.mark.parametrize("clients_at_once", [1, 3])
def test_probes_and_uploads_of_any_kind(federation: fedbr.Federation, clients_at_once: int) -> None:
    one, two = (
        fedbr.train(
            federation, "mlp", [EveryOther()], clients_at_once=clients_at_once, workers=w, **SHORT
        )
        for w in (1, 2)
    )
    assert same(one, two)


class Clumsy(fedbr.Method):
    """A user's method with a mistake in it."""

    name: ClassVar[str] = "clumsy"

    def begin(self, ctx: fedbr.ClientContext) -> None:
        raise KeyError("the user's mistake")


def test_a_mistake_in_a_worker_is_shown_with_its_place(federation: fedbr.Federation) -> None:
    with pytest.raises(RuntimeError, match="the user's mistake") as caught:
        fedbr.train(federation, "mlp", [Clumsy()], workers=2, **SHORT)
    assert "in begin" in str(caught.value.__cause__)


class Noisy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.ReLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layers(x)
        return out


def test_dropout_trains_one_client_at_a_time_says_so_and_is_reproducible(
    federation: fedbr.Federation,
) -> None:
    model = fedbr.FedModel(Noisy(), 8, 4)
    options = {k: v for k, v in SHORT.items() if k != "hidden"}
    with pytest.warns(RuntimeWarning, match="one at a time"):
        runs = [
            fedbr.train(federation, model, clients_at_once=6, workers=w, **options) for w in (1, 2)
        ]
    assert same(*runs)


def test_batch_norm_buffers_are_averaged_and_counters_copied(federation: fedbr.Federation) -> None:
    model = fedbr.FedModel(nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU()), 5, 4)
    options = {k: v for k, v in SHORT.items() if k != "hidden"}
    with warnings.catch_warnings(record=True) as messages:
        warnings.simplefilter("always")
        run = fedbr.train(federation, model, **options | {"rounds": 1})
    assert ["BatchNorm" in str(w.message) for w in messages] == [True]
    state = run.model.state_dict()
    assert state["encoder.1.num_batches_tracked"] == 4
    assert not torch.equal(state["encoder.1.running_mean"], torch.zeros(5))


def test_the_users_model_is_not_touched(federation: fedbr.Federation) -> None:
    model = fedbr.FedModel(nn.Linear(6, 5), 5, 4)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    run = fedbr.train(federation, model, [fedbr.FedBR()], rounds=1, local_steps=2)
    assert model.state_dict().keys() == before.keys() == run.model.state_dict().keys()
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())


class ModelOfAnotherShape(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.classifier = nn.Linear(6, 3), nn.Linear(3, 4)


def test_models_of_users_are_adopted_or_refused(federation: fedbr.Federation) -> None:
    fedbr.train(federation, ModelOfAnotherShape(), rounds=1, local_steps=1)
    with pytest.raises(fedbr.InputError, match="FedModel"):
        fedbr.train(federation, nn.Linear(6, 4), rounds=1, local_steps=1)
    with pytest.raises(fedbr.InputError, match=r"features .* \(2, 9\)"):
        fedbr.train(federation, fedbr.FedModel(nn.Linear(6, 5), 9, 4, nn.Linear(5, 4)), rounds=1)
    with pytest.raises(fedbr.InputError, match="logits"):
        fedbr.train(federation, fedbr.FedModel(nn.Linear(6, 5), 5, 3), rounds=1)
    with pytest.raises(fedbr.InputError, match="shape"):
        fedbr.train(federation, fedbr.FedModel(nn.Linear(7, 5), 5, 4), rounds=1)
    with pytest.raises(fedbr.InputError, match="images"):
        fedbr.train(federation, "cnn", rounds=1)


def test_the_global_model_starts_the_same_for_every_variant(federation: fedbr.Federation) -> None:
    tiny = SHORT | {"rounds": 1, "local_steps": 1, "lr": 1e-30}
    assert all(
        torch.equal(a, b)
        for a, b in zip(
            weights(fedbr.train(federation, "mlp", **tiny)),
            weights(fedbr.train(federation, "mlp", [fedbr.FedBR(lam=0.3)], **tiny)),
            strict=True,
        )
    )


@pytest.mark.parametrize("own", [False, True], ids=["one test set", "a test set each"])
def test_a_part_of_the_test_sets_between_and_all_in_the_end(own: bool) -> None:
    x, y = blobs()
    # More than a batch, and less than the part.
    sets = [blobs(per_class=n, seed=0) for n in (400, 7, 30)]
    clients = [(x[i::3], y[i::3]) for i in range(3)]
    federation = fedbr.Federation.from_clients(clients, test=sets if own else sets[0])
    settings = SHORT | {"lr": 0.3}
    variants: dict[str, list[fedbr.Method]] = {"one model": [], "a model each": [fedbr.Local()]}
    spread = fedbr.compare(
        federation, variants, "mlp", seeds=[0], workers=2, evaluate_samples=20, **settings
    )
    for label, methods in variants.items():
        whole = fedbr.train(federation, "mlp", methods, **settings)
        part = fedbr.train(federation, "mlp", methods, evaluate_samples=20, **settings)
        assert all(map(torch.equal, weights(part), weights(whole)))
        assert part.accuracy[-1] == whole.accuracy[-1]
        assert part.accuracy_clients[-1] == whole.accuracy_clients[-1]
        assert part.accuracy[:-1] != whole.accuracy[:-1]
        check_same_in_processes(part, spread.of(label)[0])
        for record in part.rounds[:-1]:
            if own:  # five of each class, of every client's own
                hits = [20 * accuracy for accuracy in record.accuracy_clients or () if accuracy]
            elif not methods:
                hits = [20 * (record.accuracy or 0.0)]
            else:
                continue  # the mean over several models is no whole number of hits
            assert hits == pytest.approx([round(h) for h in hits])


def check_same_in_processes(run: fedbr.Run, result: RunResult) -> None:
    """Check that processes gave the same rounds and the same models."""
    timeless = []
    for rounds in (run.rounds, result.rounds):
        timeless.append([replace(r, seconds_train=0.0, seconds_evaluate=0.0) for r in rounds])
    assert timeless[0] == timeless[1]
    made = result.weights()
    assert made is not None
    assert len(made.personal) == len(run.models)
    models = zip([run.model, *run.models], [made.common, *made.personal], strict=True)
    for model, state in models:
        for key, value in model.state_dict().items():
            assert torch.equal(value, state[key])


def test_rounds_can_be_watched(federation: fedbr.Federation) -> None:
    lines: list[dict[str, object]] = []
    watched = fedbr.train(federation, "mlp", watch=lambda line: lines.append(dict(line)), **SHORT)
    assert lines == watched.lines
    assert same(watched, fedbr.train(federation, "mlp", **SHORT))

    def enough(line: dict[str, object]) -> None:
        lines.append(line)
        raise KeyboardInterrupt

    cut_short = fedbr.train(federation, "mlp", watch=enough, **SHORT)
    assert [line["round"] for line in lines] == [1, 2, 3, 1]
    assert len(cut_short.rounds) == 1
    one_round = fedbr.train(federation, "mlp", **SHORT | {"rounds": 1})
    assert all(map(torch.equal, weights(cut_short), weights(one_round)))
    with pytest.raises(
        fedbr.InputError, match=r"^watch = 'x': must be a function of a round's values"
    ):
        fedbr.train(federation, "mlp", watch="x", **SHORT)  # type: ignore[arg-type]


def test_evaluate_every(federation: fedbr.Federation) -> None:
    rounds = SHORT | {"rounds": 5}
    assert len(fedbr.train(federation, "mlp", evaluate_every=0, **rounds).accuracy) == 1
    run = fedbr.train(federation, "mlp", evaluate_every=2, **rounds)
    assert [line["round"] for line in run.lines if line["accuracy"] is not None] == [2, 4, 5]
    assert len(run.seconds_train) == 5


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rounds": -1}, "train.rounds = -1"),
        ({"batch_size": 0}, "train.batch_size = 0"),
        ({"lr": float("nan")}, "train.lr = nan"),
        ({"clients_per_round": 7}, "clients_per_round = 7"),
        ({"methods": [fedbr.FedBR(), fedbr.FedBR()]}, "duplicate"),
        ({"methods": [fedbr.FedBR(mean_of=1000)]}, "fedbr.mean_of = 1000"),
        ({"methods": [fedbr.FedBR(pseudo="mixture")]}, "data.proxy"),
        ({"widht": 2}, "widht"),
        ({"workers": 0}, "workers = 0"),
        ({"methods": fedbr.FedBR()}, "list"),
        ({"methods": ["fedbr"]}, "not a method"),
        ({"methods": [fedbr.FedBR]}, "not a method"),
        ({"rounds": 2.5}, "train.rounds = 2.5"),
        ({"model": fedbr.FedModel(nn.Linear(6, 5), 5, 4), "local_step": 1}, "local_steps"),
    ],
)
def test_wrong_settings_are_refused(
    federation: fedbr.Federation, options: dict[str, object], words: str
) -> None:
    with pytest.raises(fedbr.InputError) as caught:
        fedbr.train(federation, **{"model": "mlp", **options})  # type: ignore[arg-type]
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_clients_that_train_alone_diverge_in_words_too(federation: fedbr.Federation) -> None:
    """In the last step the weights overflow, after the last loss that was seen."""
    federation.train.samples.x[torch.from_numpy(federation.train.parts[4])] *= 1e160
    options = SHORT | {"rounds": 1, "local_steps": 1, "lr": 1e200}
    for methods in ([], [fedbr.Local()]):
        with pytest.raises(
            fedbr.Diverged, match=r"round 1, client 4: .*not finite after local training"
        ):
            fedbr.train(federation, "mlp", methods, dtype="float64", **options)


def test_a_module_that_is_used_twice_is_refused(federation: fedbr.Federation) -> None:
    layer = nn.Linear(6, 6)
    model = fedbr.FedModel(nn.Sequential(layer, nn.Tanh(), layer), 6, 4)
    with pytest.raises(fedbr.InputError, match=r"encoder\.0 and encoder\.2 are one module"):
        fedbr.train(federation, model, rounds=1)


class Scaled(nn.Module):
    """Has a weight that is a single number."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale


@pytest.mark.parametrize("clients_at_once", [1, 3])
@pytest.mark.parametrize("layer", [nn.BatchNorm1d(5), Scaled()], ids=["statistics", "a number"])
@pytest.mark.filterwarnings("ignore:the model has BatchNorm")
def test_every_kind_of_method_trains_weights_that_are_single_numbers(
    federation: fedbr.Federation, layer: nn.Module, clients_at_once: int
) -> None:
    model = fedbr.FedModel(nn.Sequential(nn.Linear(6, 5), layer), 5, 4)
    for method in (
        fedbr.Local(),
        fedbr.SCAFFOLD(),
        fedbr.Moon(),
        fedbr.FedBR(),
        fedbr.FedCM(),
        fedbr.FedProx(),
    ):
        run = fedbr.train(
            federation,
            model,
            [method],
            clients_at_once=clients_at_once,
            rounds=2,
            local_steps=3,
            batch_size=8,
        )
        assert len(run.loss) == 2


class Borrows(fedbr.Method):
    """Adds a module that is the classifier, or has a weight of it."""

    name: ClassVar[str] = "borrows"
    whole: bool = False

    def extra_module(self, model: fedbr.FedModel, spec: fedbr.Spec) -> nn.Module:
        layer = nn.Linear(model.num_features, model.num_classes)
        assert isinstance(model.classifier, nn.Linear)
        layer.weight = model.classifier.weight
        return model.classifier if self.whole else layer


@pytest.mark.parametrize("whole", [True, False])
def test_a_weight_belongs_to_one_part_only(federation: fedbr.Federation, whole: bool) -> None:
    with pytest.raises(
        fedbr.InputError,
        match=r"^model: classifier and borrows's own module share weights; give each",
    ):
        fedbr.train(federation, "mlp", [Borrows(whole=whole)], rounds=1)


def test_a_model_that_does_not_train_is_refused_whatever_methods_add(
    federation: fedbr.Federation,
) -> None:
    model = fedbr.FedModel(nn.Linear(6, 5), 5, 4).requires_grad_(False)
    with pytest.raises(fedbr.InputError, match="no weights to train"):
        fedbr.train(federation, model, [fedbr.FedBR()], rounds=1)


def test_moon_refuses_a_classifier_that_it_cannot_replace(federation: fedbr.Federation) -> None:
    model = fedbr.FedModel(nn.Linear(6, 5), 5, 4, nn.Sequential(nn.Linear(5, 4)))
    with pytest.raises(fedbr.InputError, match=r"moon\.head"):
        fedbr.train(federation, model, [fedbr.Moon()], rounds=1)
    fedbr.train(federation, model, [fedbr.Moon(head=False)], rounds=2, local_steps=2)


class Between(nn.Module):
    """A module whose forward does more than its two parts."""

    def __init__(self, between: bool, classifier: nn.Module | None = None) -> None:
        super().__init__()
        self.encoder, self.between = nn.Linear(6, 5), between
        self.classifier = nn.Linear(5, 4) if classifier is None else classifier

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        features = self.encoder(x)
        return self.classifier(features.relu() if self.between else features)


def test_a_users_forward_is_not_dropped(federation: fedbr.Federation) -> None:
    with pytest.raises(
        fedbr.InputError, match=r"^model = Between: its forward is not classifier\(encoder\(x\)\); "
    ):
        fedbr.train(federation, Between(True), **SHORT_PLAIN)
    deep = nn.Sequential(nn.Linear(5, 3), nn.ReLU(), nn.Linear(3, 4))
    run = fedbr.train(federation, Between(False, deep), [fedbr.FedBR()], **SHORT_PLAIN)
    assert (run.model.num_features, run.model.num_classes) == (5, 4)


def test_models_that_differ_only_in_their_code_have_other_fingerprints() -> None:
    one, other = (fedbr.FedModel(encoder, 6, 4) for encoder in (Twice(), Thrice()))
    assert fingerprint(one) != fingerprint(other)
    assert fingerprint(one) == fingerprint(fedbr.FedModel(Twice(), 6, 4))


class Twice(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * x


class Thrice(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 3 * x
