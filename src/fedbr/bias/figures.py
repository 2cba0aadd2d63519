"""The figures of a diagnosis: which ones are drawn, and their files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ..report.local_models import Rounds
from ..report.style import figure_style, image_bytes
from ..run.diagnosis import DiagnosisRecord
from ..util.files import write
from . import bar_figures, drift_figures, map_figures
from .diagnosis import View

if TYPE_CHECKING:  # matplotlib takes a second to import
    from matplotlib.figure import Figure


def draw(record: DiagnosisRecord, view: View, target: Path, rounds: Rounds) -> None:
    """Write the figures as PNG and SVG; one that would be empty is left out.

    Args:
        record: the numbers.
        view: what the figures show of one client.
        target: the folder.
        rounds: what was logged of the clients' models while they trained.
    """
    with figure_style(font_size=9, axes_titlesize=9, figure_titlesize=11, figure_dpi=130):
        for name, figure in _figures(record, view, rounds):
            write(target / f"{name}.png", image_bytes(figure, "png"))
            figure.set_layout_engine("none")  # the places stay; finding them takes most of the time
            write(target / f"{name}.svg", image_bytes(figure, "svg"))


def _figures(record: DiagnosisRecord, view: View, rounds: Rounds) -> Iterator[tuple[str, Figure]]:
    yield "predictions", bar_figures.predictions(record, view)
    if view.has_unseen:
        yield "classifier", bar_figures.classifier(record, view)
    if len(record.clients) > 1:
        yield "drift", drift_figures.drift(record)
    if rounds:
        yield "rounds", drift_figures.by_round(rounds)
        layers = drift_figures.by_layer(rounds)
        if layers is not None:
            yield "layers", layers
    if view.has_seen:
        maps = map_figures.project(view)
        if maps is not None:
            yield "features", map_figures.features(record, view, maps)
            yield "before-after", map_figures.before_after(record, view, maps)
