"""What methods cost: time against a bare PyTorch loop, and bytes against FedAvg.

Nothing here is used by training.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from . import api, models
from .core.method import Method
from .core.rng import stream, torch_stream
from .data import Federation
from .methods import FedBR
from .util.processes import one_thread
from .util.tables import Options


@dataclass(frozen=True)
class Workload:
    """Rounds of training: how many clients, how many steps, which model, which samples.

    >>> print(MLP)
    mlp (hidden [64]) on 784: 10 clients, 50 steps, batch 64
    """

    model: str
    options: Options
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
        """How many clients train in a round."""
        return self.each or self.clients

    def __str__(self) -> str:
        options = ", ".join(f"{name} {value}" for name, value in self.options.items())
        shape = "x".join(str(size) for size in self.shape)
        clients = f"{self.clients} clients"
        if self.each:
            clients += f", {self.each} a round"
        steps = f"{self.local_steps} steps, batch {self.batch_size}"
        return f"{self.model} ({options}) on {shape}: {clients}, {steps}"


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
# Samples of the size of digits.
CROWD = replace(MANY, shape=(64,), batch_size=16, samples=20, clients=10_000, rounds=200)

Variants = Sequence[tuple[str, list[Method]]]
RoundDone = Callable[..., object]  # is called after every round
Rounds = Callable[[RoundDone], object]  # trains
# The projector of the authors' code: twice as wide as there are features.
RELEASED = "FedBR, released sizes"


def default_variants(work: Workload) -> Variants:
    """Return what is timed unless something else is asked for."""
    variants: list[tuple[str, list[Method]]] = [
        ("FedAvg", []),
        ("FedBR", [FedBR()]),
        ("FedBR, lazy 10", [FedBR(lazy=10)]),
    ]
    if work.model == "mlp":  # the CNN has 128 features, for which both sizes are the same
        features = work.options["hidden"][-1]
        variants.append((RELEASED, [FedBR(hidden=2 * features, width=features)]))
    return variants


@dataclass(frozen=True)
class Ratio:
    """CPU time of a variant divided by that of the bare loop, over the repetitions."""

    name: str
    values: Sequence[float]
    seconds: float  # median CPU seconds of a round

    @property
    def median(self) -> float:
        """The median over the repetitions."""
        return statistics.median(self.values)

    def beside(self, other: Ratio) -> float:
        """Compare with another variant of the same run, repetition by repetition."""
        return statistics.median(_divide(self.values, other.values))


def measure(
    work: Workload, repeats: int, variants: Variants, tick: Callable[[], None] = lambda: None
) -> tuple[float, list[Ratio]]:
    """Time the bare loop and the variants, in turn, with one thread.

    A machine that slows down for a while slows down all of them: ratios are taken repetition by
    repetition.

    Args:
        work: what they train.
        repeats: how often each of them trains.
        variants: what is compared with the loop.
        tick: is called when one of them is done.

    Returns:
        The loop's median seconds of a round, and the ratio of each variant.
    """
    clients = samples(work)
    runs = _prepare(work, clients, variants)
    seconds: list[list[float]] = [[] for _ in runs]  # of each run, one per repetition
    with one_thread():
        if work.whole:
            for run in _prepare(replace(work, rounds=1), clients, variants):
                run(lambda *_: None)  # libraries, caches
        for _ in range(repeats):
            for run, values in zip(runs, seconds, strict=True):
                values.append(_time_round(work, run))
                tick()
    bare, *others = seconds
    ratios = []
    for (name, _), values in zip(variants, others, strict=True):
        ratios.append(Ratio(name, _divide(values, bare), statistics.median(values)))
    return statistics.median(bare), ratios


def _divide(values: Sequence[float], others: Sequence[float]) -> list[float]:
    """Divide repetition by repetition."""
    return [value / other for value, other in zip(values, others, strict=True)]


def _prepare(work: Workload, clients: Federation, variants: Variants) -> list[Rounds]:
    """Return the bare loop and every variant, ready to train."""
    runs: list[Rounds] = [partial(bare_rounds, work, clients)]
    for _, methods in variants:
        runs.append(partial(_train, work, clients, methods))
    return runs


def _train(
    work: Workload, clients: Federation, methods: Sequence[Method], round_done: RoundDone
) -> None:
    fedbr_rounds(work, clients, methods, watch=round_done)


def _time_round(work: Workload, run: Rounds) -> float:
    """Return the CPU seconds of a round."""
    marks = [time.process_time()]
    run(lambda *_: marks.append(time.process_time()))
    if work.whole:
        return (time.process_time() - marks[0]) / work.rounds
    return (marks[-1] - marks[1]) / (work.rounds - 1)


def workers(work: Workload, repeats: int, counts: Sequence[int] = (1, 2)) -> dict[int, list[float]]:
    """Time the second round with several numbers of workers, in turn.

    Returns:
        For each number of workers the wall seconds, one value per repetition.
    """
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
        """Seconds with many clients divided by seconds with few: median of the repetitions."""
        few, many = (self.seconds[clients] for clients in sorted(self.seconds))
        return statistics.median(_divide(many, few))


def scale(work: Workload, repeats: int, few: int = 200) -> Scale:
    """Time the same rounds with a few clients and with all of a workload's, in turn."""
    works = [replace(work, clients=few), work]
    clients = [samples(each) for each in works]
    for each, federation in zip(works, clients, strict=True):  # libraries, caches
        fedbr_rounds(replace(each, rounds=2), federation, [])
    result = Scale({each.clients: [] for each in works}, [])
    before = _memory("VmRSS")
    for _ in range(repeats):
        _forget_most_memory()
        for each, federation in zip(works, clients, strict=True):
            seconds = fedbr_rounds(each, federation, []).seconds_train
            result.seconds[each.clients].append(statistics.median(seconds))
        result.memory.append(_memory("VmHWM") - before)
    return result


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
    clients = []
    for _ in range(work.clients):
        x = torch.from_numpy(rng.random((work.samples, *work.shape), dtype="float32"))
        y = torch.from_numpy(rng.integers(10, size=work.samples))
        clients.append((x, y))
    first, _ = clients[0]
    return Federation.from_clients(clients, test=(first[:10], torch.arange(10)))


