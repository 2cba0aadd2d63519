"""A picture of a federation: who has which classes, what the model sees, and what pseudo-data are made of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ..core.rng import stream
from ..data import Federation
from ..pseudo.mixture import mix
from ..pseudo.rsm import sample_means

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROWS, COLUMNS = 10, 10  # clients and samples that are shown
MEAN_OF = 10  # FedBR's default


@dataclass(frozen=True)
class Strip:
    """Some samples in a row, and what they are."""

    label: str
    x: Tensor  # [n, ...], as the model sees them


def picture(federation: Federation, target: Path, title: str) -> None:
    """Draw the split and samples; the ending of the name chooses PNG or SVG."""
    from matplotlib.figure import Figure

    strips = samples(federation)
    rows = len(federation.train.parts)
    left_height = 1.2 + 0.28 * min(rows, 40)
    figure = Figure(figsize=(12, max(left_height, 0.55 * len(strips) + 1)), dpi=110, layout="constrained")
    figure.suptitle(title, fontsize="medium")
    halves = figure.subfigures(1, 2, width_ratios=(5, 7), squeeze=False)
    _split(halves[0, 0].subplots(), federation)
    grid = halves[0, 1].subplots(len(strips), 1, squeeze=False)
    low, high = _range(federation)
    for axes, strip in zip(grid[:, 0], strips, strict=True):
        _row(axes, strip, low, high)
    figure.savefig(target)


def samples(federation: Federation) -> list[Strip]:
    """Return samples of the first clients, and pseudo-data of both kinds."""
    train, strips = federation.train, []
    for client, part in list(train.parts.items())[:ROWS]:
        chosen = stream(0, "gallery", client).permutation(part)[:COLUMNS]
        strips.append(Strip(f"client {client}", train.samples.see(torch.from_numpy(chosen), torch.float32)))
    means = []
    for client in train.parts:
        x, _ = train.of(client, torch.float32)
        means.append(sample_means(x, 1, MEAN_OF, stream(0, "gallery", "rsm", client)))
        if sum(map(len, means)) >= COLUMNS:
            break
    strips.append(Strip(f"RSM of {MEAN_OF}", torch.cat(means)[:COLUMNS]))
    if federation.proxy is not None:
        rng = stream(0, "gallery", "mixture")
        public = sample_means(federation.proxy.see(slice(None), torch.float32), COLUMNS, MEAN_OF, rng)
        own, y = train.draw([0], [rng], (len(public), 1), torch.float32)
        strips.append(Strip("Mixture", mix(public, own, y)[0][0]))
    return [strip for strip in strips if len(strip.x)]


def _split(axes: Axes, federation: Federation) -> None:
    """Draw how many samples of each class every client has; beside it the effective number of classes."""
    y, parts = federation.train.samples.y, list(federation.train.parts.values())
    table = torch.stack([torch.bincount(y[torch.from_numpy(p)], minlength=federation.num_classes) for p in parts])
    effective = federation.describe()["effective_classes"]
    if len(parts) <= 40 and federation.num_classes <= 20:
        clients, classes = np.nonzero(table.numpy())
        counts = table.numpy()[clients, classes]
        axes.scatter(classes, clients, s=240 * counts / counts.max(), color="#d1495b", alpha=0.8, linewidth=0)
        axes.set_xticks(range(federation.num_classes))
        axes.set_yticks(range(len(parts)))
        for client, value in enumerate(effective):
            axes.text(federation.num_classes - 0.2, client, f"{value:.1f}", va="center", fontsize="small")
        axes.text(federation.num_classes - 0.2, -0.9, "effective", fontsize="small")
        axes.set(xlim=(-0.7, federation.num_classes + 1.4), ylim=(len(parts) - 0.3, -1.3))
        axes.grid(alpha=0.2)
    else:
        image = axes.imshow(table.numpy(), aspect="auto", cmap="Reds", interpolation="nearest")
        axes.figure.colorbar(image, ax=axes, label="samples")
    mean = sum(effective) / len(effective)
    axes.set(xlabel="class", ylabel="client", title=f"effective classes per client: {mean:.1f} on average")
    axes.title.set_fontsize("small")


def _range(federation: Federation) -> tuple[Tensor, Tensor]:
    """Return what is black and what is white, for each channel, as the model sees it."""
    some = federation.train.samples.see(slice(0, 500), torch.float32)
    if some.dim() != 4:
        return some.min(), some.max()
    return some.amin(dim=(0, 2, 3)).view(-1, 1, 1), some.amax(dim=(0, 2, 3)).view(-1, 1, 1)


def _row(axes: Axes, strip: Strip, low: Tensor, high: Tensor) -> None:
    x = ((strip.x - low) / (high - low).clamp(min=1e-6)).clamp(0, 1)
    if x.dim() == 4 and x.shape[1] in (1, 3):
        images = [image.permute(1, 2, 0).expand(-1, -1, 3) for image in x]
    else:  # no pictures: a sample is a line
        images = [image.reshape(1, -1, 1).expand(max(1, image.numel() // 8), -1, 3) for image in x]
    height, width = images[0].shape[:2]
    gap = torch.ones(height, max(1, width // 12), 3)
    blank = torch.ones(height, width, 3)
    padded = [*images, *[blank] * (COLUMNS - len(images))]
    axes.imshow(torch.cat([part for image in padded for part in (image, gap)], dim=1).numpy(), interpolation="nearest")
    axes.set_ylabel(strip.label, rotation=0, ha="right", va="center", fontsize="small")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(False)
