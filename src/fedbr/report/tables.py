"""From results to the comparison table: mean and spread over seeds, speed-up against FedAvg."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Figure:
    """A mean over seeds with its spread (sample standard deviation), and how many seeds it rests
    on.
    """

    mean: float
    spread: float | None
    count: int

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Figure | None:
        found = [v for v in values if v is not None and math.isfinite(v)]
        if not found:
            return None
        return cls(
            statistics.fmean(found), statistics.stdev(found) if len(found) > 1 else None, len(found)
        )

    def show(self, digits: int = 1, factor: float = 1.0) -> str:
        text = rounded(self.mean * factor, digits)
        return text if self.spread is None else f"{text} ± {rounded(self.spread * factor, digits)}"


def rounded(value: float, digits: int) -> str:
    """Write a number; a half of a whole one goes up, so that 11.5 and 12.5 rounds stay a round
    apart.
    """
    return f"{value:.{digits}f}" if digits else str(math.floor(value + 0.5))


@dataclass(frozen=True)
class Row:
    """A variant and its runs. One that diverged has no figure, however good its rounds were before:
    its model is lost.
    """

    label: str
    runs: Sequence[dict[str, Any]]
    target: float
    rounds_planned: int

    @property
    def counted(self) -> Sequence[dict[str, Any]]:
        """The runs that figures are of: those that are finished; while none is, what there is so
        far.
        """
        return [run for run in self.runs if run["finished"]] or self.runs

    def figure(self, get: Callable[[dict[str, Any]], float | None]) -> Figure | None:
        return Figure.of(get(run) for run in self.counted if not run["diverged"])

    @property
    def reached(self) -> list[int]:
        """Rounds to the target, of the seeds that reached it."""
        return [r for run in self.counted if (r := self.round_of(run)) is not None]

    def round_of(self, run: dict[str, Any]) -> int | None:
        """Return the round in which a run reached the target; one that diverged did not."""
        found: int | None = run["rounds_to"][str(self.target)]
        return None if run["diverged"] else found

    @property
    def diverged(self) -> list[dict[str, Any]]:
        return [run for run in self.runs if run["diverged"]]

    @property
    def tuned(self) -> bool:
        """Whether nobody says that its parameters were not searched for."""
        return all(run.get("tuned") is not False for run in self.runs)

    @property
    def title(self) -> str:
        """The label, with a dagger if the variant was not tuned."""
        return self.label if self.tuned else f"{self.label} †"

    @property
    def finished(self) -> Row:
        """The same without runs that are still to go on: they cannot be compared with those that
        are done.
        """
        return replace(self, runs=[run for run in self.runs if run["finished"]])

    def by_seed(self, key: str) -> dict[int, float | None]:
        """Return a figure of accuracy of every seed."""
        return {run["seed"]: None if run["diverged"] else run["accuracy"][key] for run in self.runs}


def rows(results: dict[str, Any]) -> list[Row]:
    """Group the runs of a result by variant, in the recipe's order."""
    recipe = results["recipe"]
    target, planned = recipe["metrics"]["target"], recipe["train"]["rounds"]
    labels = [variant["label"] for variant in recipe["compare"]]
    by_label = {
        label: [run for run in results["runs"] if run["label"] == label] for label in labels
    }
    return [Row(label, runs, target, planned) for label, runs in by_label.items() if runs]


def base_of(found: Sequence[Row]) -> Row:
    """Return what the others are compared with: FedAvg, where there is one, or the first."""
    return next((row for row in found if not row.runs[0]["methods"]), found[0])


def columns(target: float) -> list[str]:
    """Name the columns of the comparison table."""
    return [
        "",
        "5 best rounds %",
        "final %",
        "worst client %",
        f"rounds to {target * 100:g} %",
        "speed-up",
        "MB/round",
        "s/round",
    ]


