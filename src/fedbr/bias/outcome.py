"""What one variant does to the clients' models: they train, and their models are measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..backends.pool import WorkerPool
from ..core.method import trained
from ..core.model import Output
from ..core.setup import Setup
from ..core.wire import State
from ..metrics.bias import accuracy
from ..metrics.local import Classes, compare_updates
from ..run.diagnosis import Measures, Models, VariantBias
from ..util.errors import Diverged
from ..util.tables import TomlTable
from .case import Case
from .measures import guesses, measure_all
from .sample import Probe
from .training import LocalRound, outputs, play_from


@dataclass(frozen=True)
class Outcome:
    """What a variant has done to the clients' models."""

    bias: VariantBias
    local: Sequence[Output] = ()  # what each client's model makes of the samples
    averaged: Output | None = None  # what the aggregated model makes of them


@dataclass(frozen=True)
class Study:
    """Everything that is the same for all variants of a case."""

    case: Case
    classes: Mapping[int, Classes]  # the clients that train, and the classes of each
    probe: Probe
    start: State  # the weights that clients begin with
    before: Output  # what the global model makes of the samples
    pool: WorkerPool | None

    def play(self, label: str, setup: Setup) -> Outcome:
        """Let the clients train with the methods of a variant, and measure their models.

        Args:
            label: the variant's.
            setup: its methods and the model.

        Returns:
            The measures; only the reason if it diverged.
        """
        case, clients = self.case, list(self.classes)
        try:
            played = play_from(self.start, setup, case.federation, clients, case.round, self.pool)
            local, averaged = self._apply(setup, played)
        except Diverged as error:
            no_models = Models(Measures(), [])
            return Outcome(VariantBias(label, _methods_of(setup), str(error), no_models, None))
        updates = compare_updates(self.start, played.local, trained(setup.model))
        bias = VariantBias(
            label,
            _methods_of(setup),
            diverged=None,
            models=measure_all(self.classes, self.probe, self.before, local),
            accuracy_aggregated=averaged and accuracy(guesses(self.probe, averaged)),
            drift=updates.whole,
            layers=updates.layers,
        )
        return Outcome(bias, local, averaged)

    def _apply(self, setup: Setup, played: LocalRound) -> tuple[list[Output], Output | None]:
        """Return what each client's model makes of the samples, and what their average does.

        Raises:
            Diverged: that is not finite.
        """
        local = outputs(setup, played.local, self.probe.x)
        averaged = None
        if played.aggregated is not None:
            (averaged,) = outputs(setup, [played.aggregated], self.probe.x)
        clients = list(self.classes)
        to_check = list(zip(clients, local, strict=True))
        if averaged is not None:
            to_check.append((clients[0], averaged))
        for client, output in to_check:
            if not is_finite(output):
                what = "the output of its model, or of the average, is not finite"
                raise Diverged(self.case.round, client, what)
        return local, averaged


def is_finite(output: Output) -> bool:
    """Say whether features and logits are numbers, all of them."""
    return all(bool(tensor.isfinite().all()) for tensor in output)


def _methods_of(setup: Setup) -> list[TomlTable]:
    """Write the methods of a variant as a recipe does."""
    return [
        {"name": method.name, **method.model_dump(exclude_none=True)} for method in setup.methods
    ]
