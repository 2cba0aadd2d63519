"""What the README claims, measured again: minutes, so marked."""

from __future__ import annotations

import statistics
import time
from dataclasses import replace
from pathlib import Path

import pytest

from fedbr import bench
from fedbr.methods import METHODS
from fedbr.recipe import load as config
from fedbr.run import loop as experiment
from fedbr.run import runner as campaign
from fedbr.util.processes import usable_cores


@pytest.mark.slow
def test_fedbr_gains_ten_points_and_needs_fewer_rounds(tmp_path: Path) -> None:
    recipe = config.load("digits", ["train.seeds=0,1,2,3,4"])
    results = experiment.run(recipe, tmp_path / "o", workers=None)
    top5, rounds = (
        {
            label: statistics.fmean(pick(run) for run in results["runs"] if run["label"] == label)
            for label in ("FedAvg", "FedBR")
        }
        for pick in (
            lambda r: r["accuracy"]["top5"],
            lambda r: r["rounds_to"]["0.8"] or recipe.train.rounds,
        )
    )
    assert top5["FedBR"] - top5["FedAvg"] >= 0.10
    assert rounds["FedAvg"] / rounds["FedBR"] >= 1.5


@pytest.mark.bench
def test_the_price_of_a_round_on_the_papers_cnn() -> None:
    _, (fedavg, exact, lazy) = bench.measure(bench.PAPER_CNN, 2, bench.usual(bench.PAPER_CNN))
    assert fedavg.median <= 1.05
    assert exact.median <= 2.15
    assert lazy.beside(fedavg) <= 1.2


@pytest.mark.bench
def test_the_price_of_a_round_of_small_models() -> None:
    """With a margin: other programs that use the cache cost ours more than the bare loop."""
    _, (fedavg, exact, lazy, released) = bench.measure(bench.MLP, 3, bench.usual(bench.MLP))
    # With oneDNN's products a Zen 5 has 0.46, 7.2 and 1.3; with MKL's 0.58, 9.3 and 1.57.
    assert fedavg.median <= 0.60
    assert exact.median <= 9.5
    assert lazy.median <= 1.9
    assert released.median <= 5.2  # the authors' code: 17.7
    _, (many, *_) = bench.measure(bench.MANY, 3, [("FedAvg", [])])
    assert many.median <= 0.8


@pytest.mark.bench
@pytest.mark.skipif(usable_cores() < 2, reason="two cores are wanted")
def test_two_workers_take_little_more_than_half_the_time() -> None:
    wall = bench.workers(replace(bench.PAPER_CNN, clients=4), 3)
    assert statistics.median(wall[2]) <= 0.6 * statistics.median(wall[1])


@pytest.mark.bench
def test_a_round_costs_what_its_clients_cost_not_what_all_do() -> None:
    """100 clients of 200, and of 10,000: the same time, and no more memory than the samples take."""
    found = bench.scale(bench.CROWD, 3)
    assert found.ratio <= 1.15
    assert found.memory[-1] < 400e6
    assert found.memory[-1] - found.memory[0] < 20e6  # flat


@pytest.mark.bench
@pytest.mark.skipif(usable_cores() < 2, reason="two cores are wanted")
def test_a_sweep_of_short_runs_keeps_both_cores_busy(tmp_path: Path) -> None:
    recipe = config.load(
        "digits", ["train.rounds=5", "train.seeds=0,1,2,3"], ["fedprox", "fedbr", "mixup"]
    )
    seconds = {}
    for workers in (1, 2):
        begun = time.perf_counter()
        with campaign.Crew(workers) as crew:
            campaign.conduct([(recipe, tmp_path / str(workers))], crew)
        seconds[workers] = time.perf_counter() - begun
    assert (
        seconds[2] <= 0.65 * seconds[1]
    )  # 0.59 to 0.62 where a core is fast and to start a process is a twentieth


LIMITS = {  # of a step on the paper's CNN, against FedAvg in the same run
    "fedprox": 1.15, "scaffold": 1.15, "fedcm": 1.15, "mixup": 1.1, "feddecorr": 1.1, "fedntd": 1.45, "moon": 1.85,
    "dann": 1.1, "fedbr": 2.15, "vhl": 2.2, "fedmix": 3.5,
}  # fmt: skip


@pytest.mark.bench
def test_the_price_of_every_method() -> None:
    variants = [("fedavg", []), *((name, [METHODS[name]()]) for name in LIMITS)]
    _, (fedavg, *others) = bench.measure(replace(bench.PAPER_CNN, local_steps=4), 2, variants)
    found = {ratio.name: ratio.beside(fedavg) for ratio in others}
    assert {name: price for name, price in found.items() if price > LIMITS[name]} == {}
