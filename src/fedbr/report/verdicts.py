"""Who is ahead, and how sure one can be: the headline, and the table of paired differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from .statistics import UNDECIDED, Paired, paired
from .tables import Figure, Row, base_of, number, ratio, rows

FIGURES = ("top5", "final", "worst_top5")


def headline(results: dict[str, Any]) -> list[str]:
    """Say in words what came out: the best variant against FedAvg (or the first), and how sure that
    is.
    """
    found = [row.finished for row in rows(results)]
    if not any(row.runs for row in found):
        return ["No run is finished yet."]
    base = found[[row.label for row in found].index(base_of(rows(results)).label)]
    gains = {
        row.label: pair for row in found if row is not base and (pair := _paired(row, base, "top5"))
    }
    if not gains:
        return [_alone(base, found)]
    best = max((row for row in found if row.label in gains), key=lambda row: gains[row.label].mean)
    ahead = gains[best.label].mean > 0 and gains[best.label].verdict != UNDECIDED
    race, gain = _race(_same_seeds(best, base), ahead), _gain(best, base)
    # Who is not ahead is not praised for being early.
    return [*((race, gain) if ahead else (gain, race)), *_rank(best, base, found, gains)]


def _alone(base: Row, found: Sequence[Row]) -> str:
    """Say what there is while nothing can be compared."""
    if _mean(base) is not None:
        return f"{_arrival(base)}, {_level(base)}. There is nothing finished to compare it with."
    fate = (
        "diverged on every seed"
        if base.diverged and len(base.diverged) == len(base.runs)
        else "is not finished yet"
    )
    others = [
        f"{_arrival(row)}, {_level(row)}"
        for row in found
        if row is not base and _mean(row) is not None
    ]
    return (
        ". ".join([f"{base.title}, with which the others would be compared, {fate}", *others]) + "."
    )


def _same_seeds(*sides: Row) -> list[Row]:
    """Leave the seeds that all sides have, if there are any."""
    common = set.intersection(*({run["seed"] for run in side.runs} for side in sides))
    return [
        replace(side, runs=[r for r in side.runs if r["seed"] in common] if common else side.runs)
        for side in sides
    ]


def pairs(results: dict[str, Any], key: str) -> list[tuple[Row, Paired | None]]:
    """Compare every variant with the base over the seeds on which both are finished."""
    found = rows(results)
    if not found:
        return []
    base = base_of(found)
    return [(row, _paired(row, base, key)) for row in found if row is not base]


def paired_table(results: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return the paired differences from the base, in points, as header and cells."""
    header = ["", "5 best rounds", "95 % interval", "ahead on", "verdict", "final", "worst client"]
    by_figure = zip(*(pairs(results, key) for key in FIGURES), strict=True)
    return header, [
        _cells(row, pair, *(other for _, other in others)) for (row, pair), *others in by_figure
    ]


def _cells(row: Row, pair: Paired | None, *others: Paired | None) -> list[str]:
    more = [
        f"{_points(other)} {_interval(other)}".removesuffix(" -") if other else "-"
        for other in others
    ]
    if pair is None:
        return [
            row.title,
            "-",
            "-",
            "-",
            _fate(row) if row.diverged else "no seed that both have finished",
            *more,
        ]
    ties = f", {pair.ties} level" if pair.ties else ""
    return [
        row.title,
        _points(pair),
        _interval(pair),
        f"{pair.wins} of {len(pair.seeds)}{ties}",
        _said(row, pair),
        *more,
    ]


def _said(row: Row, pair: Paired) -> str:
    """Give the verdict; who diverged is not ahead, whatever the other seeds say."""
    if row.diverged:
        return _fate(row)
    return "undecided" if pair.verdict == UNDECIDED else pair.verdict


def _fate(row: Row) -> str:
    return f"diverged on {len(row.diverged)} of {len(row.runs)}"


def left_out(results: dict[str, Any]) -> list[str]:
    """Say which seeds the paired table does without."""
    base = base_of(found) if (found := rows(results)) else None
    return [
        f"{row.label}: {_seeds(pair.left_out)} left out, as it or {base.label} has not finished there or diverged."
        for row, pair in pairs(results, "top5")
        if base and pair and pair.left_out
    ]


def _seeds(seeds: Sequence[int]) -> str:
    return f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))} {'are' if len(seeds) > 1 else 'is'}"


def _paired(row: Row, base: Row, key: str) -> Paired | None:
    """Pair what is finished; a seed that has only begun, or diverged, counts as one that is
    lacking.
    """
    done = [{run["seed"] for run in side.runs if run["finished"]} for side in (row, base)]
    both = [
        {s: v if s in has else None for s, v in x.by_seed(key).items()}
        for x, has in zip((row, base), done, strict=True)
    ]
    return paired(*both)


def _points(pair: Paired) -> str:
    return f"{_tenths(pair.mean):+.1f}".replace("-", "−")


