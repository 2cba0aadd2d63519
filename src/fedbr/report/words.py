"""Every sentence about results: terminal, page, ``reproduce``, sweeps and README share them."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from ..recipe.schema import Recipe, TrainConfig
from ..run.results import Results, RunResult
from ..util.estimate import Difference, Estimate, Verdict, signed
from .compare import MUCH, Comparison, Pair, SpeedUp, VariantResults, compare_pair

DAGGER = "† not tuned: its parameters were not searched for."


def number(count: int, what: str) -> str:
    """Say how many there are of something.

    >>> number(1, "seed"), number(1000, "round")
    ('1 seed', '1,000 rounds')
    """
    return f"{count:,} {what}{'' if count == 1 else 's'}"


# --- who is ahead ---------------------------------------------------------------------------


def closing(comparison: Comparison) -> list[str]:
    """Say how each variant compares with the baseline: the last lines of a command."""
    said = [pair_sentence(pair) for pair in comparison.pairs]
    return [*said, DAGGER] if said and has_dagger(comparison) else said


def headline(comparison: Comparison) -> list[str]:
    """Say what came out: the best variant beside the baseline, and how sure that is."""
    if not any(run.finished for run in comparison.results.runs):
        return ["No run is finished yet."]
    best = comparison.best
    if best is None:
        return [_alone(comparison)]
    return [pair_sentence(best), *_rank(comparison, best)]


def pair_sentence(pair: Pair) -> str:
    """Say how a variant compares with the baseline, and what it costs if it is ahead."""
    name, base = pair.variant.title, pair.baseline.title
    if pair.top5 is None:
        return f"{name} and {base}: {_nothing_common(pair)}."
    gain = f"{in_points(pair.top5)} in the 5 best rounds ({evidence(pair.top5)})"
    if pair.variant.diverged:
        return f"{name} {_diverged_on(pair.variant)}. On the other seeds: {gain} beside {base}."
    match pair.verdict:
        case Verdict.AHEAD:
            praise = [f"{name} is ahead of {base}: {gain}.", _race(pair), _costs(pair)]
            return " ".join(part for part in praise if part)
        case Verdict.BEHIND:
            return f"{name} is behind {base}: {gain}."
        case _:
            return f"{name} against {base} is undecided: {gain}."


def verdict(pair: Pair) -> str:
    """Say the verdict in a cell of a table."""
    if pair.variant.diverged:
        return _diverged_on(pair.variant)
    if pair.top5 is None:
        return "no seed that both have finished"
    return pair.verdict.value


def in_points(difference: Difference) -> str:
    """Say a mean difference of accuracies.

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
    low, high = (signed(bound, exact) for bound in difference.interval)
    return f"95 % interval {low} to {high}; {ahead_on(difference)} seeds"


def ahead_on(difference: Difference) -> str:
    """Say on how many of the seeds the first is ahead."""
    level = f", level on {difference.level_on}," if difference.level_on else ""
    return f"ahead on {difference.ahead_on}{level} of {len(difference.seeds)}"


def left_out(comparison: Comparison) -> list[str]:
    """Say which seeds the paired figures do without."""
    said = []
    for pair in comparison.pairs:
        if pair.top5 is not None and pair.top5.left_out:
            seeds = pair.top5.left_out
            which = f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"
            said.append(
                f"{pair.variant.label}: {which} {'are' if len(seeds) > 1 else 'is'} left out, as "
                f"it or {pair.baseline.label} has not finished there or diverged."
            )
    return said


def has_dagger(comparison: Comparison) -> bool:
    """Whether some variant was not tuned while others were."""
    return not all(variant.tuned for variant in comparison.variants)


def _nothing_common(pair: Pair) -> str:
    for variant in (pair.variant, pair.baseline):
        if variant.runs and len(variant.diverged) == len(variant.runs):
            return f"{variant.label} diverged on every seed"
    return "nothing is finished that could be compared yet"


def _diverged_on(variant: VariantResults) -> str:
    return f"diverged on {len(variant.diverged)} of {number(len(variant.runs), 'seed')}"


def _race(pair: Pair) -> str:
    """Say who reaches the target when, of a variant that is ahead."""
    row, base = pair.variant.finished, pair.baseline.finished
    target = f"{row.target * 100:g} %"
    if not row.reached:
        none = "neither reaches" if not base.reached else "it does not reach"
        return f"In {number(row.rounds_planned, 'round')} {none} {target}."
    mine = f"It reaches {target} in {_rounds(row)}"
    if not base.reached:
        return f"{mine}; {base.title} does not in {base.rounds_planned}."
    return f"{mine}, {base.title} in {_rounds(base)}{_fewer(pair.speed_up)}."


