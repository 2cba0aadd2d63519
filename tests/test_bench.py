"""The bench measures what it says: all variants train in turn, and bytes are as listed."""

import sys
from dataclasses import replace

import pytest

import fedbr
from fedbr import bench
from fedbr.methods import METHODS, TRAFFIC
from fedbr.util.errors import RunError


def test_all_variants_are_timed_in_turn() -> None:
    work = replace(
        bench.PAPER_CNN, options={"width": 0.1}, shape=(1, 8, 8), local_steps=3, batch_size=4
    )
    ticks: list[int] = []
    variants: list[tuple[str, list[fedbr.Method]]] = [("FedAvg", []), ("FedBR", [fedbr.FedBR()])]
    loop, ratios = bench.measure(work, 2, variants, lambda: ticks.append(1))
    assert loop > 0
    assert [r.name for r in ratios] == ["FedAvg", "FedBR"]
    assert all(len(r.values) == 2 and min(r.values) > 0 for r in ratios)
    assert ratios[1].beside(ratios[0]) > 1
    assert len(ticks) == 2 * 3


class Clumsy(fedbr.Method):
    """A method with a mistake in it."""

    name = "clumsy"

    def begin(self, ctx: fedbr.ClientContext) -> None:
        raise KeyError("the mistake")


def test_a_mistake_ends_the_bench_and_local_runs_in_it() -> None:
    work = replace(
        bench.PAPER_CNN, options={"width": 0.1}, shape=(1, 8, 8), local_steps=2, batch_size=4
    )
    with pytest.raises(RunError, match="in begin: KeyError: 'the mistake'"):
        bench.measure(work, 1, [("FedAvg", []), ("clumsy", [Clumsy()])])
    assert bench.measure(work, 1, [("Local", [fedbr.Local()])])[1][0].median > 0


def test_few_and_many_clients_are_timed_in_turn_and_memory_is_seen() -> None:
    scale = bench.scale(replace(bench.CROWD, clients=300, rounds=3), 2)
    assert {clients: len(values) for clients, values in scale.seconds.items()} == {200: 2, 300: 2}
    few, many = scale.seconds.values()
    assert min(b / a for a, b in zip(few, many, strict=True)) <= scale.ratio


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the kernel's books")
def test_memory_that_was_given_back_is_still_seen() -> None:
    before = bench._memory("VmRSS")
    bench._forget_most_memory()
    assert abs(bench._memory("VmHWM") - before) < 10e6
    held = bytearray(b"x" * 100_000_000)
    del held
    assert bench._memory("VmHWM") - before > 90e6


def test_the_listed_traffic_is_what_is_sent() -> None:
    """After a change of what a method sends: make traffic."""
    counts = bench.traffic(bench.DIGITS_CNN, {name: cls() for name, cls in METHODS.items()})
    assert counts.keys() == TRAFFIC.keys()
    for name, values in counts.items():
        assert values == pytest.approx(TRAFFIC[name], abs=1e-4), name
    assert (TRAFFIC["fedcm"]["up"], TRAFFIC["fedcm"]["down"]) == (1, 2)
    assert TRAFFIC["local"] == {"up": 0, "down": 0, "once_up": 0, "once_down": 0}
    assert TRAFFIC["vhl"]["once_down"] == 2000 * (64 * 4 + 8)  # counted once, when it is sent once