def _bounds(interval: tuple[float, float]) -> tuple[str, str]:
    low, high = (f"{_tenths(bound):.1f}".replace("-", "−") for bound in interval)
    return low, high


def _tenths(share: float) -> float:
    """Return tenths of a point; a zero has no sign."""
    return round(100 * share, 1) + 0.0


def _interval(pair: Paired) -> str:
    return f"[{', '.join(_bounds(pair.interval))}]" if pair.interval else "-"


def _mean(row: Row) -> float | None:
    figure = row.figure(lambda run: run["accuracy"]["top5"])
    return figure.mean if figure else None


def _level(row: Row) -> str:
    figure = row.figure(lambda run: run["accuracy"]["top5"])
    return f"{figure.show(1, 100)} % in its 5 best rounds" if figure else "never tested"


def _arrival(row: Row) -> str:
    """Say when a variant reaches the target."""
    target, figure = f"{row.target * 100:g} %", Figure.of(row.reached)
    if figure is None:
        return f"{row.title} does not reach {target} in {number(row.rounds_planned, 'round')}"
    some = "" if figure.count == len(row.runs) else f" on {figure.count} of {len(row.runs)} seeds"
    return f"{row.title} reaches {target} in {figure.show(0)} rounds{some}"


def _race(sides: Sequence[Row], ahead: bool) -> str:
    """Say who reaches the target when and, if one is ahead in accuracy too, by how much earlier."""
    row, base = sides
    if not row.reached and not base.reached:
        planned = number(row.rounds_planned, "round")
        return f"Neither {row.title} nor {base.title} reaches {row.target * 100:g} % in {planned}."
    figure = Figure.of(base.reached)
    if figure is None:
        return f"{_arrival(row)}; {base.title} does not in {base.rounds_planned}."
    some = "" if figure.count == len(base.runs) else f" on {figure.count} of {len(base.runs)} seeds"
    return f"{_arrival(row)}, {base.title} in {figure.show(0)}{some}{_fewer(ratio(row, base)) if ahead else ''}."


def _fewer(found: tuple[str, float] | None) -> str:
    if found is None:
        return ""
    sign, value = found
    if sign == "<":  # a bound that only says how little is gained
        return (
            f": at most {value:.1f}× fewer" if value > 1 else f": at least {1 / value:.1f}× as many"
        )
    words = {"": "", ">": "more than ", "~": "about "}[sign]
    if f"{max(value, 1 / value):.1f}" == "1.0":
        return ""  # as many
    if value >= 1:
        return f", {words}{value:.1f}× fewer"
    return "" if sign == ">" else f", {words}{1 / value:.1f}× as many"


def _gain(row: Row, base: Row) -> str:
    """Say how far a variant is above or below the base, and whether that could be chance."""
    pair = _paired(row, base, "top5")
    if pair is None:
        return f"There is no seed on which both {row.title} and {base.title} are finished."
    size = f"{abs(100 * pair.mean):.1f}"
    where = (
        f"{size} points {'above' if pair.mean > 0 else 'below'}" if float(size) else "level with"
    )
    said = f"In its 5 best rounds {row.title} is {where} {base.title}"
    if pair.interval is None:
        return f"{said}, on one seed: that gives no interval."
    low, high = _bounds(pair.interval)
    doubt = f", {UNDECIDED}" if pair.verdict == UNDECIDED else ""
    return f"{said}{doubt} (95 % interval {low} to {high}; ahead on {pair.wins} of {len(pair.seeds)} seeds)."


def _rank(best: Row, base: Row, found: Sequence[Row], gains: Mapping[str, Paired]) -> list[str]:
    """With more than two variants, say why this one is in the headline and who cannot be told from
    it.
    """
    others = [row for row in found if row is not best and row is not base]
    if not others:
        return []
    whole = len({pair.seeds for pair in gains.values()}) == 1 and len(gains) == len(found) - 1
    if not whole:
        said = "is the furthest above" if gains[best.label].mean > 0 else "is the least below"
        lost = [row.title for row in found if row.diverged]
        why = f"{' and '.join(lost)} diverged" if lost else "not all variants have the same seeds"
        return [f"{best.title} {said} {base.title} of what can be compared; {why}."]
    if gains[best.label].mean <= 0:
        level = sum(pair.mean == 0 for pair in gains.values())
        some = "all" if level == len(gains) else "one of them" if level == 1 else f"{level} of them"
        return [
            f"{base.title} has the highest mean of {len(found)} variants{f'; {some} level with it' if level else ''}."
        ]
    against = [pair for row in others if (pair := _paired(row, best, "top5"))]
    close = sum(pair.verdict == UNDECIDED for pair in against)
    some = "the other" if len(others) == 1 else f"{close} of the other {len(others)}"
    doubt = f"; {some} cannot be told from it on these seeds" if close else ""
    return [f"{best.title} has the highest mean of {len(found)} variants{doubt}."]