def _rounds(variant: VariantResults) -> str:
    estimate = Estimate.of(variant.reached)
    assert estimate is not None
    shown = f"{estimate.show(0)} round{'' if variant.reached == [1] else 's'}"
    if estimate.count == len(variant.runs):
        return shown
    return f"{shown} on {estimate.count} of {len(variant.runs)} seeds"


def _fewer(speed_up: SpeedUp | None) -> str:
    if speed_up is None:
        return ""
    ratio = speed_up.ratio
    if speed_up.bound == "<":  # it only says how little is gained
        more = f"at most {ratio:.1f}× fewer" if ratio > 1 else f"at least {1 / ratio:.1f}× as many"
        return f": {more}"
    if f"{max(ratio, 1 / ratio):.1f}" == "1.0":
        return ""  # as many
    about = {"": "", ">": "more than ", "~": "about "}[speed_up.bound]
    if ratio >= 1:
        return f", {about}{ratio:.1f}× fewer"
    return "" if speed_up.bound == ">" else f", {about}{1 / ratio:.1f}× as many"


def _costs(pair: Pair) -> str:
    """Say what differs by more than 2x in a round, whichever way."""
    base = pair.baseline.title
    said = []
    for factor, what in ((pair.bytes_factor, "bytes"), (pair.seconds_factor, "seconds")):
        if factor is None:
            continue
        if factor > MUCH:
            said.append(f"{factor:.1f}× the {what}")
        elif factor < 1 / MUCH:
            said.append(f"1/{1 / factor:.1f} of the {what}")
    return f"A round costs {' and '.join(said)} of {base}'s." if said else ""


def _alone(comparison: Comparison) -> str:
    """Say what there is while nothing can be compared."""
    base = comparison.baseline
    assert base is not None
    if _level(base.finished):
        return f"{_level(base.finished)}. There is nothing finished to compare it with."
    state = "is not finished yet"
    if base.diverged and len(base.diverged) == len(base.runs):
        state = "diverged on every seed"
    others = [_level(v.finished) for v in comparison.variants if v is not base]
    waiting = f"{base.title}, with which the others would be compared, {state}"
    return ". ".join([waiting, *(said for said in others if said)]) + "."


def _level(variant: VariantResults) -> str:
    """Say how good a variant is by itself; nothing if no run of it is finished."""
    accuracy = variant.accuracy("top5")
    if accuracy is None:
        return ""
    target = f"{variant.target * 100:g} %"
    reaches = f"does not reach {target} in {number(variant.rounds_planned, 'round')}"
    if variant.reached:
        reaches = f"reaches {target} in {_rounds(variant)}"
    return f"{variant.title} {reaches}, {accuracy.show(1, 100)} % in its 5 best rounds"


def _rank(comparison: Comparison, best: Pair) -> list[str]:
    """With more than two variants, say why this one leads and who cannot be told from it."""
    others = [p for p in comparison.pairs if p is not best]
    if not others:
        return []
    assert best.top5 is not None
    above = best.top5.mean > 0
    differences = [pair.top5 for pair in comparison.pairs]
    seeds = {None if d is None else d.seeds for d in differences}
    if len(seeds) > 1:
        position = "is the furthest above" if above else "is the least below"
        diverged = [pair.variant.title for pair in comparison.pairs if pair.variant.diverged]
        why = "not all variants have the same seeds"
        if diverged:
            why = f"{' and '.join(diverged)} diverged"
        base = best.baseline.title
        return [f"{best.variant.title} {position} {base} of what can be compared; {why}."]
    leader, rest = best.variant, [pair.variant for pair in others]
    if not above:
        leader, rest = best.baseline, [pair.variant for pair in comparison.pairs]
    against = [compare_pair(variant, leader).top5 for variant in rest]
    close = sum(d is not None and d.verdict is Verdict.UNDECIDED for d in against)
    doubt = ""
    if close:
        which = "the other" if len(rest) == 1 else f"{close} of the other {len(rest)}"
        doubt = f"; {which} cannot be told from it on these seeds"
    count = len(comparison.variants)
    return [f"{leader.title} has the highest mean of {count} variants{doubt}."]


# --- what was trained -----------------------------------------------------------------------


