"""The figures of a diagnosis: maps of features, outputs of classifiers, predictions of all clients, drift."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..core.model import Output
from ..core.rng import stream
from .diagnosis import View
from .plots import look

if TYPE_CHECKING:  # matplotlib takes a second to import
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

POINTS = 800  # on a map: t-SNE takes some seconds for as many
SEEN, UNSEEN = "#0072b2", "#d55e00"
GREY = "0.85"
TICKS = 20  # classes up to which each is named
LAYERS = 24  # beyond, the matrices only
GLOBAL, AVERAGED = "\0global", "\0averaged"  # models on a map, beside those with the labels of methods

Rounds = Mapping[str, Sequence[Mapping[str, Any]]]  # label -> lines of metrics.jsonl
Map = NDArray[np.float64]


def draw(numbers: Mapping[str, Any], view: View, target: Path, rounds: Rounds) -> None:
    """Write all figures that there is something to show in."""
    with _style():
        if view.unseen and bool(_of(view, view.unseen).any()) and bool(_of(view, view.seen).any()):
            picked = _picked(view, POINTS // (2 + len(view.after)))
            maps = _maps(view, picked)
            _save(features(numbers, view, picked, maps), target / "features")
            _save(before_after(numbers, view, picked, maps), target / "before-after")
            _save(classifier(numbers, view), target / "classifier")
        _save(predictions(numbers, view), target / "predictions")
        if len(numbers["clients"]) > 1:
            _save(drift(numbers), target / "drift")
        if any(rounds.values()):
            _save(by_round(rounds), target / "rounds")


def features(numbers: Mapping[str, Any], view: View, picked: Tensor, maps: Mapping[str, Map]) -> Figure:
    """Draw the paper's panels for the first method: F_g(X1), F_i(X1), F_i(X2), and the averaged model's."""
    from matplotlib.figure import Figure

    label = next(iter(view.after))
    figure = Figure(figsize=(13.5, 4.1), layout="constrained")
    axes = figure.subplots(1, 4)
    own, accuracy = _client(numbers, label, view.client), numbers["methods"][0]["accuracy_aggregated"]
    words = (
        "seen classes, global model",
        f"the same samples, local model: shift {own['shift_seen']:.2f}\ngrey: where the global model has them",
        f"unseen classes, local model: silhouette {own['silhouette']:.2f}\ngrey: where it has the seen ones",
        f"all classes, mean of the clients' models: {100 * accuracy:.0f} % right",
    )
    everything = sorted((*view.seen, *view.unseen))
    last = Panel("$\\bar{F}(X_1, X_2)$", AVERAGED, everything, None)
    for panel, what, text in zip(axes, (*_panels(view, label), last), words, strict=True):
        _scatter(panel, view, picked, maps, what)
        panel.set_title(f"{what.name}\n{text}")
    _legend(figure, view, everything)
    figure.suptitle(f"Client {view.client} before and after local training with {label}; one t-SNE map, same axes")
    return figure


def before_after(numbers: Mapping[str, Any], view: View, picked: Tensor, maps: Mapping[str, Map]) -> Figure:
    """Draw a row for each method: the three panels, and what the classifier takes X2 for."""
    from matplotlib.figure import Figure

    labels = list(view.after)
    figure = Figure(figsize=(12.5, 0.7 + 2.55 * len(labels)), layout="constrained")
    grid = figure.subplots(len(labels), 4, squeeze=False, width_ratios=(1, 1, 1, 1.15))
    for below in grid[1:, 3]:
        below.sharey(grid[0, 3])
    for row, label in zip(grid, labels, strict=True):
        own = _client(numbers, label, view.client)
        shifts = ("", f": shift {own['shift_seen']:.3f}", f": shift {own['shift_unseen']:.3f}")
        for axes, what, shift in zip(row, _panels(view, label), shifts, strict=False):
            _scatter(axes, view, picked, maps, what)
            axes.set_title(what.name + shift)
        row[0].set_ylabel(label, fontsize=12, fontweight="bold")
        _bars(row[3], view, own["predicted_unseen"], _mass(view, view.after[label]))
        row[3].set_title(f"X2 taken for seen classes: {100 * own['share_present_unseen']:.0f} %")
    _legend(figure, view, sorted((*view.seen, *view.unseen)))
    figure.suptitle(
        f"Client {view.client} after local training from the same global weights; one t-SNE map, same axes. "
        "Grey: global features of $X_1$ (second column), local features of $X_1$ (third)"
    )
    return figure


def classifier(numbers: Mapping[str, Any], view: View) -> Figure:
    """Draw what the global model and every local one say of one sample of X2, and of all of them."""
    from matplotlib.figure import Figure

    sides = {"global model": view.before, **view.after}
    figure = Figure(figsize=(2.5 * len(sides), 4.6), layout="constrained")
    grid = figure.subplots(2, len(sides), sharey="row", squeeze=False)
    truth = view.unseen[int(0.6 * len(view.unseen))]  # of classes 5 to 9 the paper's 8
    truth = truth if bool((view.y == truth).any()) else int(view.y[_of(view, view.unseen)][0])
    sample = int(torch.nonzero(view.y == truth)[0])
    for i, (label, out) in enumerate(sides.items()):
        one, many = grid[0][i], grid[1][i]
        _bars(one, view, out.logits[sample].softmax(dim=0).tolist())
        own = _client(numbers, label, view.client)
        _bars(many, view, own["predicted_unseen"], _mass(view, out))
        one.set_title(label, fontweight="bold")
        share, mass = own["share_present_unseen"], own["mass_present_unseen"]
        many.set_title(f"to seen classes: {100 * share:.0f} %\n({100 * mass:.0f} % of probability)")
        many.set_xlabel("class")
    grid[0][0].set_ylabel(f"one sample of class {view.classes[truth]}\nprobability")
    grid[1][0].set_ylabel("all of X2\nshare of predictions")
    _thumbnail(grid[0][0], view.x[sample])
    figure.suptitle(
        f"Client {view.client}: output for unseen classes (X2). Blue: classes that the client has, orange: the others; "
        "dots: mean probability"
    )
    return figure


def predictions(numbers: Mapping[str, Any], view: View) -> Figure:
    """Draw for every client and method which classes are predicted on balanced samples."""
    from matplotlib.figure import Figure

    sides, rows = numbers["methods"], len(numbers["clients"])
    figure = Figure(figsize=(min(16, 2 + len(sides) * 2.6), 1.5 + 0.24 * rows), layout="constrained")
    grid = figure.subplots(1, len(sides), sharey=True, squeeze=False)[0]
    most = max(max(one["predicted"]) for side in sides for one in side["clients"])
    for axes, side in zip(grid, sides, strict=True):
        table = [one["predicted"] for one in side["clients"]]
        shades = axes.imshow(np.array(table), cmap="Greys", vmin=0, vmax=most, aspect="auto", interpolation="nearest")
        for r, one in enumerate(numbers["clients"]):
            for c in one["seen"]:
                axes.add_patch(_frame(c, r))
        share = side["mean"]["share_present"]
        axes.set_title(f"{side['label']}\n{100 * share:.0f} % on seen classes")
        _name_classes(axes, view)
        axes.set_xlabel("predicted class")
        axes.set_yticks(range(rows), [f"client {one['client']}" for one in numbers["clients"]])
    figure.colorbar(shades, ax=list(grid), label="share of predictions", pad=0.01)
    figure.suptitle("Predictions of local models on balanced test samples; framed: classes that the client has")
    return figure


def drift(numbers: Mapping[str, Any]) -> Figure:
    """Draw cosine and distance of the updates, weight by weight."""
    from matplotlib.figure import Figure

    names = list(numbers["methods"][0]["drift"]["layers"])
    if len(names) > LAYERS:
        names = [name for name in names if name.endswith("weight")]
    figure = Figure(figsize=(10, 1.8 + min(9, 0.24 * len(names))), layout="constrained")
    grid = figure.subplots(1, 2, sharey=True)
    places = np.arange(len(names) + 1)
    for i, side in enumerate(numbers["methods"]):
        rows = [*(side["drift"]["layers"][name] for name in names), side["drift"]]
        for axes, key in zip(grid, ("cosine", "distance"), strict=True):
            beside = places + 0.16 * (i - (len(numbers["methods"]) - 1) / 2)
            axes.plot([row[key] for row in rows], beside, "o", color=look(i)[0], label=side["label"], markersize=4)
    grid[0].set(xlabel="cosine between the updates of two clients", yticks=places)
    grid[0].set_yticklabels([*names, "all weights"], fontsize=7)
    grid[0].invert_yaxis()
    grid[0].axvline(0, color="0.6", linewidth=0.8)
    grid[1].set(xlabel="distance to the mean update, divided by the updates' length", xlim=(0, None))
    for axes in grid:
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    figure.legend(*grid[0].get_legend_handles_labels(), loc="outside lower center", ncols=8, frameon=False)
    figure.suptitle("Updates of the clients, weight by weight; if all agreed: cosine 1, distance 0")
    return figure


def by_round(rounds: Rounds) -> Figure:
    """Draw what was logged of the local models while they trained."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(11, 3.4), layout="constrained")
    grid = figure.subplots(1, 3)
    for i, (label, lines) in enumerate(rounds.items()):
        colour, found = look(i)[0], [line for line in lines if "bias" in line]
        mark = "o" if len(found) < 2 else ""
        x = [line["round"] for line in found]
        tested = [line for line in lines if line["accuracy"] is not None]
        grid[0].plot([t["round"] for t in tested], [100 * t["accuracy"] for t in tested], color=colour, label=label)
        grid[0].plot(x, [_percent(line["accuracy_local"]) for line in found], "--", color=colour, marker=mark)
        shares = [_percent(line["bias"]["share_present_unseen"]) for line in found]
        grid[1].plot(x, shares, color=colour, marker=mark)
        grid[2].plot(x, [line["bias"]["cosine"] for line in found], color=colour, marker=mark)
    titles = ("accuracy, %: aggregated (line),\nlocal models (dashed)", "unseen classes taken\nfor seen ones, %")
    for axes, title in zip(grid, (*titles, "cosine between the\nupdates of two clients"), strict=True):
        axes.set_title(title)
        axes.set_xlabel("round")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    figure.legend(*grid[0].get_legend_handles_labels(), loc="outside lower center", ncols=6, frameon=False)
    return figure


