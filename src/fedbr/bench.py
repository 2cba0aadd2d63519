"""What methods cost: speed against a bare PyTorch loop in turns, and bytes against FedAvg."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from . import api, models
from .core.method import Method
from .core.rng import stream, torch_stream
from .data import Federation
from .methods import FedBR
from .util.processes import one_thread


@dataclass(frozen=True)
class Workload:
    """Rounds of training: how many clients, how many steps, which model, which samples."""

    model: str
    options: dict[str, Any]
    shape: tuple[int, ...]
    clients: int
    local_steps: int
    batch_size: int
    lr: float = 0.01
    each: int | None = None  # clients in a round; default: all
    samples: int = 600  # of a client
    rounds: int = 2
    # Time whole runs, from the first object to the trained model; else the rounds after the first,
    # in which caches are cold and methods lack their memory.
    whole: bool = False

    @property
    def in_round(self) -> int:
        return self.each or self.clients

    def __str__(self) -> str:
        options = ", ".join(f"{k} {v}" for k, v in self.options.items())
        some = f", {self.each} a round" if self.each else ""
        return (
            f"{self.model} ({options}) on {'x'.join(map(str, self.shape))}: {self.clients} clients{some}, "
            f"{self.local_steps} steps, batch {self.batch_size}"
        )


DIGITS_CNN = Workload("cnn", {"width": 0.25}, (1, 8, 8), clients=10, local_steps=50, batch_size=32)
# Clients of the large CNN train one at a time: two of them say as much as ten. 50 steps are the
# paper's; with fewer, what methods do once a round (FedBR's global features of the pseudo-data)
# would weigh more than it does.
PAPER_CNN = Workload("cnn", {"width": 1.0}, (1, 28, 28), clients=2, local_steps=50, batch_size=64)
MLP = Workload(
    "mlp",
    {"hidden": [64]},
    (784,),
    clients=10,
    local_steps=50,
    batch_size=64,
    rounds=6,
    whole=True,
)
MANY = replace(MLP, clients=1000, each=100, local_steps=5, samples=60, rounds=8)
WORKLOADS = {"cnn": PAPER_CNN, "mlp": MLP, "mlp-1000": MANY}
CROWD = replace(
    MANY, shape=(64,), batch_size=16, samples=20, clients=10_000, rounds=200
)  # digits-sized samples

Variants = Sequence[tuple[str, list[Method]]]
RoundDone = Callable[..., object]  # is called after every round
# The projector of the authors' code: twice as wide as there are features.
RELEASED = "FedBR, released sizes"


def usual(work: Workload) -> Variants:
    """Return what is timed unless something else is asked for."""
    variants: list[tuple[str, list[Method]]]
    variants = [("FedAvg", []), ("FedBR", [FedBR()]), ("FedBR, lazy 10", [FedBR(lazy=10)])]
    if work.model == "mlp":  # the CNN has 128 features, for which both sizes are the same
        features = work.options["hidden"][-1]
        variants.append((RELEASED, [FedBR(hidden=2 * features, width=features)]))
    return variants


@dataclass(frozen=True)
class Ratio:
    """CPU time of a method divided by that of the bare loop, over the repetitions."""

    name: str
    values: Sequence[float]
    seconds: float  # median CPU seconds of a round

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    def beside(self, other: Ratio) -> float:
        """Compare with another variant of the same run, repetition by repetition."""
        return statistics.median(a / b for a, b in zip(self.values, other.values, strict=True))


def measure(
    work: Workload, repeats: int, variants: Variants, tick: Callable[[], None] = lambda: None
) -> tuple[float, list[Ratio]]:
    """Time the bare loop and the variants, in turn, with one thread.

    A machine that slows down for a while slows down all of them: ratios are taken repetition by
    repetition. tick: is called when one of them is done.

    Returns:
        The loop's median seconds of a round, and the ratio of each variant.
    """
    clients = samples(work)
    runs = _runs(work, clients, variants)
    with one_thread():
        if work.whole:
            for run in _runs(replace(work, rounds=1), clients, variants):
                run(lambda *_: None)  # libraries, caches
        spent = []
        for _ in range(repeats):
            seconds = []
            for run in runs:
                seconds.append(_seconds(work, run))
                tick()
            spent.append(seconds)
    bare, *others = zip(*spent, strict=True)
    ratios = [
        Ratio(name, [t / b for t, b in zip(values, bare, strict=True)], statistics.median(values))
        for (name, _), values in zip(variants, others, strict=True)
    ]
    return statistics.median(bare), ratios


def _runs(
    work: Workload, clients: Federation, variants: Variants
) -> list[Callable[[RoundDone], object]]:
    """Return the bare loop and every variant, ready to run."""
    runs: list[Callable[[RoundDone], object]] = [partial(bare_rounds, work, clients)]
    return runs + [partial(_train, work, clients, methods) for _, methods in variants]


def _train(
    work: Workload, clients: Federation, methods: Sequence[Method], round_done: RoundDone
) -> None:
    fedbr_rounds(work, clients, methods, watch=round_done)


def _seconds(work: Workload, run: Callable[[RoundDone], object]) -> float:
    """Return the CPU seconds of a round."""
    marks = [time.process_time()]
    run(lambda *_: marks.append(time.process_time()))
    if work.whole:
        return (time.process_time() - marks[0]) / work.rounds
    return (marks[-1] - marks[1]) / (work.rounds - 1)


def workers(work: Workload, repeats: int, counts: Sequence[int] = (1, 2)) -> dict[int, list[float]]:
    """Time the second round with several numbers of workers, in turn: wall seconds."""
    clients = samples(work)
    seconds: dict[int, list[float]] = {count: [] for count in counts}
    for _ in range(repeats):
        for count in counts:
            seconds[count].append(fedbr_rounds(work, clients, [], count).seconds_train[1])
    return seconds


@dataclass(frozen=True)
class Scale:
    """What a round costs when few and when many clients could have been drawn for it."""

    # Number of clients -> median wall seconds of a round, one per repetition.
    seconds: dict[int, list[float]]
    memory: list[int]  # most bytes above the samples, one per repetition; Linux only

    @property
    def ratio(self) -> float:
        few, many = (self.seconds[clients] for clients in sorted(self.seconds))
        return statistics.median(b / a for a, b in zip(few, many, strict=True))


def scale(work: Workload, repeats: int, few: int = 200) -> Scale:
    """Time the same rounds with a few clients and with all of a workload's, in turn."""
    worlds = [(w, samples(w)) for w in (replace(work, clients=few), work)]
    for world, clients in worlds:  # libraries, caches
        fedbr_rounds(replace(world, rounds=2), clients, [])
    before, scales = _memory("VmRSS"), Scale({world.clients: [] for world, _ in worlds}, [])
    for _ in range(repeats):
        _forget_most_memory()
        for world, clients in worlds:
            seconds = fedbr_rounds(world, clients, []).seconds_train
            scales.seconds[world.clients].append(statistics.median(seconds))
        scales.memory.append(_memory("VmHWM") - before)
    return scales


