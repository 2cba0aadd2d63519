"""Every sentence about who is ahead: terminal, page, ``reproduce``, sweeps and README share them.

What was trained, and how far it has come, is said in ``summary.py``.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..util.estimate import Difference, Estimate, Verdict, format_signed
from .compare import MUCH, Comparison, Pair, SpeedUp, VariantResults, compare_pair

DAGGER = "† not tuned: its parameters were not searched for."


def pluralize(count: int, noun: str) -> str:
    """Write a number with its noun.

    >>> pluralize(1, "seed"), pluralize(1000, "round")
    ('1 seed', '1,000 rounds')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def closing_sentences(comparison: Comparison) -> list[str]:
    """Compare each variant with the baseline, as a command does in its last lines."""
    sentences = [pair_sentence(pair) for pair in comparison.pairs]
    if sentences and has_dagger(comparison):
        sentences.append(DAGGER)
    return sentences


def headline(comparison: Comparison) -> list[str]:
    """Say what came out: the best variant beside the baseline, and how sure that is."""
    if not any(run.finished for run in comparison.results.runs):
        return ["No run is finished yet."]
    best = comparison.best
    if best is None:
        return [_describe_alone(comparison)]
    ranking = _rank(comparison, best)
    return [pair_sentence(best), ranking] if ranking else [pair_sentence(best)]


def pair_sentence(pair: Pair) -> str:
    """Compare a variant with the baseline; of one that is ahead, say what it costs."""
    name, base = pair.variant.title, pair.baseline.title
    if pair.top5 is None:
        return f"{name} and {base}: {_explain_missing(pair)}."
    gain = f"{in_points(pair.top5)} in the 5 best rounds ({evidence(pair.top5)})"
    if pair.variant.diverged:
        return f"{name} {_count_diverged(pair.variant)}. On the other seeds: {gain} beside {base}."
    match pair.verdict:
        case Verdict.AHEAD:
            praise = [f"{name} is ahead of {base}: {gain}.", _race(pair), _costs(pair)]
            return " ".join(part for part in praise if part)
        case Verdict.BEHIND:
            return f"{name} is behind {base}: {gain}."
        case _:
            return f"{name} against {base} is undecided: {gain}."


def verdict(pair: Pair) -> str:
    """Write the verdict for a cell of a table."""
    if pair.variant.diverged:
        return _count_diverged(pair.variant)
    if pair.top5 is None:
        return "no seed that both have finished"
    return pair.verdict.value


def in_points(difference: Difference) -> str:
    """Write a mean difference of accuracies.

    >>> in_points(Difference.of({0: 62.0}, {0: 50.3}))
    '+11.7 points'
    """
    return f"{difference.show_mean()} points"


def evidence(difference: Difference, digits: int = 1) -> str:
    """Say what a mean difference rests on: its interval, and the seeds.

    >>> evidence(Difference.of({0: 2.0, 1: 2.2}, {0: 1.0, 1: 1.0}))
    '95 % interval −0.2 to 2.4; ahead on 2 of 2 seeds'
    """
    if difference.interval is None:
        return "one seed, which gives no interval"
    exact = difference.digits(digits)
    low, high = (format_signed(bound, exact) for bound in difference.interval)
    level = f", level on {difference.level_on}" if difference.level_on else ""
    return f"95 % interval {low} to {high}; ahead on {count_ahead(difference)} seeds{level}"


def count_ahead(difference: Difference) -> str:
    """Say on how many of the seeds the first variant is ahead.

    >>> count_ahead(Difference.of({0: 2.0, 1: 1.0}, {0: 1.0, 1: 1.0}))
    '1 of 2'
    """
    return f"{difference.ahead_on} of {len(difference.seeds)}"


def missing_seeds(comparison: Comparison) -> list[str]:
    """Say which seeds the paired differences do without."""
    sentences = []
    for pair in comparison.pairs:
        if pair.top5 is None or not pair.top5.left_out:
            continue
        seeds = pair.top5.left_out
        listed = ", ".join(map(str, seeds))
        which = f"seeds {listed} are" if len(seeds) > 1 else f"seed {listed} is"
        sentences.append(
            f"{pair.variant.label}: {which} left out, as it or {pair.baseline.label} has not "
            "finished there or diverged."
        )
    return sentences


def has_dagger(comparison: Comparison) -> bool:
    """Whether some variant was not tuned while others were."""
    return not all(variant.tuned for variant in comparison.variants)


def _explain_missing(pair: Pair) -> str:
    """Say why two variants have no seed in common."""
    for variant in (pair.variant, pair.baseline):
        if variant.runs and len(variant.diverged) == len(variant.runs):
            return f"{variant.label} diverged on every seed"
    return "nothing is finished that could be compared yet"


def _count_diverged(variant: VariantResults) -> str:
    return f"diverged on {len(variant.diverged)} of {pluralize(len(variant.runs), 'seed')}"


def _race(pair: Pair) -> str:
    """Say who reaches the target when, of a variant that is ahead."""
    variant, baseline = pair.variant.finished, pair.baseline.finished
    target = f"{variant.target * 100:g} %"
    if not variant.reached:
        nobody = "it does not reach" if baseline.reached else "neither reaches"
        return f"In {pluralize(variant.rounds_planned, 'round')} {nobody} {target}."
    variant_reaches = f"It reaches {target} in {_rounds(variant)}"
    if not baseline.reached:
        return f"{variant_reaches}; {baseline.title} does not in {baseline.rounds_planned}."
    ratio = _compare_rounds(pair.speed_up)
    return f"{variant_reaches}, {baseline.title} in {_rounds(baseline)}{ratio}."