def _picked(view: View, most: int) -> Tensor:
    """Return which samples go on the map: every class in turn, until there are enough."""
    rank = torch.zeros(len(view.y), dtype=torch.long)
    for c in set(view.y.tolist()):
        mine = torch.nonzero(view.y == c).flatten()
        rank[mine] = torch.arange(len(mine))
    return torch.argsort(rank, stable=True)[:most].sort().values


def _maps(view: View, picked: Tensor) -> dict[str, Map]:
    """Project the features of all models, scaled to length 1, with one t-SNE."""
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]  # no type information is published

    sides = {GLOBAL: view.before, **view.after, AVERAGED: view.averaged}
    rows = torch.cat([torch.nn.functional.normalize(out.features[picked], dim=1) for out in sides.values()])
    seed = int(stream(view.seed, "diagnose", "t-SNE").integers(2**31))
    tsne = TSNE(2, perplexity=min(30.0, (len(rows) - 1) / 3), init="pca", random_state=seed)
    with threadpool_limits(1):  # on busy cores several threads spend their time waiting for each other
        flat: Map = np.asarray(tsne.fit_transform(rows.double().numpy()), dtype=np.float64)
    return dict(zip(sides, np.split(flat, len(sides)), strict=True))


class Panel(NamedTuple):
    """Features of some classes under one model; behind them, in grey, those of the seen classes under another."""

    name: str
    model: str
    classes: Sequence[int]
    behind: str | None


