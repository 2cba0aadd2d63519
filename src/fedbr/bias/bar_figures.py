"""Figures of biased classifiers: what local models say of unseen classes, and what all clients'
models predict.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ..core.model import Output
from ..report.plots import shown
from .report import View, kind

if TYPE_CHECKING:  # matplotlib takes a second to import
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SEEN, UNSEEN = "#0072b2", "#d55e00"
TICKS = 20  # classes up to which each is named
GLOBAL = "\0global"  # a model beside those with the labels of methods

Numbers = Mapping[str, Any]


def classifier(numbers: Numbers, view: View) -> Figure:
    """Draw what the global model and every local one say of one sample of X2, and of all of them."""
    from matplotlib.figure import Figure

    sides = {GLOBAL: view.before, **view.after}
    figure = Figure(figsize=(2.5 * len(sides), 4.6), layout="constrained")
    grid = figure.subplots(2, len(sides), sharey="row", squeeze=False)
    truth = view.unseen[int(0.6 * len(view.unseen))]  # of classes 5 to 9 the paper's 8
    truth = (
        truth if bool((view.y == truth).any()) else int(view.y[of_classes(view, view.unseen)][0])
    )
    sample = int(torch.nonzero(view.y == truth)[0])
    for i, (label, out) in enumerate(sides.items()):
        one, many = grid[0][i], grid[1][i]
        bars(one, view, out.logits[sample].softmax(dim=0).tolist())
        own = of_client(numbers, label, view.client)
        bars(many, view, own["predicted_unseen"], mass(view, out))
        one.set_title("global model" if label == GLOBAL else shown(label), fontweight="bold")
        share, probability = own["share_present_unseen"], own["mass_present_unseen"]
        many.set_title(
            f"to seen classes: {100 * share:.0f} %\n({100 * probability:.0f} % of probability)"
        )
        many.set_xlabel("class")
    grid[0][0].set_ylabel(f"one sample of class {shown(view.classes[truth])}\nprobability")
    grid[1][0].set_ylabel("all of X2\nshare of predictions")
    _thumbnail(grid[0][0], view.x[sample])
    word = kind([one for one in numbers["clients"] if one["client"] == view.client])
    return headed(
        figure,
        f"Client {view.client}: output for classes that it has {word} seen (X2). Blue: seen classes, "
        f"orange: {word} seen; dots: mean probability",
    )


def predictions(numbers: Numbers, view: View) -> Figure:
    """Draw for every client and method which classes are predicted on balanced samples."""
    from matplotlib.figure import Figure

    sides, clients = alive(numbers), numbers["clients"]
    figure = Figure(
        figsize=(min(16, 2 + len(sides) * 2.6), 1.5 + 0.24 * len(clients)), layout="constrained"
    )
    grid = figure.subplots(1, len(sides), sharey=True, squeeze=False)[0]
    most = max(max(one["predicted"]) for side in sides for one in side["clients"])
    for axes, side in zip(grid, sides, strict=True):
        table = [one["predicted"] for one in side["clients"]]
        shades = axes.imshow(
            np.array(table), cmap="Greys", vmin=0, vmax=most, aspect="auto", interpolation="nearest"
        )
        for r, one in enumerate(clients):
            for c in one["seen"]:
                axes.add_patch(_frame(c, r))
        share = side["mean"]["share_present"]
        axes.set_title(f"{shown(side['label'])}\n{100 * share:.0f} % on seen classes")
        _name_classes(axes, view)
        axes.set_xlabel("predicted class")
        axes.set_yticks(range(len(clients)), [f"client {one['client']}" for one in clients])
    figure.colorbar(shades, ax=list(grid), label="share of predictions", pad=0.01)
    others = f" (the others: {word} seen)" if (word := kind(clients)) else ""
    return headed(
        figure,
        f"Predictions of local models on balanced test samples; framed: seen classes{others}",
    )


def headed(figure: Figure, text: str) -> Figure:
    """Write a title above a figure, in as many lines as it takes."""
    width = int(12 * figure.get_figwidth())
    figure.suptitle("\n".join(fill(line, width) for line in text.split("\n")))
    return figure


def bars(
    axes: Axes, view: View, shares: Sequence[float], dots: Sequence[float] | None = None
) -> None:
    """Draw shares of the classes."""
    colours = [SEEN if c in view.seen else UNSEEN for c in range(len(shares))]
    axes.bar(range(len(shares)), shares, color=colours, width=0.8)
    if dots is not None:
        axes.plot(range(len(dots)), dots, "o", color="black", markersize=3)
    _name_classes(axes, view)
    axes.spines[["top", "right"]].set_visible(False)


def of_classes(view: View, classes: Sequence[int]) -> Tensor:
    """Say which samples are of some classes."""
    return torch.isin(view.y, torch.tensor(list(classes), dtype=torch.long))


def mass(view: View, out: Output) -> list[float]:
    """Return the mean probability of each class on X2."""
    mean: list[float] = (
        out.logits[of_classes(view, view.unseen)].softmax(dim=1).mean(dim=0).tolist()
    )
    return mean


def alive(numbers: Numbers) -> list[dict[str, Any]]:
    """Return the sides that did not diverge."""
    return [side for side in numbers["methods"] if not side["diverged"]]


def of_client(numbers: Numbers, label: str, client: int) -> dict[str, Any]:
    """Return the numbers of one client's model, or of the global model seen with that client's
    classes.
    """
    sides = {GLOBAL: numbers["global"], **{side["label"]: side for side in numbers["methods"]}}
    found: dict[str, Any] = next(one for one in sides[label]["clients"] if one["client"] == client)
    return found


def _name_classes(axes: Axes, view: View) -> None:
    if len(view.classes) <= TICKS:
        long = max(map(len, view.classes)) > 3
        axes.set_xticks(
            range(len(view.classes)), list(map(shown, view.classes)), rotation=90 if long else 0
        )


def _thumbnail(axes: Axes, x: Tensor) -> None:
    """Show the sample in a corner, if it is an image."""
    if x.dim() != 3 or x.shape[0] not in (1, 3):
        return
    image = (x - x.min()) / (x.max() - x.min()).clamp(min=1e-9)
    inset = axes.inset_axes((0.02, 0.62, 0.36, 0.36))
    inset.imshow(image.permute(1, 2, 0).squeeze(-1).numpy(), cmap="gray_r")
    inset.set(xticks=[], yticks=[])


def _frame(column: int, row: int) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, edgecolor=SEEN, linewidth=1.2)
