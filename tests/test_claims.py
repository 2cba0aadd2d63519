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
from fedbr.report.compare import compare
from fedbr.run.engines import WholeRuns
from fedbr.run.plan import Experiment
from fedbr.run.processes import Processes
from fedbr.run.runner import execute
from fedbr.util.estimate import Verdict
from fedbr.util.processes import usable_cores
from training import train_recipe


@pytest.mark.slow
def test_fedbr_gains_ten_points_and_needs_fewer_rounds(tmp_path: Path) -> None:
    recipe = config.load("digits", ["train.seeds=0,1,2,3,4"])
    assert recipe.metrics.target == 0.8
    pair = compare(train_recipe(recipe, tmp_path / "o", workers=None)).pair("FedBR")
    assert pair is not None
    assert pair.baseline.label == "FedAvg"
    assert pair.top5 is not None
    assert pair.top5.seeds == (0, 1, 2, 3, 4)
    assert pair.top5.mean >= 10
    assert pair.verdict is Verdict.AHEAD
    assert pair.speed_up is not None
    assert pair.speed_up.ratio >= 1.5


@pytest.mark.bench
def test_the_price_of_a_round_on_the_papers_cnn() -> None:
    _, (fedavg, exact, lazy) = bench.measure(
        bench.PAPER_CNN, 2, bench.default_variants(bench.PAPER_CNN)
    )
    assert fedavg.median <= 1.05
    assert exact.median <= 2.15
    assert lazy.beside(fedavg) <= 1.2


@pytest.mark.bench
def test_the_price_of_a_round_of_small_models() -> None:
    """With a margin: other programs that use the cache cost ours more than the bare loop."""
    _, (fedavg, exact, lazy, released) = bench.measure(
        bench.MLP, 3, bench.default_variants(bench.MLP)
    )
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
    """100 clients of 200, and of 10,000: as much time, and no memory beyond the samples'."""
    scale = bench.scale(bench.CROWD, 3)
    assert scale.ratio <= 1.15
    assert scale.memory[-1] < 400e6
    assert scale.memory[-1] - scale.memory[0] < 20e6  # flat


@pytest.mark.bench
@pytest.mark.skipif(usable_cores() < 2, reason="two cores are wanted")
def test_a_sweep_of_short_runs_keeps_both_cores_busy(tmp_path: Path) -> None:
    recipe = config.load(
        "digits", ["train.rounds=5", "train.seeds=0,1,2,3"], ["fedprox", "fedbr", "mixup"]
    )
    seconds = {}
    for workers in (1, 2):
        begun = time.perf_counter()
        with Processes(workers) as processes:
            execute([Experiment(recipe, tmp_path / str(workers))], WholeRuns(processes))
        seconds[workers] = time.perf_counter() - begun
    # 0.59 to 0.62 where a core is fast and to start a process is a twentieth
    assert seconds[2] <= 0.65 * seconds[1]


LIMITS = {  # of a step on the paper's CNN, against FedAvg in the same run
    "fedprox": 1.15,
    "scaffold": 1.15,
    "fedcm": 1.15,
    "mixup": 1.1,
    "feddecorr": 1.1,
    "fedntd": 1.45,
    "moon": 1.85,
    "dann": 1.1,
    "fedbr": 2.15,
    "vhl": 2.2,
    "fedmix": 3.5,
}


@pytest.mark.bench
def test_the_price_of_every_method() -> None:
    variants = [("fedavg", []), *((name, [METHODS[name]()]) for name in LIMITS)]
    _, (fedavg, *others) = bench.measure(replace(bench.PAPER_CNN, local_steps=4), 2, variants)
    prices = {ratio.name: ratio.beside(fedavg) for ratio in others}
    assert {name: price for name, price in prices.items() if price > LIMITS[name]} == {}
