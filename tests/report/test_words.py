"""Sentences about results: nobody is praised for what may be chance."""

from __future__ import annotations

import pytest
from made import compared, of, results, run

from fedbr.recipe.schema import TrainConfig
from fedbr.report import summary, words
from fedbr.report.compare import compare
from fedbr.report.tables import paired_table


def test_who_is_ahead_is_praised_with_what_it_costs() -> None:
    runs = [run("FedAvg", seed, 0.7 + seed / 100, 8) for seed in (0, 1, 2)]
    runs += [run("b", seed, 0.9 + seed / 90, 2, megabytes=100, seconds=8) for seed in (0, 1, 2)]
    (said,) = words.headline(compared(*runs))
    assert said.startswith("b is ahead of FedAvg: +20.1 points in the 5 best rounds (95 % interval")
    assert "ahead on 3 of 3 seeds). It reaches 80 % in 2 ± 0 rounds, FedAvg in 8 ± 0" in said
    assert "4.0× fewer." in said
    assert said.endswith("A round costs 2.5× the bytes and 1/2.5 of the seconds of FedAvg's.")


def test_a_baseline_that_is_the_best() -> None:
    head = words.headline(of({"FedAvg": [0.9, 0.8], "b": [0.5, 0.6], "c": [0.4, 0.5]}))
    assert head[0].startswith("b against FedAvg is undecided: −30.0 points in the 5 best rounds")
    assert head[1].startswith("FedAvg has the highest mean of 3 variants")


def test_the_highest_mean_is_the_highest_whoever_is_ahead() -> None:
    values = {"FedAvg": [0.5, 0.5, 0.5], "b": [0.7, 0.55, 0.6], "c": [0.55, 0.6, 0.61]}
    head = words.headline(of(values))
    assert head[0].startswith("c is ahead of FedAvg: +8.7 points")
    assert head[1].startswith("b has the highest mean of 3 variants; none of the others can be")


def test_variants_that_are_all_the_same_have_no_leader() -> None:
    head = words.headline(of({"FedAvg": [0.5, 0.6], "b": [0.5, 0.6], "c": [0.5, 0.6]}))
    assert head[1] == "All 3 variants have the same mean."


@pytest.mark.parametrize(
    ("gain", "first"),
    [
        (0.2, "b is ahead of FedAvg"),
        (-0.2, "b is behind FedAvg"),
        (0.0, "b against FedAvg is undecided"),
        (-0.001, "b is behind FedAvg"),
    ],
)
def test_who_is_not_ahead_is_not_praised_for_being_early(gain: float, first: str) -> None:
    runs = [run("FedAvg", seed, 0.6 + seed / 100, 9) for seed in (0, 1, 2)]
    for seed in (0, 1, 2):
        runs.append(run("b", seed, 0.6 + seed / 100 + gain * (1 + seed / 10), 3))
    head = words.headline(compared(*runs))
    assert head[0].startswith(first)
    assert ("3.0× fewer" in " ".join(head)) == (gain > 0)


def test_variants_with_fewer_seeds_do_not_win_by_them() -> None:
    variants = {"FedAvg": [0.9, 0.5, 0.4], "b": [0.95, 0.6, 0.5], "c": [0.85, None, None]}
    head = words.headline(of(variants))
    assert head[0].startswith("b is ahead of FedAvg: +8.3 points in the 5 best rounds")
    assert head[1] == (
        "b is the furthest above FedAvg of what can be compared; not all variants have the same "
        "seeds."
    )
    (early,) = words.headline(of({"FedAvg": [None], "b": [0.95], "c": [0.85]}))
    assert early.startswith(
        "FedAvg, with which the others would be compared, is not finished yet. b reaches 80 %"
    )


def test_who_diverged_is_not_ahead() -> None:
    runs = [run("FedAvg", seed, 0.5, 3) for seed in (0, 1, 2)]
    runs += [run("b", seed, 0.8 + seed / 100, 2) for seed in (0, 1)]
    comparison = compared(*runs, run("b", 2, 0.9, 1, diverged=True))
    (said,) = words.closing_sentences(comparison)
    assert said.startswith("b diverged on 1 of 3 seeds. On the other seeds: +30.5 points")
    assert words.missing_seeds(comparison) == [
        "b: seed 2 is left out, as it or FedAvg has not finished there or diverged."
    ]
    assert summary.divergences(comparison) == [
        "b: seed 2 diverged in round 4 (client 1: x). A run that diverged is left out of all means."
    ]


def test_who_diverged_on_every_seed_is_said_to() -> None:
    runs = [run("FedAvg", seed, 0.5, 3) for seed in (0, 1)]
    runs += [run("b", seed, 0.6, 3) for seed in (0, 1)]
    comparison = compared(*runs, *(run("c", seed, 0.1, diverged=True) for seed in (0, 1)))
    assert words.closing_sentences(comparison)[1] == "c and FedAvg: c diverged on every seed."
    assert paired_table(comparison)[1][1][4] == "diverged on 2 of 2 seeds"
    assert words.headline(comparison)[-1] == (
        "b is the furthest above FedAvg of what can be compared; c diverged."
    )


def test_as_many_rounds_are_not_1_0_times_fewer() -> None:
    (said,) = words.headline(of({"FedAvg": [0.8, 0.8], "b": [0.9, 0.9]}))
    assert "It reaches 80 % in 3 ± 0 rounds, FedAvg in 3 ± 0 rounds." in said
    assert "fewer" not in said


def test_one_seed_gives_no_interval() -> None:
    (said,) = words.headline(of({"FedAvg": [0.8], "b": [0.9]}))
    assert said == (
        "b against FedAvg is undecided: +10.0 points in the 5 best rounds (one seed, which gives "
        "no interval)."
    )


def test_what_was_not_tuned_is_said_at_the_end() -> None:
    tuned, untuned = run("FedAvg", 0, 0.7, 8, tuned=True), run("FedBR", 0, 0.9, 2, tuned=False)
    assert words.closing_sentences(compared(tuned, untuned))[-1].startswith("† not tuned")


def test_fewer_than_five_tests_are_said() -> None:
    assert summary.few_tests(TrainConfig(rounds=10, evaluate_every=2)) == ""
    four = summary.few_tests(TrainConfig(rounds=7, evaluate_every=2))
    assert four.startswith("only 4 rounds are tested")
    one = summary.few_tests(TrainConfig(rounds=7, evaluate_every=0))
    assert one.startswith("only one round is tested")


def test_nothing_yet() -> None:
    comparison = compare(results())
    assert words.closing_sentences(comparison) == []
    assert words.headline(comparison) == ["No run is finished yet."]