def _rounds(variant: VariantResults) -> str:
    """Say how many rounds a variant took to the target, and on how many seeds."""
    estimate = Estimate.of(variant.reached)
    assert estimate is not None
    plural = "" if variant.reached == [1] else "s"
    shown = f"{estimate.show(0)} round{plural}"
    if estimate.count == len(variant.runs):
        return shown
    return f"{shown} on {estimate.count} of {len(variant.runs)} seeds"


def _compare_rounds(speed_up: SpeedUp | None) -> str:
    """Say how many times fewer rounds a variant took; nothing if as many."""
    if speed_up is None:
        return ""
    ratio = speed_up.ratio
    if speed_up.bound == "<":  # it only says how little is gained
        bound = f"at most {ratio:.1f}× fewer"
        if ratio <= 1:
            bound = f"at least {1 / ratio:.1f}× as many"
        return f": {bound}"
    if f"{max(ratio, 1 / ratio):.1f}" == "1.0":
        return ""
    about = {"": "", ">": "more than ", "~": "about "}[speed_up.bound]
    if ratio >= 1:
        return f", {about}{ratio:.1f}× fewer"
    if speed_up.bound == ">":  # more than fewer than 1: that says nothing
        return ""
    return f", {about}{1 / ratio:.1f}× as many"


def _costs(pair: Pair) -> str:
    """Say what differs by more than 2x in a round, whichever way."""
    costs = []
    for factor, unit in ((pair.bytes_factor, "bytes"), (pair.seconds_factor, "seconds")):
        if factor is None:
            continue
        if factor > MUCH:
            costs.append(f"{factor:.1f}× the {unit}")
        elif factor < 1 / MUCH:
            costs.append(f"1/{1 / factor:.1f} of the {unit}")
    if not costs:
        return ""
    return f"A round costs {' and '.join(costs)} of {pair.baseline.title}'s."


def _describe_alone(comparison: Comparison) -> str:
    """Describe the variants one by one, while nothing can be compared."""
    baseline = comparison.baseline
    assert baseline is not None
    level = _level(baseline.finished)
    if level:
        return f"{level}. There is nothing finished to compare it with."
    state = "is not finished yet"
    if baseline.diverged and len(baseline.diverged) == len(baseline.runs):
        state = "diverged on every seed"
    sentences = [f"{baseline.title}, with which the others would be compared, {state}"]
    for variant in comparison.variants:
        level = _level(variant.finished)
        if level and variant is not baseline:
            sentences.append(level)
    return ". ".join(sentences) + "."


def _level(variant: VariantResults) -> str:
    """Say how good a variant is by itself; nothing if no run of it is finished."""
    accuracy = variant.accuracy("top5")
    if accuracy is None:
        return ""
    target = f"{variant.target * 100:g} %"
    reaches = f"does not reach {target} in {pluralize(variant.rounds_planned, 'round')}"
    if variant.reached:
        reaches = f"reaches {target} in {_rounds(variant)}"
    return f"{variant.title} {reaches}, {accuracy.show(1, 100)} % in its 5 best rounds"


def _rank(comparison: Comparison, best: Pair) -> str:
    """Say why the best variant leads, and who cannot be told from it; nothing of only two."""
    if len(comparison.pairs) < 2:
        return ""
    if not _have_same_seeds(comparison.pairs):
        return _rank_across_seeds(comparison, best)
    gains = {best.baseline.label: 0.0}
    for pair in comparison.pairs:
        assert pair.top5 is not None
        gains[pair.variant.label] = pair.top5.mean
    highest = max(gains.values())
    leaders = [variant for variant in comparison.variants if gains[variant.label] == highest]
    if len(leaders) == len(comparison.variants):
        return f"All {len(leaders)} variants have the same mean."
    leader = leaders[0]
    others = [variant for variant in comparison.variants if variant is not leader]
    if best.verdict is Verdict.AHEAD and leader is best.variant:
        # The sentence before has told it from the baseline.
        others = [variant for variant in others if variant is not best.baseline]
    close = 0
    for variant in others:
        difference = compare_pair(variant, leader).top5
        if difference is not None and difference.verdict is Verdict.UNDECIDED:
            close += 1
    doubt = ""
    if close:
        which = f"{close} of the other {len(others)}"
        if close == len(others):
            which = "none of the others" if close > 1 else "the other"
        can = "can" if which.startswith("none") else "cannot"
        doubt = f"; {which} {can} be told from it on these seeds"
    count = len(comparison.variants)
    return f"{leader.title} has the highest mean of {count} variants{doubt}."


def _have_same_seeds(pairs: Sequence[Pair]) -> bool:
    seeds = {None if pair.top5 is None else pair.top5.seeds for pair in pairs}
    return len(seeds) == 1


def _rank_across_seeds(comparison: Comparison, best: Pair) -> str:
    """Say where the best variant stands among others that have not all the same seeds."""
    assert best.top5 is not None
    position = "is the furthest above" if best.top5.mean > 0 else "is the least below"
    reason = "not all variants have the same seeds"
    diverged = [pair.variant.title for pair in comparison.pairs if pair.variant.diverged]
    if diverged:
        reason = f"{' and '.join(diverged)} diverged"
    names = f"{best.variant.title} {position} {best.baseline.title}"
    return f"{names} of what can be compared; {reason}."