def about(results: Results) -> str:
    """Say in one line what was trained on what."""
    recipe, runs = results.recipe, results.runs
    splits = [run.record.split for run in runs if run.record.split is not None]
    if not splits:
        return f"{recipe.data.name}: nothing is trained yet"
    sizes, train = splits[0].sizes, recipe.train
    effective = statistics.fmean(e for split in splits for e in split.effective_classes)
    each = train.clients_per_round or len(sizes)
    part = f", {each} a round" if each < len(sizes) else ""
    unseen = f", {recipe.data.unseen} unseen" if recipe.data.unseen else ""
    data = (
        f"{recipe.data.name}{unseen}: {sum(sizes):,} samples, {len(sizes)} clients{part}, "
        f"{partition_words(recipe)}, {effective:.1f} effective classes each"
    )
    plan = (
        f"{number(train.rounds, 'round')} of {number(train.local_steps, 'step')} of "
        f"{train.batch_size}, lr {_learning_rates(recipe)}"
    )
    seeds = f"seed{'s' if len(train.seeds) > 1 else ''} {', '.join(map(str, train.seeds))}"
    training = ", ".join(part for part in (plan, _averaging(train.aggregate, sizes), seeds) if part)
    tests = [_quick_tests(train, runs[0]), few_tests(train), _held_out(recipe)]
    model = model_words(recipe.model.model_dump(exclude_none=True))
    return "; ".join(part for part in (data, model, training, *tests) if part)


def partition_words(recipe: Recipe) -> str:
    """Say how the samples are split."""
    data = recipe.data
    skewed = data.partition in ("lda", "lda-prior", "quantity")
    return f"{data.partition} (alpha {data.alpha:g})" if skewed else data.partition


def few_tests(train: TrainConfig) -> str:
    """Say that there are no 5 best rounds where fewer are tested; nothing if there are."""
    tests = -(-train.rounds // train.evaluate_every) if train.evaluate_every else 1
    if tests >= 5:
        return ""
    counted = f"only {tests} rounds are" if tests > 1 else "only one round is"
    return f"{counted} tested, so that the 5 best rounds are of no more"


def model_words(model: Mapping[str, Any]) -> str:
    """Say which model, with what options.

    model: its table in the recipe.

    >>> model_words({"name": "cnn", "width": 0.25})
    'cnn, width 0.25'
    """
    options = [f", {key} {_plain(value)}" for key, value in model.items() if key != "name"]
    return str(model["name"]) + "".join(options)


def progress(results: Results) -> str:
    """Say what is still missing; nothing if all is there."""
    planned = len(results.labels) * len(results.seeds)
    finished = sum(run.finished for run in results.runs)
    if finished == planned:
        return ""
    begun = []
    for run in results.runs:
        if not run.finished:
            begun.append(f"{run.label}, seed {run.seed}: {len(run.rounds)} rounds")
    so_far = f" ({'; '.join(begun)})" if begun else ""
    return f"{finished} of {planned} runs are finished{so_far}"


def divergences(comparison: Comparison) -> list[str]:
    """Say where runs ended before their time."""
    said = []
    for variant in comparison.variants:
        if variant.diverged:
            ends = "; ".join(divergence(run) for run in variant.diverged)
            said.append(f"{variant.label}: {ends}. What diverged has no figure.")
    return said


def divergence(run: RunResult) -> str:
    """Say where a run diverged."""
    at = run.diverged_at
    assert at is not None
    return f"seed {run.seed} diverged in round {at.round} (client {at.client}: {at.what})"


def _quick_tests(train: TrainConfig, run: RunResult) -> str:
    sizes = run.record.test  # None: older results do not say
    between = train.evaluate_every and train.rounds > train.evaluate_every
    if sizes is None or not between or sizes.last == sizes.others:
        return ""
    return f"tested on {sizes.others:,} samples, on all {sizes.last:,} in the last round"


def _held_out(recipe: Recipe) -> str:
    if not recipe.data.holdout:
        return ""
    return (
        f"tested on training samples: {recipe.data.holdout:.0%} of them are held out, the test "
        "set is not used"
    )


def _averaging(aggregate: str, sizes: Sequence[int]) -> str:
    """Say how clients count in the average, where that makes a difference."""
    if max(sizes) < 1.5 * min(sizes):
        return ""
    return "clients count by their samples" if aggregate == "samples" else "clients count alike"


def _learning_rates(recipe: Recipe) -> str:
    """Say the learning rate, and that of each variant that has one of its own."""
    rates = {variant.label: recipe.of(variant).train.lr for variant in recipe.compare}
    if len(set(rates.values())) == 1:
        return f"{next(iter(rates.values())):g}"
    return ", ".join(f"{rate:g} ({label})" for label, rate in rates.items())


def _plain(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
