"""The picture of the clients on a page: accuracy of each, and below who holds which classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .clients import MANY, Clients, SeedClients, describe_clients
from .figures import TEMPLATE as CURVES
from .figures import Trace, escape_markup
from .page import Figures, View, switch
from .read import ReportFolder
from .style import Options

VIRIDIS = ("#440154", "#3b528b", "#21918c", "#5ec962", "#fde725")
# What lies on white and on black alike is partly transparent; page.css has the same in the key.
COUNTS = ("rgba(60,130,210,0.15)", "rgba(60,130,210,1)")
MISSING = "rgba(128,138,150,0.45)"
GAP = 56  # pixels between the two parts: for the title of an axis
MANY_CLASSES = 25  # more have no name each
BARE = {
    "showgrid": False,
    "zeroline": False,
    "automargin": True,
    "fixedrange": True,
    "title": {"standoff": 4},
}
TEMPLATE: Options = {  # what all pictures have in common
    "layout": {
        **CURVES["layout"],
        "margin": {"l": 12, "r": 8, "t": 8, "b": 44},
        "xaxis": BARE,
        "yaxis": BARE,
    },
    "data": {
        "heatmap": [
            {
                "colorscale": [[i / 4, color] for i, color in enumerate(VIRIDIS)],
                "showscale": False,
                "ygap": 1,
                "hoverongaps": False,
                "hovertemplate": "<b>%{fullData.name}</b><br>%{customdata}<br>%{z} %"
                "<extra></extra>",
            }
        ]
    },
}


@dataclass(frozen=True)
class Screen:
    """A kind of screen, and what fits onto it."""

    narrow: bool
    letters: int  # of a label
    columns: int  # whose accuracies can be written into them

    def shorten(self, label: str, letters: int = 0) -> str:
        """Cut a label, so that it fits.

        >>> Screen(narrow=True, letters=8, columns=10).shorten("photographs")
        'photogr…'
        """
        letters = letters or self.letters
        if len(label) > letters:
            label = f"{label[: letters - 1]}…"
        return escape_markup(label)


SCREENS = (
    Screen(narrow=False, letters=28, columns=25),
    Screen(narrow=True, letters=13, columns=10),
)


def clients_figure(folder: ReportFolder, figures: Figures) -> str:
    """Draw the clients of a folder.

    Args:
        folder: whose clients are drawn.
        figures: those of the page, to which this one is added.

    Returns:
        The HTML in which it is drawn; nothing if no run has begun.
    """
    clients = describe_clients(folder.results)
    if clients is None:
        return ""
    buttons = {str(i): f"seed {seed.seed}" for i, seed in enumerate(clients.seeds)}
    views = {}
    for button, seed in zip(buttons, clients.seeds, strict=True):
        for screen in SCREENS:
            words = []
            if len(buttons) > 1:
                words.append(button)
            if screen.narrow:
                words.append("narrow")
            views[" ".join(words)] = _Picture(clients, seed, screen).draw()
    below = '<span class="scale">samples of a class: few <i class="counts"></i> many</span>'
    if any(seed.counts is None for seed in clients.seeds):
        below = "Below: how many classes a client has in effect."
    many = ""
    if clients.sorted:
        many = f" There are more than {MANY}: above they are sorted, below are the first."
    return (
        f'<h2>Clients</h2><figure data-figure="{figures.add(views)}"><div class="bar">'
        + switch("seed", "Seed", buttons)
        + '</div><div class="plot" role="img" aria-label="Accuracy and classes of every client">'
        + '</div><figcaption><span class="scale">accuracy: 0 % <i class="accuracy"></i> 100 %'
        + '</span><span class="scale"><i class="one"></i> not tested</span>'
        + f"{below}<br>Every client in the last round that was tested, on what its own data are "
        + f"like.{many}</figcaption></figure>"
    )


class _Picture:
    """The clients of one seed on one kind of screen."""

    def __init__(self, clients: Clients, seed: SeedClients, screen: Screen) -> None:
        self.clients, self.seed, self.screen = clients, seed, screen
        self.columns = max(len(row) for row in seed.accuracy)
        if not clients.sorted:
            self.columns = max(self.columns, len(seed.sizes))
        self.few = self.columns <= screen.columns
        self.gap = 0 if self.columns > 60 else 1  # between columns

    def draw(self) -> View:
        """Draw both parts, one above the other."""
        import plotly.graph_objects as go

        above = len(self.clients.labels) * (26 if self.few else 20)  # pixels
        below = 90
        if self.seed.counts is not None:
            classes = len(self.seed.counts)
            below = classes * (8 if classes > MANY_CLASSES else 20)
        total = above + below + GAP
        variants_axis = _axis_of([self.screen.shorten(label) for label in self.clients.labels])
        layout = {
            "template": TEMPLATE,
            "dragmode": False,
            "height": total + 70,
            "xaxis": self._clients_axis(),
            "yaxis": variants_axis | {"domain": [1 - above / total, 1]},
            "yaxis2": self._classes_axis() | {"domain": [0, below / total]},
        }
        if self.clients.sorted:
            layout["xaxis2"] = {"anchor": "y2", "title": {"text": "the first clients"}}
        traces = [*self._draw_accuracy(), *self._draw_missing(), self._draw_samples()]
        return go.Figure(traces, layout)

    def _draw_accuracy(self) -> list[Trace]:
        """Draw a row for each variant."""
        import plotly.graph_objects as go

        rows = []
        for i, label in enumerate(self.clients.labels):
            row = go.Heatmap(
                name=escape_markup(label),
                z=[self._pad(i)],
                y=[i],
                zmin=0,
                zmax=100,
                xgap=self.gap,
                customdata=[self._columns()],
            )
            if self.few:
                size = 10 if self.screen.narrow else 12
                row.update(
                    text=[[_write(value) for value in self._pad(i)]],
                    texttemplate="%{text}",
                    textfont={"size": size},
                )
            rows.append(row)
        return rows

    def _draw_missing(self) -> list[Trace]:
        """Fill the cells of clients that were not tested."""
        import plotly.graph_objects as go

        missing = []
        for i in range(len(self.clients.labels)):
            missing.append([1 if value is None else None for value in self._pad(i)])
        if not any(any(row) for row in missing):
            return []
        cells = go.Heatmap(
            z=missing,
            colorscale=[[0, MISSING], [1, MISSING]],
            xgap=self.gap,
            customdata=[self._columns()] * len(missing),
            hovertemplate="%{customdata}<br>not tested<extra></extra>",
        )
        return [cells]

    def _draw_samples(self) -> Trace:
        """Draw who holds how many samples of which class.

        Where that is not known: how many classes each client has in effect.
        """
        import plotly.graph_objects as go

        counts = self.seed.counts
        place = {"yaxis": "y2", "xaxis": "x2" if self.clients.sorted else "x"}
        clients = []
        for i, size in enumerate(self.seed.sizes):
            clients.append(f"{self._name(i)}, {size:,} samples")
        if counts is None:
            return go.Bar(
                place,
                y=[round(value, 2) for value in self.seed.effective],
                customdata=clients,
                marker={"color": COUNTS[1]},
                hovertemplate="%{customdata}<br>%{y} effective classes<extra></extra>",
            )
        samples = go.Heatmap(
            place,
            z=[[count or None for count in row] for row in counts],
            zmin=0,
            zmax=max(max(row, default=0) for row in counts),
            colorscale=[[0, COUNTS[0]], [1, COUNTS[1]]],
            xgap=self.gap,
            ygap=0 if len(counts) > MANY_CLASSES else 1,
            customdata=[clients] * len(counts),
            hovertemplate="%{customdata}<br>class %{y}: %{z}<extra></extra>",
        )
        if names := self.clients.classes:
            samples.update(
                text=[[escape_markup(name)] * len(clients) for name in names],
                hovertemplate="%{customdata}<br>class %{text}: %{z}<extra></extra>",
            )
        return samples

    def _pad(self, i: int) -> Sequence[float | None]:
        """Return the accuracies of the i-th variant, as many as there are columns."""
        row = self.seed.accuracy[i]
        return [*row, *[None] * (self.columns - len(row))]

    def _columns(self) -> list[str]:
        """Say which client each column is of."""
        if self.clients.sorted:
            return [f"{i} % of the clients are worse" for i in range(self.columns)]
        return [self._name(i) for i in range(self.columns)]

    def _name(self, i: int) -> str:
        names = self.clients.names
        return f"client {i}" if names is None else escape_markup(names[i])

    def _clients_axis(self) -> Options:
        if self.clients.sorted:
            return {"anchor": "y", "title": {"text": "clients from worst to best, %"}}
        names = self.clients.names
        title = {"text": "" if names else "client"}
        axis: Options = {"anchor": "y2", "title": title}
        if self.few:
            labels = [str(i) for i in range(self.columns)]
            if names:
                labels = [self.screen.shorten(name, 12) for name in names]
            axis |= {"tickvals": list(range(len(labels))), "ticktext": labels}
        return axis

    def _classes_axis(self) -> Options:
        if self.seed.counts is None:
            title = "" if self.screen.narrow else "effective classes"
            return {"title": {"text": title, "standoff": 10}, "rangemode": "tozero"}
        names = self.clients.classes or [str(i) for i in range(len(self.seed.counts))]
        axis: Options = {"autorange": "reversed"}
        if len(names) <= MANY_CLASSES:
            axis = _axis_of([self.screen.shorten(name) for name in names])
        return axis | {"title": {"text": "class", "standoff": 10}}


def _write(value: float | None) -> str:
    """Write an accuracy into its cell, white on dark colours and black on light ones."""
    if value is None:
        return ""
    ink = "#fff" if value <= 55 else "#000"
    return f'<span style="color:{ink}">{value:.0f}</span>'


def _axis_of(names: Sequence[str]) -> Options:
    """Return an axis with a tick for each name, the first at the top."""
    places = list(range(len(names)))
    return {"tickvals": places, "ticktext": list(names), "autorange": "reversed"}
