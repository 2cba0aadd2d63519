"""The figures of a diagnosis: which there are, and their files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ..report.local_models import Rounds
from ..report.plots import saved, small_print
from ..util.files import write
from . import bar_figures as bias_bars
from . import drift_figures as bias_drift
from . import map_figures as bias_maps
from .bar_figures import Numbers, of_classes
from .report import View

if TYPE_CHECKING:  # matplotlib takes a second to import
    from matplotlib.figure import Figure


def draw(numbers: Numbers, view: View, target: Path, rounds: Rounds) -> None:
    """Write all figures that there is something to show in."""
    with small_print(font_size=9, axes_titlesize=9, figure_titlesize=11, figure_dpi=130):
        for name, figure in _figures(numbers, view, rounds):
            write(target / f"{name}.png", saved(figure, "png"))
            figure.set_layout_engine(
                "none"
            )  # all has its place by now, and finding it takes most of the time
            write(target / f"{name}.svg", saved(figure, "svg"))


def _figures(numbers: Numbers, view: View, rounds: Rounds) -> Iterator[tuple[str, Figure]]:
    yield "predictions", bias_bars.predictions(numbers, view)
    if bool(of_classes(view, view.unseen).any()):
        yield "classifier", bias_bars.classifier(numbers, view)
    if len(numbers["clients"]) > 1:
        yield "drift", bias_drift.drift(numbers)
    if rounds:
        yield "rounds", bias_drift.by_round(rounds)
        if (layers := bias_drift.by_layer(rounds)) is not None:
            yield "layers", layers
    if bool(of_classes(view, view.seen).any()) and (maps := bias_maps.project(view)) is not None:
        yield "features", bias_maps.features(numbers, view, maps)
        yield "before-after", bias_maps.before_after(numbers, view, maps)
