"""What the README claims, measured again: minutes, so marked."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest

from fedbr import bench, config, experiment


@pytest.mark.slow
def test_fedbr_gains_ten_points_and_needs_fewer_rounds(tmp_path: Path) -> None:
    recipe = config.load("digits", ["train.seeds=0,1,2,3,4"])
    results = experiment.run(recipe, tmp_path / "o", workers=None)
    top5, rounds = (
        {
            label: statistics.fmean(pick(run) for run in results["runs"] if run["label"] == label)
            for label in ("FedAvg", "FedBR")
        }
        for pick in (lambda r: r["accuracy"]["top5"], lambda r: r["rounds_to"]["0.8"] or recipe.train.rounds)
    )
    assert top5["FedBR"] - top5["FedAvg"] >= 0.10
    assert rounds["FedAvg"] / rounds["FedBR"] >= 1.5


@pytest.mark.bench
def test_the_price_of_a_round_on_the_papers_cnn() -> None:
    _, (fedavg, fedbr) = bench.measure(bench.PAPER_CNN, 2, bench.standard())
    assert fedavg.median <= 1.05
    assert fedbr.median <= 2.15
