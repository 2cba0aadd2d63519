"""The columns of the paper's tables: how each is made of a run of ours, and how it is shown."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ..metrics.base import mean_of_best
from ..recipe.schema import Recipe
from ..run.results import RunResult
from ..util.estimate import Estimate

BySeed = Mapping[int, float | None]  # None: the run diverged, or has no such value

# A value of a run, given the baseline's run of the same seed and the recipe.
Value = Callable[[RunResult, RunResult | None, Recipe], float | None]


@dataclass(frozen=True)
class Column:
    """A value of a run: its title with the targets in it, how it is made, how it is shown."""

    title: str
    value: Value
    digits: int = 1
    is_cost: bool = False  # less is better, and level within a share instead of points
    is_rounds: bool = False  # less is better

    @property
    def lower_is_better(self) -> bool:
        """Whether the variant with less of it is ahead."""
        return self.is_cost or self.is_rounds

    def title_at(self, targets: Sequence[float]) -> str:
        """Write the title with the targets of a recipe.

        >>> COLUMNS["rounds_to"].title_at([0.4])
        'rounds to 40 %'
        """
        percent = [100 * target for target in (*targets, 0, 0)]  # as many as a title may name
        return self.title.format(*percent)

    def show(self, values: BySeed) -> str:
        """Write the mean over seeds, and over how many it is if some have no value.

        >>> COLUMNS["top5"].show({0: 51.0, 1: 53.0, 2: None})
        '52.0 ± 1.4 (2 of 3)'
        """
        estimate = Estimate.of(values.values())
        if estimate is None:
            return "-"
        shown = estimate.show(self.digits)
        if estimate.count == len(values):
            return shown
        return f"{shown} ({estimate.count} of {len(values)})"


def _percent(value: float | None) -> float | None:
    return None if value is None else 100 * value


def _top5(run: RunResult, base: RunResult | None, recipe: Recipe) -> float | None:
    return _percent(run.accuracy.top5)


def _worst_top5(run: RunResult, base: RunResult | None, recipe: Recipe) -> float | None:
    return _percent(run.accuracy.worst_top5)


def _local_top5(run: RunResult, base: RunResult | None, recipe: Recipe) -> float | None:
    biases = [record.bias for record in run.rounds if record.bias is not None]
    return _percent(mean_of_best([bias.accuracy_local for bias in biases]))


def _rounds_to(place: int) -> Value:
    """Return how rounds to one of the targets are counted."""

    def rounds_to(run: RunResult, base: RunResult | None, recipe: Recipe) -> float | None:
        return run.rounds_to[str(recipe.metrics.targets[place])]

    return rounds_to


def _rounds_to_fedavg(run: RunResult, base: RunResult | None, recipe: Recipe) -> float | None:
    if base is None or not base.rounds or base.rounds[-1].accuracy is None:
        return None
    goal = base.rounds[-1].accuracy
    for record in run.rounds:
        if record.accuracy is not None and record.accuracy >= goal:
            return record.round
    return None


def _worst_rounds_to_fedavg(run: RunResult, base: RunResult | None, recipe: Recipe) -> float | None:
    if base is None or not base.rounds or base.rounds[-1].accuracy_worst is None:
        return None
    goal = base.rounds[-1].accuracy_worst
    for record in run.rounds:
        if record.accuracy_worst is not None and record.accuracy_worst >= goal:
            return record.round
    return None


def _million_sent(run: RunResult, base: RunResult | None, recipe: Recipe) -> float | None:
    """Return the million numbers that a client sends in a round, after what is sent only once."""
    if not run.rounds:
        return None
    last = run.rounds[-1]
    return last.bytes_up / 4e6 / len(last.clients)


def _step_seconds(run: RunResult, base: RunResult | None, recipe: Recipe) -> float | None:
    """Return the seconds of a local step of all clients."""
    if not run.rounds:
        return None
    round_seconds = statistics.median(record.seconds_train for record in run.rounds)
    return round_seconds / recipe.train.local_steps


COLUMNS = {
    "top5": Column("5 best rounds %", _top5),
    "worst_top5": Column("worst client %", _worst_top5),
    "local_top5": Column("local models %", _local_top5),
    "rounds_to": Column("rounds to {0:g} %", _rounds_to(0), 0, is_rounds=True),
    "rounds_to_second": Column("rounds to {1:g} %", _rounds_to(-1), 0, is_rounds=True),
    "rounds_to_fedavg": Column("rounds to FedAvg's last", _rounds_to_fedavg, 0, is_rounds=True),
    "worst_rounds_to_fedavg": Column(
        "rounds to FedAvg's last worst", _worst_rounds_to_fedavg, 0, is_rounds=True
    ),
    "parameters": Column("million sent", _million_sent, 3, is_cost=True),
    "step_seconds": Column("s/step", _step_seconds, 4, is_cost=True),
}
