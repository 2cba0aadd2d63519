"""The parts of an HTML page: all text escaped, style and scripts inside, nothing from elsewhere."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from html import escape
from importlib import resources
from typing import Any

from ..util.imports import require

View = Any  # a plotly.graph_objects.Figure, of which plotly publishes no type
SHORT = 40  # characters: what is longer is written once, however many figures have it


class Figures:
    """The figures of a page. Each has one view or several, of which buttons choose."""

    def __init__(self) -> None:
        self._views: list[Mapping[str, View]] = []

    def add(self, views: Mapping[str, View]) -> int:
        """Add a figure; return its number.

        Args:
            views: by the values of the buttons that are pressed, joined by spaces, and behind them
                "narrow" for a narrow screen.
        """
        self._views.append(views)
        return len(self._views) - 1

    def to_json(self) -> str:
        """Write the figures for page.js, each part once: traces and views have many in common."""
        shared: dict[str, int] = {}
        figures = []
        for views in self._views:
            plain = {name: json.loads(view.to_json()) for name, view in views.items()}
            figures.append(_share(plain, shared))
        return as_json({"shared": [json.loads(text) for text in shared], "figures": figures})


def page(title: str, body: str, figures: Figures, made_of: Sequence[str] = ()) -> str:
    """Put a whole page together; plotly, which draws the figures, is inside, once.

    Args:
        title: of the window.
        body: HTML.
        figures: those that the body has a place for.
        made_of: the folders that it shows, for a later call that would write over it.
    """
    scripts = [
        f'<script type="application/json" id="figures">{figures.to_json()}</script>',
        f"<script>{_plotly()}</script>",
        f"<script>{_file('page.js')}</script>",
    ]
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f"<title>{escape(title)}</title>\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"{folders_mark(made_of)}\n<style>{_file('page.css')}</style>\n"
        f"</head>\n<body>\n{body}\n{''.join(scripts)}\n</body>\n</html>\n"
    )


def folders_mark(folders: Sequence[str]) -> str:
    """Write which folders a page shows, in its head."""
    return f'<meta name="fedbr-folders" content="{escape(json.dumps(list(folders)))}">'


def as_json(value: object) -> str:
    """Write JSON that stands inside a script: no text in it can end that.

    >>> as_json("</script>")
    '"\\\\u003c/script\\\\u003e"'
    """
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def table(
    header: Sequence[str],
    cells: Sequence[Sequence[str]],
    samples: Mapping[str, str] | None = None,
    words: bool = False,
) -> str:
    """Write a table whose rows are named by their first cell.

    Args:
        header: names of the columns.
        cells: row by row.
        samples: pieces of lines that stand before the names of rows, by these names.
        words: whether cells are read rather than compared.
    """
    samples = samples or {}
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in header)
    rows = []
    for first, *rest in cells:
        name = f'<th scope="row">{samples.get(first, "")}{escape(first)}</th>'
        values = "".join(f"<td>{escape(cell)}</td>" for cell in rest)
        rows.append(f"<tr>{name}{values}</tr>")
    kind = ' class="words"' if words else ""
    # The keyboard can scroll what can be focused.
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="table"><table{kind}>'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def switch(name: str, title: str, options: Mapping[str, str]) -> str:
    """Write a row of buttons of which the first is pressed; nothing if there is no choice.

    Args:
        name: of the choice, which page.js reads.
        title: what is chosen, for a screen reader.
        options: what a button says, by its value.
    """
    if len(options) < 2:
        return ""
    buttons = []
    for i, (value, text) in enumerate(options.items()):
        pressed = "false" if i else "true"
        attributes = f'type="button" data-value="{escape(value)}" aria-pressed="{pressed}"'
        buttons.append(f"<button {attributes}>{escape(text)}</button>")
    attributes = f'role="group" aria-label="{escape(title)}" data-choice="{name}"'
    return f'<div class="switch" {attributes}>{"".join(buttons)}</div>'


def paragraphs(texts: Sequence[str], kind: str = "") -> str:
    """Write a paragraph for each text that says something.

    >>> paragraphs(["a < b", ""])
    '<p>a &lt; b</p>'
    """
    attribute = f' class="{kind}"' if kind else ""
    return "".join(f"<p{attribute}>{escape(text)}</p>" for text in texts if text)


def bullets(texts: Sequence[str]) -> str:
    """Write a list.

    >>> bullets(["a < b"])
    '<ul><li>a &lt; b</li></ul>'
    """
    items = "".join(f"<li>{escape(text)}</li>" for text in texts)
    return f"<ul>{items}</ul>"


def embedded(png: bytes) -> str:
    """Return the address of a picture that is inside the page."""
    return f"data:image/png;base64,{b64encode(png).decode()}"


def folded(title: str, body: str) -> str:
    """Write a part of the page that is closed until somebody opens it."""
    return f"<details><summary>{escape(title)}</summary>{body}</details>"


def sample(color: str, dash: str) -> str:
    """Draw a short piece of a line."""
    dashes = {"solid": "", "dash": "7 4", "dot": "2 3", "dashdot": "7 3 2 3"}[dash]
    stroke = f'stroke-width="3" stroke="{color}" stroke-dasharray="{dashes}"'
    line = f'<line x1="0" y1="4" x2="24" y2="4" {stroke}/>'
    return f'<svg width="24" height="8" aria-hidden="true">{line}</svg>'


def _share(value: Any, shared: dict[str, int]) -> Any:
    """Replace lists and tables by their numbers, but for short ones.

    Args:
        value: of JSON.
        shared: the numbers so far, by what they stand for in JSON; new ones are added.
    """
    if isinstance(value, dict):
        value = {key: _share(item, shared) for key, item in value.items()}
    elif isinstance(value, list) and any(isinstance(item, list | dict) for item in value):
        value = [_share(item, shared) for item in value]
    if not isinstance(value, list | dict):
        return value
    text = as_json(value)
    if len(text) < SHORT:
        return value
    return {"shared": shared.setdefault(text, len(shared))}


def _plotly() -> str:
    """Return plotly.js, as plotly has it."""
    require("plotly", extra="report", needed_by="a report's page")
    from plotly.offline import get_plotlyjs

    # HTML forbids control characters; those that are there stand in literals.
    bundle: str = get_plotlyjs()
    return re.sub(r"[\x00-\x08\x0b\x0e-\x1f]", lambda match: f"\\x{ord(match[0]):02x}", bundle)


def _file(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text("utf-8")