def _panels(view: View, label: str) -> list[Panel]:
    local = f"$F_{{{view.client}}}"
    return [
        Panel("$F_g(X_1)$", GLOBAL, view.seen, None),
        Panel(f"{local}(X_1)$", label, view.seen, GLOBAL),
        Panel(f"{local}(X_2)$", label, view.unseen, label),
    ]


def _scatter(axes: Axes, view: View, picked: Tensor, maps: Mapping[str, Map], panel: Panel) -> None:
    y = view.y[picked].numpy()
    if panel.behind is not None:
        points = maps[panel.behind][np.isin(y, view.seen)]
        axes.scatter(points[:, 0], points[:, 1], s=11, color=GREY, linewidths=0)
    for c in panel.classes:
        mine = maps[panel.model][y == c]
        axes.scatter(mine[:, 0], mine[:, 1], s=11, color=_colour(c, len(view.classes)), linewidths=0)
    everything = np.concatenate(list(maps.values()))
    low, high = everything.min(axis=0), everything.max(axis=0)
    (left, bottom), (right, top) = low - 0.04 * (high - low), high + 0.04 * (high - low)
    axes.set(xticks=[], yticks=[], xlim=(left, right), ylim=(bottom, top))
    axes.spines[:].set_color("0.7")


def _legend(figure: Figure, view: View, classes: Sequence[int]) -> None:
    from matplotlib.lines import Line2D

    if len(classes) > TICKS:
        return
    handles = [
        Line2D([], [], marker="o", linestyle="", color=_colour(c, len(view.classes)), label=view.classes[c])
        for c in classes
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=10, frameon=False, title="class")


