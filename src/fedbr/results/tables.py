"""From results to the comparison table: mean and spread over seeds, speed-up against FedAvg."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Figure:
    """A mean over seeds with its spread (sample standard deviation), and how many seeds it rests on."""

    mean: float
    spread: float | None
    count: int

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Figure | None:
        found = [v for v in values if v is not None]
        if not found:
            return None
        return cls(statistics.fmean(found), statistics.stdev(found) if len(found) > 1 else None, len(found))

    def show(self, digits: int = 1, factor: float = 1.0) -> str:
        text = f"{self.mean * factor:.{digits}f}"
        return text if self.spread is None else f"{text} ± {self.spread * factor:.{digits}f}"


@dataclass(frozen=True)
class Row:
    label: str
    runs: Sequence[dict[str, Any]]
    target: float
    rounds_planned: int

    def figure(self, get: Callable[[dict[str, Any]], float | None]) -> Figure | None:
        return Figure.of(get(run) for run in self.runs)

    @property
    def reached(self) -> list[int]:
        """Rounds to the target, of the seeds that reached it."""
        found = [run["rounds_to"][str(self.target)] for run in self.runs]
        return [r for r in found if r is not None]

    @property
    def diverged(self) -> list[dict[str, Any]]:
        return [run for run in self.runs if run["diverged"]]


def rows(results: dict[str, Any]) -> list[Row]:
    """Group the runs of a result by stack, in the recipe's order."""
    recipe = results["recipe"]
    target, planned = recipe["metrics"]["target"], recipe["train"]["rounds"]
    labels = [stack["label"] for stack in recipe["compare"]]
    by_label = {label: [run for run in results["runs"] if run["label"] == label] for label in labels}
    return [Row(label, runs, target, planned) for label, runs in by_label.items() if runs]


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
    base = next((row for row in found if not row.runs[0]["methods"]), found[0])  # FedAvg, where there is one
    return columns(base.target), [_cells(row, base) for row in found]


def _cells(row: Row, base: Row) -> list[str]:
    def percent(key: str) -> str:
        figure = row.figure(lambda run: run["accuracy"][key])
        return figure.show(1, 100) if figure else "-"

    def per_round(get: Callable[[dict[str, Any]], float]) -> str:
        figure = row.figure(lambda run: get(run) / run["rounds"] if run["rounds"] else None)
        return f"{figure.mean:.2f}" if figure else "-"

    return [
        row.label + _marks(row),
        percent("top5"),
        percent("final"),
        percent("worst_top5"),
        _reached(row),
        speed_up(row, base),
        per_round(lambda run: (run["bytes"]["up"] + run["bytes"]["down"]) / 1e6),
        per_round(lambda run: run["seconds"]["train"]),
    ]


def _marks(row: Row) -> str:
    if row.diverged:
        where = [(r["seed"], r["diverged_at"]["round"], r["diverged_at"]["client"]) for r in row.diverged]
        return f" (diverged: {', '.join(f'seed {s}, round {n}, client {c}' for s, n, c in where)})"
    unfinished = sum(not run["finished"] for run in row.runs)
    return f" ({unfinished} unfinished)" if unfinished else ""


def _reached(row: Row) -> str:
    if not row.reached:
        return "-"
    figure = Figure.of(row.reached)
    assert figure is not None
    missed = "" if figure.count == len(row.runs) else f" ({figure.count} of {len(row.runs)})"
    return figure.show(0) + missed


def speed_up(row: Row, base: Row) -> str:
    """Compare the mean rounds to the target over the same seeds.

    A run that never got there counts with all the rounds that it had, which makes the ratio a bound: ">" if only
    the base has such runs, "<" if only this row has, "~" if both have.
    """
    if row is base and row.reached:
        return "1.0×"
    seeds = {run["seed"] for run in row.runs} & {run["seed"] for run in base.runs}
    if not seeds or not row.reached:
        return "-"
    (slow, base_missed), (quick, own_missed) = (_mean_rounds(side, seeds) for side in (base, row))
    sign = {(False, False): "", (True, False): ">", (False, True): "<", (True, True): "~"}[base_missed, own_missed]
    return f"{sign}{slow / quick:.1f}×"


def _mean_rounds(row: Row, seeds: set[int]) -> tuple[float, bool]:
    found = [run["rounds_to"][str(row.target)] for run in row.runs if run["seed"] in seeds]
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
    alpha = f" (alpha {data['alpha']:g})" if data["partition"] in ("lda", "lda-prior", "quantity") else ""
    tested = runs[0].get("test_samples") or {"last": 0, "others": 0}  # older results do not say
    between = train["evaluate_every"] and train["rounds"] > train["evaluate_every"]
    some = ""
    if between and tested["last"] != tested["others"]:
        some = f"; tested on {tested['others']:,} samples, on all {tested['last']:,} in the last round"
    if data.get("holdout"):
        some += f"; tested on training samples: {data['holdout']:.0%} of them are held out, the test set is not used"
    unseen = f", {data['unseen']} unseen" if data.get("unseen") else ""
    options = "".join(f", {k} {_plain(v)}" for k, v in recipe["model"].items() if k != "name")
    return (
        f"{data['name']}{unseen}: {sum(runs[0]['split']['sizes']):,} samples, {count} clients{part}, "
        f"{data['partition']}{alpha}, {statistics.fmean(effective):.1f} effective classes each; "
        f"{recipe['model']['name']}{options}; "
        f"{train['rounds']} rounds of {train['local_steps']} steps of {train['batch_size']}, lr {train['lr']:g}, "
        f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}{some}"
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
    begun = [f"{r['label']}, seed {r['seed']}: {r['rounds']} rounds" for r in runs if not r["finished"]]
    return f"{finished} of {planned} runs are finished" + (f" ({'; '.join(begun)})" if begun else "")


def sentences(results: dict[str, Any]) -> list[str]:
    """Say in words how each stack compares with FedAvg (or with the first), paired by seed."""
    found = rows(results)
    if len(found) < 2:
        return []
    base = next((row for row in found if not row.runs[0]["methods"]), found[0])
    return [_sentence(row, base) for row in found if row is not base]


def _sentence(row: Row, base: Row) -> str:
    mine = {run["seed"]: run["accuracy"]["top5"] for run in row.runs}
    theirs = {run["seed"]: run["accuracy"]["top5"] for run in base.runs}
    gains = [mine[s] - theirs[s] for s in mine if s in theirs and None not in (mine[s], theirs[s])]
    gain = Figure.of(gains)
    if gain is None:
        return f"{row.label}: nothing to compare with {base.label} yet."
    side = "above" if gain.mean >= 0 else "below"
    size = Figure(abs(gain.mean), gain.spread, gain.count).show(1, 100)
    wins = f", ahead on {sum(g > 0 for g in gains)} of {gain.count} seeds" if gain.count > 1 else ""
    return f"{row.label}: {size} points {side} {base.label} in the 5 best rounds{wins}{_race(row, base)}."


def _race(row: Row, base: Row) -> str:
    """Say who reaches the target first."""
    target = f"{row.target * 100:g} %"
    if not row.reached:
        return f"; {target} is not reached in {row.rounds_planned} rounds"
    if not base.reached:
        return f"; {target} in {_reached(row)} rounds, which {base.label} does not reach in {base.rounds_planned}"
    return f"; {target} in {_reached(row)} rounds against {_reached(base)} ({speed_up(row, base)})"