def bare_rounds(work: Workload, clients: Federation, round_done: RoundDone = lambda: None) -> None:
    """What one writes by hand: load weights, SGD steps, average."""
    with torch_stream(0, "model"):
        model = models.build(work.model, work.options, work.shape, 10)
    parameters: list[Tensor] = list(model.parameters())
    total = [p.detach().clone() for p in parameters]
    x, y = clients.train.samples.x, clients.train.samples.y
    for number in range(1, work.rounds + 1):
        start, total = total, [torch.zeros_like(p) for p in total]
        order = stream(0, "clients", number).permutation(work.clients)
        for client in order[: work.in_round].tolist():
            own = torch.from_numpy(clients.train.parts[client])
            rng = stream(0, "batches", number, client)
            draws = rng.integers(len(own), size=(work.local_steps, work.batch_size))
            index = torch.from_numpy(draws)
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
    work: Workload,
    clients: Federation,
    methods: Sequence[Method],
    workers: int = 1,
    watch: RoundDone | None = None,
) -> api.Run:
    """Train the same through the package, from the first object to the trained model.

    Args:
        work: what to train.
        clients: of ``samples``.
        methods: of the variant; none for FedAvg.
        workers: how many processes train.
        watch: is called after every round.
    """
    return api.train(
        clients,
        work.model,
        methods,
        rounds=work.rounds,
        local_steps=work.local_steps,
        batch_size=work.batch_size,
        lr=work.lr,
        clients_per_round=work.each,
        evaluate_every=0,
        workers=workers,
        device="cpu",
        watch=watch,
        **work.options,
    )


def traffic(work: Workload, methods: Mapping[str, Method]) -> dict[str, dict[str, float]]:
    """Count what a client sends and receives when it trains with a method.

    Every method trains for two short rounds.

    Returns:
        For each method the bytes of a round, divided by those of FedAvg, and the bytes that travel
        only once.
    """
    clients = samples(work)
    base, _ = _count_bytes(work, clients, [])
    counts = {}
    for name, method in methods.items():
        each, once = _count_bytes(work, clients, [method])
        up, down = (each / base).tolist()
        once_up, once_down = once.tolist()
        values = {"up": up, "down": down, "once_up": once_up, "once_down": once_down}
        counts[name] = {key: round(value, 4) for key, value in values.items()}
    return counts


def _count_bytes(
    work: Workload, clients: Federation, methods: list[Method]
) -> tuple[Tensor, Tensor]:
    """Return the bytes up and down of the second round, and of each client only in the first."""
    run = api.train(
        clients,
        work.model,
        methods,
        rounds=2,
        local_steps=1,
        batch_size=work.batch_size,
        evaluate_every=0,
        clients_at_once=1,
        **work.options,
    )
    first, second = (torch.tensor(pair, dtype=torch.float64) for pair in run.bytes)
    return second, (first - second) / work.clients
