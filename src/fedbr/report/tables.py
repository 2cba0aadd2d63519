"""Tables of a comparison as header and cells, for terminal, page, LaTeX and Markdown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate

from ..run.results import RunResult
from ..util.estimate import Difference, Estimate
from . import words
from .compare import Comparison, Pair, Score, VariantResults

Table = tuple[Sequence[str], Sequence[Sequence[str]]]  # header and cells
Spent = Callable[[RunResult], Mapping[int, float]]  # what was spent up to each round


def comparison_table(comparison: Comparison) -> Table:
    """Make the table of all variants: accuracy, rounds to the target, costs of a round."""
    target = f"{comparison.results.recipe.metrics.target * 100:g} %"
    header = [
        "",
        "5 best rounds %",
        "final %",
        "worst client %",
        f"rounds to {target}",
        "speed-up",
        "MB/round",
        "s/round",
    ]
    return header, [_row(comparison, variant) for variant in comparison.variants]


def paired_table(comparison: Comparison) -> Table:
    """Make the table of differences from the baseline, in points, paired by seed."""
    header = ["", "5 best rounds", "95 % interval", "ahead on", "verdict", "final", "worst client"]
    return header, [_paired_row(pair) for pair in comparison.pairs]


def cost_table(comparison: Comparison) -> Table:
    """Make the table of costs; × is relative to the baseline."""
    target = f"{comparison.results.recipe.metrics.target * 100:g} %"
    header = ["", "MB/round", "×", "s/round", "×", f"MB to {target}", f"s to {target}"]
    return header, [_cost_row(comparison, variant) for variant in comparison.variants]


def name_in_table(variant: VariantResults) -> str:
    """Return the first cell of a variant's row: its title and the state of its runs."""
    return variant.title + _state(variant)


def _row(comparison: Comparison, variant: VariantResults) -> list[str]:
    return [
        name_in_table(variant),
        _percent(variant, "top5"),
        _percent(variant, "final"),
        _percent(variant, "worst_top5"),
        _reached(variant),
        _speed_up(comparison, variant),
        _mean(variant.megabytes_per_round),
        _mean(variant.seconds_per_round),
    ]


def _percent(variant: VariantResults, score: Score) -> str:
    accuracy = variant.accuracy(score)
    return accuracy.show(1, 100) if accuracy else "-"


def _mean(estimate: Estimate | None) -> str:
    return f"{estimate.mean:.2f}" if estimate else "-"


def _reached(variant: VariantResults) -> str:
    estimate = Estimate.of(variant.reached)
    if estimate is None:
        return "-"
    return estimate.show(0) + _out_of(estimate.count, len(variant.counted))


def _out_of(count: int, of: int) -> str:
    return "" if count == of else f" ({count} of {of})"


def _speed_up(comparison: Comparison, variant: VariantResults) -> str:
    pair = comparison.pair(variant.label)
    if pair is None:
        return "1.0×" if variant.reached else "-"
    return str(pair.speed_up) if pair.speed_up else "-"


def _state(variant: VariantResults) -> str:
    """Say in brackets what of a variant diverged or is still to come; nothing if all is done."""
    if len(variant.diverged) > 1:
        return f" (diverged: {len(variant.diverged)} of {len(variant.runs)} seeds)"
    for run in variant.diverged:
        at = run.diverged_at
        assert at is not None
        return f" (diverged: seed {run.seed}, round {at.round}, client {at.client})"
    unfinished = variant.unfinished
    if not unfinished:
        return ""
    if len(unfinished) < len(variant.runs):
        return f" ({len(unfinished)} more unfinished)"
    counts = sorted({len(run.rounds) for run in unfinished})
    rounds = " and ".join(map(str, counts))
    return f" (so far: {rounds} of {variant.rounds_planned} rounds)"


def _paired_row(pair: Pair) -> list[str]:
    gain = interval = ahead = "-"
    if pair.top5 is not None:
        gain = pair.top5.show_mean()
        interval = pair.top5.show_interval()
        ahead = words.count_ahead(pair.top5)
    return [
        pair.variant.title,
        gain,
        interval,
        ahead,
        words.verdict(pair),
        _with_interval(pair.final),
        _with_interval(pair.worst),
    ]


def _with_interval(difference: Difference | None) -> str:
    if difference is None:
        return "-"
    return f"{difference.show_mean()} {difference.show_interval()}".removesuffix(" -")


def _cost_row(comparison: Comparison, variant: VariantResults) -> list[str]:
    pair = comparison.pair(variant.label)
    bytes_factor: float | None = 1.0  # of the baseline itself
    seconds_factor: float | None = 1.0
    if pair is not None:
        bytes_factor, seconds_factor = pair.bytes_factor, pair.seconds_factor
    return [
        variant.title,
        _mean(variant.megabytes_per_round),
        _factor(bytes_factor),
        _mean(variant.seconds_per_round),
        _factor(seconds_factor),
        _to_target(variant, spent_megabytes),
        _to_target(variant, spent_seconds),
    ]


def _factor(value: float | None) -> str:
    return f"{value:.1f}" if value else "-"


def spent_megabytes(run: RunResult) -> Mapping[int, float]:
    """Return what was sent and received up to each round."""
    megabytes = accumulate((record.bytes_up + record.bytes_down) / 1e6 for record in run.rounds)
    return {record.round: total for record, total in zip(run.rounds, megabytes, strict=True)}


def spent_seconds(run: RunResult) -> Mapping[int, float]:
    """Return the seconds of training up to each round."""
    seconds = accumulate(record.seconds_train for record in run.rounds)
    return {record.round: total for record, total in zip(run.rounds, seconds, strict=True)}


def _to_target(variant: VariantResults, spent: Spent) -> str:
    """Add up what was spent until the target was reached, over the seeds that reached it."""
    totals = []
    for run in variant.counted:
        round = variant.round_of(run)
        if round is not None:
            totals.append(spent(run)[round])
    estimate = Estimate.of(totals)
    if estimate is None:
        return "-"
    digits = 0 if estimate.mean >= 100 else 1
    return estimate.show(digits) + _out_of(estimate.count, len(variant.counted))
