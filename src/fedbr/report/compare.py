"""The one judge: which variant is ahead, by how much, and how sure that is.

Terminal, report, ``reproduce``, sweeps and the README print what ``compare`` says, in the words
of ``words.py``.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ..recipe.schema import Variant
from ..run.results import Results, RunResult
from ..util.estimate import Difference, Estimate, Verdict

Score = Literal["top5", "final", "worst_top5"]  # the accuracies that are compared
MUCH = 2.0  # a cost that differs by more is said beside every praise


@dataclass(frozen=True)
class VariantResults:
    """A variant and its runs.

    A run that diverged counts in no mean, however good its rounds were before: its model is lost.
    """

    variant: Variant
    runs: Sequence[RunResult]
    target: float
    rounds_planned: int

    @property
    def label(self) -> str:
        """The variant's name in the recipe."""
        return self.variant.label

    @property
    def tuned(self) -> bool:
        """False only if the recipe says ``tuned = false`` of it."""
        return self.variant.tuned is not False

    @property
    def title(self) -> str:
        """The label, with a dagger if the variant was not tuned."""
        return self.label if self.tuned else f"{self.label} †"

    @property
    def counted(self) -> Sequence[RunResult]:
        """The runs that means are over: those that are finished; if none is, all of them."""
        return self.finished.runs or self.runs

    @property
    def diverged(self) -> Sequence[RunResult]:
        """The runs that ended before their time."""
        return [run for run in self.runs if run.diverged]

    @property
    def unfinished(self) -> Sequence[RunResult]:
        """The runs that are still to go on."""
        return [run for run in self.runs if not run.finished]

    @property
    def finished(self) -> VariantResults:
        """The same without runs that are still to go on."""
        return replace(self, runs=[run for run in self.runs if run.finished])

    def estimate(self, get: Callable[[RunResult], float | None]) -> Estimate | None:
        """Estimate a value over the seeds that have not diverged."""
        return Estimate.of(get(run) for run in self.counted if not run.diverged)

    def accuracy(self, score: Score) -> Estimate | None:
        """Estimate an accuracy, as a share."""
        return self.estimate(lambda run: getattr(run.accuracy, score))

    def round_of(self, run: RunResult) -> int | None:
        """Return the round in which a run reached the target; one that diverged did not."""
        return None if run.diverged else run.rounds_to[str(self.target)]

    @property
    def reached(self) -> list[int]:
        """Rounds to the target, of the seeds that reached it."""
        rounds = [self.round_of(run) for run in self.counted]
        return [round for round in rounds if round is not None]

    @property
    def megabytes_per_round(self) -> Estimate | None:
        """What all clients send and receive in a round."""
        return self.estimate(_megabytes)

    @property
    def seconds_per_round(self) -> Estimate | None:
        """The time that the training of a round takes."""
        return self.estimate(_seconds)

    def points(self, score: Score) -> dict[int, float | None]:
        """Return an accuracy in percent by seed; None of a run that is unfinished or diverged."""
        values: dict[int, float | None] = {}
        for run in self.runs:
            value = getattr(run.accuracy, score)
            usable = run.finished and not run.diverged and value is not None
            values[run.seed] = 100 * value if usable else None
        return values


@dataclass(frozen=True)
class SpeedUp:
    """The baseline's mean rounds to the target, divided by the variant's own, over the same seeds.

    A run that never gets there counts with all its rounds, which makes the ratio a bound:
    ">" if only the baseline has such runs, "<" if only the variant has, "~" if both have.
    """

    bound: Literal["", ">", "<", "~"]
    ratio: float

    def __str__(self) -> str:
        return f"{self.bound}{self.ratio:.1f}×"


@dataclass(frozen=True)
class Pair:
    """A variant beside the one that it is compared with, paired by seed."""

    variant: VariantResults
    baseline: VariantResults
    top5: Difference | None  # in points, as the others; None: no seed that both have finished
    final: Difference | None
    worst: Difference | None
    speed_up: SpeedUp | None
    bytes_factor: float | None  # of what is sent in a round
    seconds_factor: float | None  # of the time that a round takes

    @property
    def verdict(self) -> Verdict:
        """Who is ahead, by the 5 best rounds; who diverged on some seed is never ahead."""
        if self.top5 is None:
            return Verdict.UNDECIDED
        verdict = self.top5.verdict
        if verdict is Verdict.AHEAD and self.variant.diverged:
            return Verdict.UNDECIDED
        return verdict


