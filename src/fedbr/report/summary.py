"""Sentences about what was trained on what, and how far it has come."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from ..core.records import Split
from ..recipe.schema import Recipe, TrainConfig
from ..run.results import Results, RunResult
from .compare import Comparison
from .words import pluralize


def about(results: Results) -> str:
    """Say in one line what was trained on what."""
    recipe, runs = results.recipe, results.runs
    splits = [run.record.split for run in runs if run.record.split is not None]
    if not splits:
        return f"{recipe.data.name}: nothing is trained yet"
    parts = [
        _describe_data(recipe, splits),
        describe_model(recipe.model.model_dump(exclude_none=True)),
        _describe_training(recipe, splits[0].sizes),
        _describe_quick_tests(recipe.train, runs[0]),
        few_tests(recipe.train),
        _describe_holdout(recipe),
    ]
    return "; ".join(part for part in parts if part)


def few_tests(train: TrainConfig) -> str:
    """Say that there are no 5 best rounds where fewer are tested; nothing if there are."""
    tests = 1
    if train.evaluate_every:
        tests = -(-train.rounds // train.evaluate_every)
    if tests >= 5:
        return ""
    count = f"only {tests} rounds are" if tests > 1 else "only one round is"
    return f"{count} tested; the 5 best rounds are the best of these"


def describe_model(model: Mapping[str, object]) -> str:
    """Say which model, with what options.

    Args:
        model: its table in the recipe.

    >>> describe_model({"name": "cnn", "width": 0.25})
    'cnn, width 0.25'
    """
    words = [str(model["name"])]
    for key, value in model.items():
        if key != "name":
            words.append(f"{key} {value:g}" if isinstance(value, float) else f"{key} {value}")
    return ", ".join(words)


def unfinished(results: Results) -> str:
    """Say which runs are still missing; nothing if all are finished."""
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
    """Say of every variant where its runs diverged."""
    sentences = []
    for variant in comparison.variants:
        if variant.diverged:
            runs = "; ".join(divergence(run) for run in variant.diverged)
            sentences.append(
                f"{variant.label}: {runs}. A run that diverged is left out of all means."
            )
    return sentences


def divergence(run: RunResult) -> str:
    """Say where a run diverged."""
    at = run.diverged_at
    assert at is not None
    return f"seed {run.seed} diverged in round {at.round} (client {at.client}: {at.what})"


def _describe_data(recipe: Recipe, splits: Sequence[Split]) -> str:
    """Say what is split over whom."""
    sizes = splits[0].sizes
    clients = f"{len(sizes)} clients"
    per_round = recipe.train.clients_per_round
    if per_round and per_round < len(sizes):
        clients += f", {per_round} a round"
    name = recipe.data.name
    if recipe.data.unseen:
        name += f", {recipe.data.unseen} unseen"
    effective = statistics.fmean(e for split in splits for e in split.effective_classes)
    partition = _describe_partition(recipe)
    return (
        f"{name}: {sum(sizes):,} samples, {clients}, {partition}, "
        f"{effective:.1f} effective classes each"
    )


def _describe_partition(recipe: Recipe) -> str:
    data = recipe.data
    if data.partition in ("lda", "lda-prior", "quantity"):
        return f"{data.partition} (alpha {data.alpha:g})"
    return data.partition


def _describe_training(recipe: Recipe, sizes: Sequence[int]) -> str:
    """Say how many rounds of which steps, and on which seeds."""
    train = recipe.train
    rounds, steps = pluralize(train.rounds, "round"), pluralize(train.local_steps, "step")
    seeds = f"seed{'s' if len(train.seeds) > 1 else ''} {', '.join(map(str, train.seeds))}"
    parts = [f"{rounds} of {steps} of {train.batch_size}", f"lr {_learning_rates(recipe)}"]
    if max(sizes) >= 1.5 * min(sizes):  # otherwise the average is the same
        by_samples = train.aggregate == "samples"
        parts.append("clients count by their samples" if by_samples else "clients count alike")
    return ", ".join([*parts, seeds])


def _learning_rates(recipe: Recipe) -> str:
    """Say the learning rate, and that of each variant that has one of its own."""
    rates = {variant.label: recipe.of(variant).train.lr for variant in recipe.compare}
    if len(set(rates.values())) == 1:
        return f"{next(iter(rates.values())):g}"
    return ", ".join(f"{rate:g} ({label})" for label, rate in rates.items())


def _describe_quick_tests(train: TrainConfig, run: RunResult) -> str:
    """Say how many samples most tests are of, where that is not all."""
    sizes = run.record.test  # None: older results do not say
    several = train.evaluate_every and train.rounds > train.evaluate_every
    if sizes is None or not several or sizes.last == sizes.others:
        return ""
    return f"tested on {sizes.others:,} samples, on all {sizes.last:,} in the last round"


def _describe_holdout(recipe: Recipe) -> str:
    if not recipe.data.holdout:
        return ""
    share = f"{recipe.data.holdout:.0%}"
    return f"tested on training samples: {share} of them are held out, the test set is not used"
