"""Figures of biased features: those of all models on one t-SNE map."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from ..core.rng import stream
from ..report.plots import shown
from .bar_figures import GLOBAL, TICKS, Numbers, bars, headed, mass, of_classes, of_client
from .report import View

if TYPE_CHECKING:  # matplotlib takes a second to import
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

POINTS = 800  # on a map: t-SNE takes some seconds for as many
GREY = "0.85"
AVERAGED = "\0averaged"  # as GLOBAL


class Maps(NamedTuple):
    """Where the features of some samples lie under each model."""

    y: NDArray[np.int64]
    places: Mapping[str, NDArray[np.float64]]

    def __str__(self) -> str:
        return f"one t-SNE map of {len(self.y)} test samples under {len(self.places)} models, same axes"


class Panel(NamedTuple):
    """Features of some classes under one model; behind them, in grey, those of the seen classes
    under another.
    """

    name: str
    model: str
    classes: Sequence[int]
    behind: str | None


def features(numbers: Numbers, view: View, maps: Maps) -> Figure:
    """Draw the paper's panels for the first method: F_g(X1), F_i(X1), F_i(X2), and the averaged
    model's.
    """
    from matplotlib.figure import Figure

    label = next(iter(view.after))
    own = of_client(numbers, label, view.client)
    panels, everything = _panels(view, label), sorted((*view.seen, *view.unseen))
    words = [
        "seen classes, global model",
        f"the same samples, local model: shift {own['shift_seen']:.2f}\ngrey: where the global model has them",
    ]
    if len(panels) > 2:
        words.append(f"unseen classes, local model; grey: the seen ones{_apart(own)}")
    if AVERAGED in maps.places:
        panels.append(
            Panel(
                "$\\bar{F}(X_1, X_2)$" if view.unseen else "$\\bar{F}(X_1)$",
                AVERAGED,
                everything,
                None,
            )
        )
        accuracy = next(
            side["accuracy_aggregated"] for side in numbers["methods"] if side["label"] == label
        )
        words.append(f"all classes, mean of the clients' models:\n{100 * accuracy:.0f} % right")
    figure = Figure(figsize=(3.4 * len(panels), 4.2), layout="constrained")
    for axes, panel, text in zip(figure.subplots(1, len(panels)), panels, words, strict=True):
        _scatter(axes, view, maps, panel)
        axes.set_title(f"{panel.name}\n{text}")
    _legend(figure, view, everything)
    return headed(
        figure, f"Client {view.client} before and after local training with {shown(label)}; {maps}"
    )


def before_after(numbers: Numbers, view: View, maps: Maps) -> Figure:
    """Draw a row for each method: the panels, and what the classifier takes X2 for."""
    from matplotlib.figure import Figure

    labels = list(view.after)
    columns = 4 if _has_unseen(view) else 2
    figure = Figure(figsize=(3.1 * columns, 0.8 + 2.55 * len(labels)), layout="constrained")
    grid = figure.subplots(
        len(labels), columns, squeeze=False, width_ratios=(1, 1, 1, 1.15)[:columns]
    )
    for row, label in zip(grid, labels, strict=True):
        own = of_client(numbers, label, view.client)
        shifts = ("", own["shift_seen"], own["shift_unseen"])
        for axes, panel, shift in zip(row, _panels(view, label), shifts, strict=False):
            _scatter(axes, view, maps, panel)
            axes.set_title(panel.name + (f": shift {shift:.3f}" if shift else ""))
        row[0].set_ylabel(shown(label), fontsize=12, fontweight="bold")
        if columns == 4:
            row[3].sharey(grid[0, 3])
            bars(row[3], view, own["predicted_unseen"], mass(view, view.after[label]))
            row[3].set_title(
                f"X2 taken for seen classes: {100 * own['share_present_unseen']:.0f} %"
            )
            row[2].set_title(row[2].get_title() + _apart(own))
    _legend(figure, view, sorted((*view.seen, *view.unseen)))
    third = ", local features of $X_1$ (third)" if columns == 4 else ""
    return headed(
        figure,
        f"Client {view.client} after local training from the same global weights; {maps}.\n"
        f"Grey: global features of $X_1$ (second column){third}",
    )


def project(view: View) -> Maps | None:
    """Project the features of all models, scaled to length 1, with one t-SNE; warn and give up if
    they collapsed.
    """
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]  # no type information is published

    sides = {GLOBAL: view.before, **view.after} | (
        {} if view.averaged is None else {AVERAGED: view.averaged}
    )
    picked = _picked(view, POINTS // len(sides))
    rows = torch.cat([F.normalize(out.features[picked].double(), dim=1) for out in sides.values()])
    if (
        rows.shape[1] < 2 or float(rows.std(dim=0).max()) < 1e-6
    ):  # t-SNE would crash, and take the process with it
        warnings.warn(
            "all samples have the same features: there are no maps of them",
            RuntimeWarning,
            stacklevel=2,
        )
        return None
    seed = int(stream(view.seed, "diagnose", "t-SNE").integers(2**31))
    tsne = TSNE(2, perplexity=min(30.0, (len(rows) - 1) / 3), init="pca", random_state=seed)
    with threadpool_limits(
        1
    ):  # on busy cores several threads spend their time waiting for each other
        flat = np.asarray(tsne.fit_transform(rows.numpy()), dtype=np.float64)
    return Maps(view.y[picked].numpy(), dict(zip(sides, np.split(flat, len(sides)), strict=True)))


def _picked(view: View, most: int) -> Tensor:
    """Return which samples go on the map: every class in turn, until there are enough."""
    rank = torch.zeros(len(view.y), dtype=torch.long)
    for c in set(view.y.tolist()):
        mine = torch.nonzero(view.y == c).flatten()
        rank[mine] = torch.arange(len(mine))
    return torch.argsort(rank, stable=True)[:most].sort().values


def _apart(own: Mapping[str, Any]) -> str:
    share = own["centroid_groups"]
    return "" if share is None else f"\n$X_1$ | $X_2$ by nearest mean: {100 * share:.0f} %"


def _has_unseen(view: View) -> bool:
    return bool(of_classes(view, view.unseen).any())


def _panels(view: View, label: str) -> list[Panel]:
    local = f"$F_{{{view.client}}}"
    panels = [
        Panel("$F_g(X_1)$", GLOBAL, view.seen, None),
        Panel(f"{local}(X_1)$", label, view.seen, GLOBAL),
        Panel(f"{local}(X_2)$", label, view.unseen, label),
    ]
    return panels if _has_unseen(view) else panels[:2]


def _scatter(axes: Axes, view: View, maps: Maps, panel: Panel) -> None:
    if panel.behind is not None:
        points = maps.places[panel.behind][np.isin(maps.y, view.seen)]
        axes.scatter(points[:, 0], points[:, 1], s=11, color=GREY, linewidths=0)
    for c in panel.classes:
        mine = maps.places[panel.model][maps.y == c]
        axes.scatter(
            mine[:, 0], mine[:, 1], s=11, color=_colour(c, len(view.classes)), linewidths=0
        )
    everything = np.concatenate(list(maps.places.values()))
    low, high = everything.min(axis=0), everything.max(axis=0)
    (left, bottom), (right, top) = low - 0.04 * (high - low), high + 0.04 * (high - low)
    axes.set(xticks=[], yticks=[], xlim=(left, right), ylim=(bottom, top))
    axes.spines[:].set_color("0.7")


def _legend(figure: Figure, view: View, classes: Sequence[int]) -> None:
    from matplotlib.lines import Line2D

    if len(classes) > TICKS:
        return
    handles = [
        Line2D(
            [],
            [],
            marker="o",
            linestyle="",
            color=_colour(c, len(view.classes)),
            label=shown(view.classes[c]),
        )
        for c in classes
    ]
    figure.legend(
        handles=handles, loc="outside lower center", ncols=10, frameon=False, title="class"
    )


def _colour(c: int, size: int) -> Any:
    from matplotlib import colormaps

    return colormaps["tab10"](c) if size <= 10 else colormaps["turbo"](c / (size - 1))