def _memory(key: str) -> int:
    """Return bytes as the kernel counts them: VmRSS now, VmHWM the most so far; elsewhere 0."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(key))


def _forget_most_memory() -> None:
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def samples(work: Workload) -> Federation:
    """Make random samples: speed does not depend on what is in them."""
    rng = stream(0, "bench")
    pairs = [
        (
            torch.from_numpy(rng.random((work.samples, *work.shape), dtype="float32")),
            torch.from_numpy(rng.integers(10, size=work.samples)),
        )
        for _ in range(work.clients)
    ]
    return Federation.from_clients(pairs, test=(pairs[0][0][:10], torch.arange(10)))


def bare_rounds(work: Workload, clients: Federation, round_done: RoundDone = lambda: None) -> None:
    """What one writes by hand: load weights, SGD steps, average."""
    with torch_stream(0, "model"):
        model = models.build(work.model, work.options, work.shape, 10)
    parameters: list[Tensor] = list(model.parameters())
    total = [p.detach().clone() for p in parameters]
    x, y = clients.train.samples.x, clients.train.samples.y
    for number in range(1, work.rounds + 1):
        start, total = total, [torch.zeros_like(p) for p in total]
        for client in (
            stream(0, "clients", number).permutation(work.clients)[: work.in_round].tolist()
        ):
            part = clients.train.parts[client]
            own = torch.from_numpy(part)
            rng = stream(0, "batches", number, client)
            index = torch.from_numpy(
                rng.integers(len(part), size=(work.local_steps, work.batch_size))
            )
            with torch.no_grad():
                torch._foreach_copy_(parameters, start)
            for step in range(work.local_steps):
                rows = own[index[step]]
                loss = F.cross_entropy(model(x[rows]).logits, y[rows])
                gradients = torch.autograd.grad(loss, parameters)
                with torch.no_grad():
                    torch._foreach_add_(parameters, gradients, alpha=-work.lr)
            torch._foreach_add_(total, [p.detach() for p in parameters], alpha=1 / work.in_round)
        round_done()


def fedbr_rounds(
    work: Workload, clients: Federation, methods: Sequence[Method], workers: int = 1, **more: Any
) -> api.Run:
    """The same through the package, from the first object to the trained model."""
    return api.train(
        clients, work.model, methods, rounds=work.rounds, local_steps=work.local_steps, batch_size=work.batch_size,
        lr=work.lr, clients_per_round=work.each, evaluate_every=0, workers=workers, device="cpu", **more,
        **work.options,
    )  # fmt: skip


def traffic(work: Workload, methods: Mapping[str, Method]) -> dict[str, dict[str, float]]:
    """Count what a client sends and receives, each round against FedAvg, and once.

    Every method trains for two short rounds.
    """
    clients = samples(work)

    def sent(variant: list[Method]) -> tuple[Tensor, Tensor]:
        run = api.train(
            clients, work.model, variant, rounds=2, local_steps=1, batch_size=work.batch_size, evaluate_every=0,
            clients_at_once=1, **work.options,
        )  # fmt: skip
        first, second = (torch.tensor(line, dtype=torch.float64) for line in run.bytes)
        return second, (first - second) / work.clients

    base, _ = sent([])
    counted = {}
    for name, method in methods.items():
        each, once = sent([method])
        figures = [round(value, 4) for value in (*(each / base).tolist(), *once.tolist())]
        counted[name] = dict(zip(("up", "down", "once_up", "once_down"), figures, strict=True))
    return counted
