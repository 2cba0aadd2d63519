"""Results from figures, without training and without files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fedbr.core.records import Divergence, RoundRecord, RunRecord, Split
from fedbr.recipe import load as config
from fedbr.recipe.schema import Variant
from fedbr.report.compare import Comparison, compare
from fedbr.run.results import Accuracy, Results, RunResult, Seconds, Traffic

AT = Divergence(round=4, client=1, what="x")
TARGET = 0.8


@dataclass(frozen=True)
class Made:
    """What a test says of a run."""

    label: str
    seed: int
    top5: float
    reached: int | None = None  # the target
    rounds: int = 10
    finished: bool = True
    diverged: bool = False
    tuned: bool | None = None
    megabytes: float = 40  # in all rounds
    seconds: float = 20


def run(label: str, seed: int, top5: float, reached: int | None = None, **more: Any) -> Made:
    return Made(label, seed, top5, reached, **more)


def results(*runs: Made, planned: int = 10) -> Results:
    """Make results whose recipe has the variants that there are runs of.

    FedAvg has no methods, every other variant has one.
    """
    compared = {}
    for made in runs:
        methods = [] if made.label == "FedAvg" else ["fedprox"]
        compared[made.label] = {"label": made.label, "methods": methods}
        if made.tuned is not None:
            compared[made.label]["tuned"] = made.tuned
    values = config.load("digits", [f"train.rounds={planned}"]).model_dump(exclude_none=True)
    seeds = sorted({made.seed for made in runs}) or [0]
    values["train"]["seeds"] = seeds
    values["metrics"]["target"] = TARGET
    if compared:
        values["compare"] = list(compared.values())
    recipe = config.parse(values)
    variants = {variant.label: variant for variant in recipe.compare}
    run_results = [_result(made, variants[made.label]) for made in runs]
    order = [*variants]
    run_results.sort(key=lambda result: (order.index(result.label), result.seed))
    return Results(recipe, {}, run_results)


def compared(*runs: Made) -> Comparison:
    """Make a comparison of runs."""
    return compare(results(*runs))


def of(variants: Mapping[str, Sequence[float | None]]) -> Comparison:
    """Compare variants with so high an accuracy on each seed; None: the run is not finished."""
    runs = []
    for label, seeds in variants.items():
        for seed, top5 in enumerate(seeds):
            runs.append(run(label, seed, top5 or 0.0, 3, finished=top5 is not None))
    return compared(*runs)


def _result(made: Made, variant: Variant) -> RunResult:
    split = Split(hash="s", sizes=(30, 10), effective_classes=(1.0, 2.0))
    record = RunRecord(split=split, diverged_at=AT if made.diverged else None)
    first = RoundRecord(round=1, clients=(0, 1), loss=1.0)
    rounds = [replace(first, round=i + 1) for i in range(made.rounds)]
    sent = int(made.megabytes * 1e6)
    return RunResult(
        variant=variant,
        seed=made.seed,
        finished=made.finished,
        record=record,
        rounds=rounds,
        accuracy=Accuracy(made.top5, made.top5, made.top5, made.top5 / 2),
        rounds_to={str(TARGET): made.reached},
        bytes=Traffic(up=sent // 4, down=sent - sent // 4),
        seconds=Seconds(train=made.seconds, evaluate=1.0, total=made.seconds + 1),
    )