def compare(results: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return the comparison as header and cells."""
    found = rows(results)
    if not found:
        return columns(results["recipe"]["metrics"]["target"]), []
    base = base_of(found)
    return columns(base.target), [_cells(row, base) for row in found]


def _cells(row: Row, base: Row) -> list[str]:
    def percent(key: str) -> str:
        figure = row.figure(lambda run: run["accuracy"][key])
        return figure.show(1, 100) if figure else "-"

    def per_round(get: Callable[[dict[str, Any]], float]) -> str:
        figure = row.figure(lambda run: get(run) / run["rounds"] if run["rounds"] else None)
        return f"{figure.mean:.2f}" if figure else "-"

    return [
        row.title + _marks(row),
        percent("top5"),
        percent("final"),
        percent("worst_top5"),
        _reached(row),
        speed_up(row, base),
        per_round(lambda run: (run["bytes"]["up"] + run["bytes"]["down"]) / 1e6),
        per_round(lambda run: run["seconds"]["train"]),
    ]


def _marks(row: Row) -> str:
    if len(row.diverged) > 1:
        return f" (diverged: {len(row.diverged)} of {len(row.runs)} seeds)"
    if row.diverged:
        (run,) = row.diverged
        at = run["diverged_at"]
        return f" (diverged: seed {run['seed']}, round {at['round']}, client {at['client']})"
    unfinished = [run for run in row.runs if not run["finished"]]
    if not unfinished:
        return ""
    if len(unfinished) < len(row.runs):
        return f" ({len(unfinished)} more unfinished)"
    rounds = " and ".join(sorted({str(run["rounds"]) for run in unfinished}, key=int))
    return f" (so far: {rounds} of {row.rounds_planned} rounds)"


def _reached(row: Row) -> str:
    if not row.reached:
        return "-"
    figure = Figure.of(row.reached)
    assert figure is not None
    missed = "" if figure.count == len(row.counted) else f" ({figure.count} of {len(row.counted)})"
    return figure.show(0) + missed


def speed_up(row: Row, base: Row) -> str:
    """Compare the mean rounds to the target over the same seeds; ``ratio`` in a cell of the table."""
    if row is base and row.reached:
        return "1.0×"
    found = ratio(row, base)
    return "-" if found is None else f"{found[0]}{found[1]:.1f}×"


def ratio(row: Row, base: Row) -> tuple[str, float] | None:
    """Divide the base's mean rounds to the target by the row's own, over the same seeds.

    A run that never got there counts with all the rounds that it had, which makes the ratio a
    bound: ">" if only the base has such runs, "<" if only this row has, "~" if both have. One that
    is still to go on does not count.
    """
    settled = [
        {run["seed"] for run in side.runs if run["finished"] or side.round_of(run)}
        for side in (base, row)
    ]
    seeds = settled[0] & settled[1]
    if not seeds or not row.reached:
        return None
    (slow, base_missed), (quick, own_missed) = (_mean_rounds(side, seeds) for side in (base, row))
    sign = {(False, False): "", (True, False): ">", (False, True): "<", (True, True): "~"}[
        base_missed, own_missed
    ]
    return sign, slow / quick


def _mean_rounds(row: Row, seeds: set[int]) -> tuple[float, bool]:
    found = [row.round_of(run) for run in row.runs if run["seed"] in seeds]
    return statistics.fmean(row.rounds_planned if r is None else r for r in found), None in found


def about(results: dict[str, Any]) -> str:
    """Say in one line what was trained on what."""
    recipe, runs = results["recipe"], results["runs"]
    data, train = recipe["data"], recipe["train"]
    effective = [e for run in runs for e in run["split"]["effective_classes"]]
    if not effective:
        return f"{data['name']}: nothing is trained yet"
    seeds = train["seeds"]
    count = len(runs[0]["split"]["sizes"])
    each = train.get("clients_per_round", count)
    part = f", {each} a round" if each < count else ""
    alpha = (
        f" (alpha {data['alpha']:g})"
        if data["partition"] in ("lda", "lda-prior", "quantity")
        else ""
    )
    tested = runs[0].get("test_samples") or {"last": 0, "others": 0}  # older results do not say
    between = train["evaluate_every"] and train["rounds"] > train["evaluate_every"]
    some = ""
    if between and tested["last"] != tested["others"]:
        some = (
            f"; tested on {tested['others']:,} samples, on all {tested['last']:,} in the last round"
        )
    if tests := few_tests(train):
        some += f"; {tests}"
    if data.get("holdout"):
        some += f"; tested on training samples: {data['holdout']:.0%} of them are held out, the test set is not used"
    unseen = f", {data['unseen']} unseen" if data.get("unseen") else ""
    return (
        f"{data['name']}{unseen}: {sum(runs[0]['split']['sizes']):,} samples, {count} clients{part}, "
        f"{data['partition']}{alpha}, {statistics.fmean(effective):.1f} effective classes each; "
        f"{model_words(recipe['model'])}; "
        f"{number(train['rounds'], 'round')} of {number(train['local_steps'], 'step')} of {train['batch_size']}, "
        f"lr {_rates(recipe)}, {_averaged(train['aggregate'], runs[0]['split']['sizes'])}"
        f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}{some}"
    )


def _averaged(aggregate: str, sizes: Sequence[int]) -> str:
    """Say how clients count in the average, where that makes a difference."""
    if max(sizes) < 1.5 * min(sizes):
        return ""
    return "clients count by their samples, " if aggregate == "samples" else "clients count alike, "


def number(count: int, what: str) -> str:
    """Say how many there are of something."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def few_tests(train: Mapping[str, Any]) -> str:
    """Say that there are no 5 best rounds where fewer are tested; nothing if there are."""
    rounds, every = train["rounds"], train["evaluate_every"]
    tests = -(-rounds // every) if every else 1
    if tests >= 5:
        return ""
    counted = f"only {tests} rounds are" if tests > 1 else "only one round is"
    return f"{counted} tested, so that the 5 best rounds are of no more"


def _rates(recipe: dict[str, Any]) -> str:
    """Say the learning rate, and that of each variant that has one of its own."""
    common = recipe["train"]["lr"]
    rates = {s["label"]: s.get("train", {}).get("lr", common) for s in recipe["compare"]}
    if len(set(rates.values())) == 1:
        return f"{next(iter(rates.values())):g}"
    return ", ".join(f"{rate:g} ({label})" for label, rate in rates.items())


def model_words(model: Mapping[str, Any]) -> str:
    """Say which model, with what options."""
    return str(model["name"]) + "".join(
        f", {k} {_plain(v)}" for k, v in model.items() if k != "name"
    )


def _plain(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def progress(results: dict[str, Any]) -> str:
    """Say what is still missing; nothing if all is there."""
    recipe, runs = results["recipe"], results["runs"]
    planned = len(recipe["compare"]) * len(recipe["train"]["seeds"])
    finished = sum(run["finished"] for run in runs)
    if finished == planned:
        return ""
    begun = [
        f"{r['label']}, seed {r['seed']}: {r['rounds']} rounds" for r in runs if not r["finished"]
    ]
    return f"{finished} of {planned} runs are finished" + (
        f" ({'; '.join(begun)})" if begun else ""
    )


def sentences(results: dict[str, Any]) -> list[str]:
    """Say in words how each variant compares with FedAvg (or with the first), paired by seed."""
    found = rows(results)
    if len(found) < 2:
        return []
    base = base_of(found)
    said = [_sentence(row.finished, base.finished) for row in found if row is not base]
    return said + ([untuned] if (untuned := dagger(found)) else [])


def dagger(found: Sequence[Row]) -> str:
    """Say what the dagger means; nothing if there is none."""
    return (
        ""
        if all(row.tuned for row in found)
        else "† not tuned: its parameters were not searched for."
    )


def _sentence(row: Row, base: Row) -> str:
    mine, theirs = row.by_seed("top5"), base.by_seed("top5")
    both = [(mine[s], theirs[s]) for s in mine if s in theirs]
    gains = [a - b for a, b in both if a is not None and b is not None]
    gain = Figure.of(gains)
    if gain is None:
        lost = next(
            (x.label for x in (row, base) if x.runs and len(x.diverged) == len(x.runs)), None
        )
        what = (
            f"{lost} diverged on every seed"
            if lost
            else "nothing is finished that could be compared yet"
        )
        return f"{row.label} and {base.label}: {what}."
    size = Figure(abs(gain.mean), gain.spread, gain.count).show(1, 100)
    where = f"{size} points {'above' if gain.mean > 0 else 'below'}" if gain.mean else "level with"
    wins = f", ahead on {sum(g > 0 for g in gains)} of {gain.count} seeds" if gain.count > 1 else ""
    return f"{row.label}: {where} {base.label} in the 5 best rounds{wins}{_race(row, base)}."


def _race(row: Row, base: Row) -> str:
    """Say who reaches the target first."""
    target = f"{row.target * 100:g} %"
    if not row.reached:
        return f"; {target} is not reached in {number(row.rounds_planned, 'round')}"
    if not base.reached:
        return f"; {target} in {_reached(row)} rounds, which {base.label} does not reach in {base.rounds_planned}"
    rounds = "round" if row.reached == [1] else "rounds"
    return (
        f"; {target} in {_reached(row)} {rounds} against {_reached(base)} ({speed_up(row, base)})"
    )