@dataclass(frozen=True)
class Comparison:
    """What a result says of its variants: every one beside the baseline."""

    results: Results
    variants: Sequence[VariantResults]  # that have runs, in the recipe's order
    pairs: Sequence[Pair]  # of all variants but the baseline

    @property
    def baseline(self) -> VariantResults | None:
        """FedAvg, where there is one, or the first variant; None while nothing has begun."""
        return _baseline(self.variants)

    def pair(self, label: str) -> Pair | None:
        """Return a variant's comparison with the baseline."""
        return next((pair for pair in self.pairs if pair.variant.label == label), None)

    @property
    def best(self) -> Pair | None:
        """The variant to speak of first: of those that are ahead, else of all, the highest mean."""
        ahead = [pair for pair in self.pairs if pair.verdict is Verdict.AHEAD]
        candidates = ahead or [pair for pair in self.pairs if pair.top5 is not None]
        return max(candidates, key=_mean_gain, default=None)


def compare(results: Results) -> Comparison:
    """Compare every variant with the baseline over the seeds on which both are finished.

    Returns:
        What every command and page prints.
    """
    target, rounds = results.recipe.metrics.target, results.recipe.train.rounds
    variants = []
    for variant in results.recipe.compare:
        if runs := results.of(variant.label):
            variants.append(VariantResults(variant, runs, target, rounds))
    baseline = _baseline(variants)
    if baseline is None:
        return Comparison(results, [], [])
    others = [variant for variant in variants if variant is not baseline]
    return Comparison(results, variants, [compare_pair(other, baseline) for other in others])


def compare_pair(variant: VariantResults, baseline: VariantResults) -> Pair:
    """Compare two variants over the seeds on which both are finished."""
    return Pair(
        variant=variant,
        baseline=baseline,
        top5=_difference(variant, baseline, "top5"),
        final=_difference(variant, baseline, "final"),
        worst=_difference(variant, baseline, "worst_top5"),
        speed_up=_speed_up(variant, baseline),
        bytes_factor=_factor(variant, baseline, _megabytes),
        seconds_factor=_factor(variant, baseline, _seconds),
    )


def _baseline(variants: Sequence[VariantResults]) -> VariantResults | None:
    for variant in variants:
        if not variant.variant.methods:
            return variant
    return variants[0] if variants else None


def _difference(
    variant: VariantResults, baseline: VariantResults, score: Score
) -> Difference | None:
    return Difference.of(variant.points(score), baseline.points(score))


def _mean_gain(pair: Pair) -> float:
    return pair.top5.mean if pair.top5 is not None else 0.0


def _per_round(run: RunResult, total: float) -> float | None:
    return total / len(run.rounds) if run.rounds else None


def _megabytes(run: RunResult) -> float | None:
    return _per_round(run, (run.bytes.up + run.bytes.down) / 1e6)


def _seconds(run: RunResult) -> float | None:
    return _per_round(run, run.seconds.train)


def _factor(
    variant: VariantResults, baseline: VariantResults, get: Callable[[RunResult], float | None]
) -> float | None:
    """Compare what a round costs over the seeds of which both have a run that did not diverge."""
    costs, base_costs = (
        {run.seed: get(run) for run in one.counted if not run.diverged}
        for one in (variant, baseline)
    )
    seeds = sorted(costs.keys() & base_costs.keys())
    cost = Estimate.of(costs[seed] for seed in seeds)
    base_cost = Estimate.of(base_costs[seed] for seed in seeds)
    if cost is None or base_cost is None or not base_cost.mean:
        return None
    return cost.mean / base_cost.mean


def _speed_up(variant: VariantResults, baseline: VariantResults) -> SpeedUp | None:
    """Compare mean rounds to the target; a run that is still to go on does not count."""
    seeds = _settled(variant) & _settled(baseline)
    reached = {run.seed for run in variant.runs if variant.round_of(run) is not None}
    if not seeds & reached:
        return None
    rounds, missed = _mean_rounds(variant, seeds)
    baseline_rounds, baseline_missed = _mean_rounds(baseline, seeds)
    bound: Literal["", ">", "<", "~"] = ""
    if missed and baseline_missed:
        bound = "~"
    elif missed:
        bound = "<"
    elif baseline_missed:
        bound = ">"
    return SpeedUp(bound, baseline_rounds / rounds)


def _settled(variant: VariantResults) -> set[int]:
    """Return the seeds of which it is known when they reach the target, or that they never do."""
    return {run.seed for run in variant.runs if run.finished or variant.round_of(run)}


def _mean_rounds(variant: VariantResults, seeds: set[int]) -> tuple[float, bool]:
    """Return the mean rounds to the target over some seeds, and whether one never reached it."""
    rounds = [variant.round_of(run) for run in variant.runs if run.seed in seeds]
    counted = [variant.rounds_planned if round is None else round for round in rounds]
    return statistics.fmean(counted), None in rounds
