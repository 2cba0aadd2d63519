"""Figures of biased features: those of all models on one t-SNE map."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from ..core.rng import stream
from ..report.style import escape_label
from ..run.diagnosis import DiagnosisRecord, Measures
from .bar_figures import GLOBAL, MAX_NAMED, draw_unseen, model_of, with_title
from .diagnosis import View

if TYPE_CHECKING:  # matplotlib takes a second to import
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_POINTS = 800  # on a map: t-SNE takes some seconds for as many
GREY = "0.85"
AVERAGED = "\0averaged"  # stands for the aggregated model, as GLOBAL for the global one


@dataclass(frozen=True)
class Maps:
    """Where the features of some samples lie under each model."""

    y: NDArray[np.int64]
    places: Mapping[str, NDArray[np.float64]]  # model -> [samples, 2]

    def __str__(self) -> str:
        """Say what it is a map of, as titles do."""
        samples, models = len(self.y), len(self.places)
        return f"one t-SNE map of {samples} test samples under {models} models, same axes"


@dataclass(frozen=True)
class Panel:
    """Features of some classes under one model."""

    name: str
    model: str
    classes: Sequence[int]
    behind: str | None = None  # the model whose features of the seen classes lie there in grey


def features(record: DiagnosisRecord, view: View, maps: Maps) -> Figure:
    """Draw the paper's panels for the first variant.

    They show F_g(X1), F_i(X1), F_i(X2), and the features of the averaged model.
    """
    from matplotlib.figure import Figure

    label = next(iter(view.after))
    measures = model_of(record, label, view.client).measures
    classes = sorted((*view.seen, *view.unseen))
    panels = _make_panels(view, label)
    texts = [
        "seen classes, global model",
        f"the same samples, local model: shift {measures.shift_seen:.2f}\n"
        "grey: where the global model has them",
    ]
    if view.has_unseen:
        texts.append(
            f"unseen classes, local model; grey: the seen ones{_describe_separation(measures)}"
        )
    if AVERAGED in maps.places:
        samples = "X_1, X_2" if view.unseen else "X_1"
        panels.append(Panel(f"$\\bar{{F}}({samples})$", AVERAGED, classes))
        accuracy = record.variant(label).accuracy_aggregated or 0.0
        texts.append(f"all classes, mean of the clients' models:\n{100 * accuracy:.0f} % right")
    figure = Figure(figsize=(3.4 * len(panels), 4.2), layout="constrained")
    grid = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, panel, text in zip(grid, panels, texts, strict=True):
        _scatter(axes, view, maps, panel)
        axes.set_title(f"{panel.name}\n{text}")
    _legend(figure, view, classes)
    variant = escape_label(label)
    title = f"Client {view.client} before and after local training with {variant}; {maps}"
    return with_title(figure, title)


def before_after(record: DiagnosisRecord, view: View, maps: Maps) -> Figure:
    """Draw a row for each variant: the panels, and what the classifier takes X2 for."""
    from matplotlib.figure import Figure

    labels = list(view.after)
    widths = [1, 1, 1, 1.15] if view.has_unseen else [1, 1]
    size = (3.1 * len(widths), 0.8 + 2.55 * len(labels))
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(len(labels), len(widths), squeeze=False, width_ratios=widths)
    for row, label in zip(grid, labels, strict=True):
        measures = model_of(record, label, view.client).measures
        shifts = None, measures.shift_seen, measures.shift_unseen
        for axes, panel, shift in zip(row, _make_panels(view, label), shifts, strict=False):
            _scatter(axes, view, maps, panel)
            axes.set_title(f"{panel.name}: shift {shift:.3f}" if shift else panel.name)
        row[0].set_ylabel(escape_label(label), fontsize=12, fontweight="bold")
        if view.has_unseen:
            row[2].set_title(row[2].get_title() + _describe_separation(measures))
            row[3].sharey(grid[0, 3])
            draw_unseen(row[3], record, view, label, view.after[label])
            share = measures.share_present_unseen or 0.0
            row[3].set_title(f"X2 taken for seen classes: {100 * share:.0f} %")
    _legend(figure, view, sorted((*view.seen, *view.unseen)))
    third = ", local features of $X_1$ (third)" if view.has_unseen else ""
    title = (
        f"Client {view.client} after local training from the same global weights; {maps}.\n"
        f"Grey: global features of $X_1$ (second column){third}"
    )
    return with_title(figure, title)


def project(view: View) -> Maps | None:
    """Project the features of all models, scaled to length 1, with one t-SNE.

    Returns:
        The maps; None, with a warning, if all samples have the same features.
    """
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    models = {GLOBAL: view.before, **view.after}
    if view.averaged is not None:
        models[AVERAGED] = view.averaged
    chosen = _choose_samples(view, MAX_POINTS // len(models))
    scaled = []
    for output in models.values():
        scaled.append(F.normalize(output.features[chosen].double(), dim=1))
    rows = torch.cat(scaled)
    constant = rows.shape[1] < 2 or float(rows.std(dim=0).max()) < 1e-6
    if constant:  # t-SNE would crash, and take the process with it
        warnings.warn(
            "all samples have the same features: there are no maps of them",
            RuntimeWarning,
            stacklevel=2,
        )
        return None
    seed = int(stream(view.seed, "diagnose", "t-SNE").integers(2**31))
    tsne = TSNE(2, perplexity=min(30.0, (len(rows) - 1) / 3), init="pca", random_state=seed)
    with threadpool_limits(1):  # on busy cores several threads wait for each other
        points = np.asarray(tsne.fit_transform(rows.numpy()), dtype=np.float64)
    places = dict(zip(models, np.split(points, len(models)), strict=True))
    return Maps(view.y[chosen].numpy(), places)


def _choose_samples(view: View, most: int) -> Tensor:
    """Choose the samples of the map: one of every class in turn, until there are enough."""
    rank = torch.zeros(len(view.y), dtype=torch.long)
    for c in set(view.y.tolist()):
        places = torch.nonzero(view.y == c).flatten()
        rank[places] = torch.arange(len(places))
    return torch.argsort(rank, stable=True)[:most].sort().values


def _describe_separation(measures: Measures) -> str:
    share = measures.centroid_groups
    return "" if share is None else f"\n$X_1$ | $X_2$ by nearest mean: {100 * share:.0f} %"


def _make_panels(view: View, label: str) -> list[Panel]:
    local = f"$F_{{{view.client}}}"
    panels = [
        Panel("$F_g(X_1)$", GLOBAL, view.seen),
        Panel(f"{local}(X_1)$", label, view.seen, behind=GLOBAL),
    ]
    if view.has_unseen:
        panels.append(Panel(f"{local}(X_2)$", label, view.unseen, behind=label))
    return panels


def _scatter(axes: Axes, view: View, maps: Maps, panel: Panel) -> None:
    """Draw a panel; the axes of all panels have the same limits."""
    if panel.behind is not None:
        points = maps.places[panel.behind][np.isin(maps.y, view.seen)]
        axes.scatter(points[:, 0], points[:, 1], s=11, color=GREY, linewidths=0)
    for c in panel.classes:
        points = maps.places[panel.model][maps.y == c]
        colour = _colour(c, len(view.classes))
        axes.scatter(points[:, 0], points[:, 1], s=11, color=colour, linewidths=0)
    everything = np.concatenate(list(maps.places.values()))
    low, high = everything.min(axis=0), everything.max(axis=0)
    margin = 0.04 * (high - low)
    (left, bottom), (right, top) = low - margin, high + margin
    axes.set(xticks=[], yticks=[], xlim=(left, right), ylim=(bottom, top))
    axes.spines[:].set_color("0.7")


def _legend(figure: Figure, view: View, classes: Sequence[int]) -> None:
    """Name the classes, if there are not too many."""
    from matplotlib.lines import Line2D

    if len(classes) > MAX_NAMED:
        return
    handles = []
    for c in classes:
        colour, name = _colour(c, len(view.classes)), escape_label(view.classes[c])
        handles.append(Line2D([], [], marker="o", linestyle="", color=colour, label=name))
    figure.legend(
        handles=handles, loc="outside lower center", ncols=10, frameon=False, title="class"
    )


def _colour(c: int, classes: int) -> str:
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    if classes <= 10:
        return to_hex(colormaps["tab10"](c))
    return to_hex(colormaps["turbo"](c / (classes - 1)))