def _bars(axes: Axes, view: View, shares: Sequence[float], dots: Sequence[float] | None = None) -> None:
    colours = [SEEN if c in view.seen else UNSEEN for c in range(len(shares))]
    axes.bar(range(len(shares)), shares, color=colours, width=0.8)
    if dots is not None:
        axes.plot(range(len(dots)), dots, "o", color="black", markersize=3)
    _name_classes(axes, view)
    axes.spines[["top", "right"]].set_visible(False)


def _name_classes(axes: Axes, view: View) -> None:
    if len(view.classes) <= TICKS:
        long = max(map(len, view.classes)) > 3
        axes.set_xticks(range(len(view.classes)), view.classes, rotation=90 if long else 0)


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


def _colour(c: int, size: int) -> Any:
    from matplotlib import colormaps

    return colormaps["tab10"](c) if size <= 10 else colormaps["turbo"](c / (size - 1))


def _of(view: View, classes: Sequence[int]) -> Tensor:
    return torch.isin(view.y, torch.tensor(list(classes), dtype=torch.long))


def _mass(view: View, out: Output) -> list[float]:
    mean: list[float] = out.logits[_of(view, view.unseen)].softmax(dim=1).mean(dim=0).tolist()
    return mean


def _percent(value: float | None) -> float | None:
    return None if value is None else 100 * value


def _client(numbers: Mapping[str, Any], label: str, client: int) -> dict[str, Any]:
    """Return the numbers of one client's model, or of the global model seen with that client's classes."""
    side = next((s for s in numbers["methods"] if s["label"] == label), numbers["global"])
    found: dict[str, Any] = next(one for one in side["clients"] if one["client"] == client)
    return found


@contextmanager
def _style() -> Iterator[None]:
    import matplotlib as mpl

    sizes: dict[Any, Any] = {
        "font.size": 9,
        "axes.titlesize": 9,
        "figure.titlesize": 11,
        "xtick.labelsize": 7,
        "ytick.labelsize": 7,
    }
    with mpl.rc_context({**sizes, "svg.hashsalt": "fedbr", "axes.linewidth": 0.6}):
        yield


def _save(figure: Figure, target: Path) -> None:
    figure.savefig(target.with_suffix(".png"), dpi=130)
    figure.set_layout_engine("none")  # all has its place by now, and finding it takes most of the time
    figure.savefig(target.with_suffix(".svg"), metadata={"Date": None})
