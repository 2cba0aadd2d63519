"""Figures of biased classifiers: what local models predict, above all for unseen classes."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ..core.model import Output
from ..report.diagnosis import rarity
from ..report.style import escape_label
from ..run.diagnosis import ClientModel, DiagnosisRecord
from .diagnosis import View

if TYPE_CHECKING:  # matplotlib takes a second to import
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SEEN, UNSEEN = "#0072b2", "#d55e00"
MAX_NAMED = 20  # with more classes than these, none is named
GLOBAL = "\0global"  # stands for the global model, where others have the labels of variants


def classifier(record: DiagnosisRecord, view: View) -> Figure:
    """Draw what the global model and the local ones predict for classes that a client has not seen.

    Above: probabilities for one sample. Below: predictions for all samples of X2.
    """
    from matplotlib.figure import Figure

    models = {GLOBAL: view.before, **view.after}
    figure = Figure(figsize=(2.5 * len(models), 4.6), layout="constrained")
    grid = figure.subplots(2, len(models), sharey="row", squeeze=False)
    truth, sample = _choose_unseen_sample(view)
    for (upper, lower), (label, output) in zip(grid.T, models.items(), strict=True):
        draw_shares(upper, view, output.logits[sample].softmax(dim=0).tolist())
        upper.set_title("global model" if label == GLOBAL else escape_label(label), weight="bold")
        draw_unseen(lower, record, view, label, output)
        measures = model_of(record, label, view.client).measures
        lower.set_title(
            f"to seen classes: {_percent(measures.share_present_unseen)}\n"
            f"({_percent(measures.mass_present_unseen)} of probability)"
        )
        lower.set_xlabel("class")
    name = escape_label(view.classes[truth])
    grid[0, 0].set_ylabel(f"one sample of class {name}\nprobability")
    grid[1, 0].set_ylabel("all of X2\nshare of predictions")
    _draw_thumbnail(grid[0, 0], view.x[sample])
    word = rarity([client for client in record.clients if client.client == view.client])
    title = (
        f"Client {view.client}: output for classes that it has {word} seen (X2). Blue: seen "
        f"classes, orange: {word} seen; dots: mean probability"
    )
    return with_title(figure, title)


def _choose_unseen_sample(view: View) -> tuple[int, int]:
    """Return an unseen class, and the position of its first sample."""
    chosen = view.unseen[int(0.6 * len(view.unseen))]  # of classes 5 to 9 the paper's 8
    if not bool((view.y == chosen).any()):
        chosen = int(view.y[view.is_of(view.unseen)][0])
    return chosen, int(torch.nonzero(view.y == chosen)[0])


def predictions(record: DiagnosisRecord, view: View) -> Figure:
    """Draw for every client and variant which classes are predicted on balanced samples."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    variants, clients = record.trained, record.clients
    width, height = min(16, 2 + len(variants) * 2.6), 1.5 + 0.24 * len(clients)
    figure = Figure(figsize=(width, height), layout="constrained")
    grid = figure.subplots(1, len(variants), sharey=True, squeeze=False)[0]
    tables = []
    for variant in variants:
        tables.append(np.array([model.predicted for model in variant.models.clients]))
    largest = max(table.max() for table in tables)
    for axes, variant, table in zip(grid, variants, tables, strict=True):
        shades = axes.imshow(
            table, cmap="Greys", vmin=0, vmax=largest, aspect="auto", interpolation="nearest"
        )
        for row, client in enumerate(clients):
            for c in client.seen:
                corner = c - 0.5, row - 0.5
                frame = Rectangle(corner, 1, 1, fill=False, edgecolor=SEEN, linewidth=1.2)
                axes.add_patch(frame)
        share = _percent(variant.models.mean.share_present)
        axes.set_title(f"{escape_label(variant.label)}\n{share} on seen classes")
        _name_classes(axes, view)
        axes.set_xlabel("predicted class")
        axes.set_yticks(range(len(clients)), [f"client {client.client}" for client in clients])
    figure.colorbar(shades, ax=list(grid), label="share of predictions", pad=0.01)
    word = rarity(clients)
    others = f" (the others: {word} seen)" if word else ""
    title = f"Predictions of local models on balanced test samples; framed: seen classes{others}"
    return with_title(figure, title)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.0f} %"


def with_title(figure: Figure, text: str) -> Figure:
    """Write a title above a figure, in as many lines as it takes."""
    width = int(12 * figure.get_figwidth())
    figure.suptitle("\n".join(fill(line, width) for line in text.split("\n")))
    return figure


def draw_unseen(
    axes: Axes, record: DiagnosisRecord, view: View, label: str, output: Output
) -> None:
    """Draw what a model takes samples of unseen classes for.

    Args:
        axes: on which to draw.
        record: the numbers.
        view: of the client.
        label: the variant, or GLOBAL.
        output: what its model makes of the samples.
    """
    shares = model_of(record, label, view.client).predicted_unseen or []
    probabilities = output.logits[view.is_of(view.unseen)].softmax(dim=1).mean(dim=0)
    draw_shares(axes, view, shares, probabilities.tolist())


def draw_shares(
    axes: Axes, view: View, shares: Sequence[float], dots: Sequence[float] = ()
) -> None:
    """Draw the shares of classes as bars.

    Args:
        axes: on which to draw.
        view: says which classes are seen ones.
        shares: of each class.
        dots: other shares of each class, drawn as dots.
    """
    colours = [SEEN if c in view.seen else UNSEEN for c in range(len(shares))]
    axes.bar(range(len(shares)), shares, color=colours, width=0.8)
    if dots:
        axes.plot(range(len(dots)), dots, "o", color="black", markersize=3)
    _name_classes(axes, view)
    axes.spines[["top", "right"]].set_visible(False)


def model_of(record: DiagnosisRecord, label: str, client: int) -> ClientModel:
    """Return the measures of one client's model, or of the global model.

    Args:
        record: the numbers.
        label: the variant; GLOBAL: the global model, measured with that client's classes.
        client: its number.
    """
    models = record.global_model if label == GLOBAL else record.variant(label).models
    return models.of(client)


def _name_classes(axes: Axes, view: View) -> None:
    if len(view.classes) > MAX_NAMED:
        return
    names = [escape_label(name) for name in view.classes]
    long = max(map(len, view.classes)) > 3
    axes.set_xticks(range(len(names)), names, rotation=90 if long else 0)


def _draw_thumbnail(axes: Axes, x: Tensor) -> None:
    """Show the sample in a corner, if it is an image."""
    if x.dim() != 3 or x.shape[0] not in (1, 3):
        return
    image = (x - x.min()) / (x.max() - x.min()).clamp(min=1e-9)
    inset = axes.inset_axes((0.02, 0.62, 0.36, 0.36))
    inset.imshow(image.permute(1, 2, 0).squeeze(-1).numpy(), cmap="gray_r")
    inset.set(xticks=[], yticks=[])
