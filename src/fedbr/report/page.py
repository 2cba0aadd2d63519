"""The parts that an HTML page is made of: all text escaped, style and scripts inside, nothing from
elsewhere.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from html import escape
from importlib import resources
from typing import Any

from ..util.imports import require


def page(title: str, body: str, figures: Mapping[str, Any]) -> str:
    """Put a whole page together; the figures are drawn by page.js with plotly, which is inside,
    once.
    """
    scripts = [
        f'<script type="application/json" id="figures">{as_json(figures)}</script>',
        f"<script>{_plotly()}</script>",
        f"<script>{_file('page.js')}</script>",
    ]
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(title)}</title>\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<style>{_file("page.css")}</style>\n'
        f"</head>\n<body>\n{body}\n{''.join(scripts)}\n</body>\n</html>\n"
    )


def as_json(value: Any) -> str:
    """Write JSON that stands inside a script: no text in it can end that."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def table(
    header: Sequence[str],
    cells: Sequence[Sequence[str]],
    samples: Mapping[str, str] | None = None,
    words: bool = False,
) -> str:
    """Write a table whose rows are named by their first cell, with a sample of its line where it
    has one.
    """
    head = "".join(f'<th scope="col">{escape(h)}</th>' for h in header)
    rows = "".join(
        f'<tr><th scope="row">{(samples or {}).get(first, "")}{escape(first)}</th>'
        + "".join(f"<td>{escape(cell)}</td>" for cell in rest)
        + "</tr>"
        for first, *rest in cells
    )
    kind = ' class="words"' if words else ""
    # The keyboard can scroll what can be focused.
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="table"><table{kind}>'
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def switch(name: str, title: str, options: Mapping[str, str]) -> str:
    """Write a row of buttons of which the first is pressed; nothing if there is no choice."""
    if len(options) < 2:
        return ""
    pressed = ["true"] + ["false"] * (len(options) - 1)
    buttons = "".join(
        f'<button type="button" data-value="{escape(value)}" aria-pressed="{now}">{escape(text)}</button>'
        for now, (value, text) in zip(pressed, options.items(), strict=True)
    )
    return f'<div class="switch" role="group" aria-label="{escape(title)}" data-choice="{name}">{buttons}</div>'


def paragraphs(texts: Sequence[str], kind: str = "") -> str:
    """Write a paragraph for each text that says something."""
    attribute = f' class="{kind}"' if kind else ""
    return "".join(f"<p{attribute}>{escape(text)}</p>" for text in texts if text)


def bullets(texts: Sequence[str]) -> str:
    """Write a list."""
    return f"<ul>{''.join(f'<li>{escape(text)}</li>' for text in texts)}</ul>"


def embedded(png: bytes) -> str:
    """Return the address of a picture that is inside the page."""
    return f"data:image/png;base64,{b64encode(png).decode()}"


def folded(title: str, body: str) -> str:
    """Write what is there for those who open it."""
    return f"<details><summary>{escape(title)}</summary>{body}</details>"


def sample(color: str, dash: str) -> str:
    """Draw a short piece of a line."""
    dashes = {"solid": "", "dash": "7 4", "dot": "2 3", "dashdot": "7 3 2 3"}[dash]
    line = f'<line x1="0" y1="4" x2="24" y2="4" stroke-width="3" stroke="{color}" stroke-dasharray="{dashes}"/>'
    return f'<svg width="24" height="8" aria-hidden="true">{line}</svg>'


def _plotly() -> str:
    """Return plotly.js, out of its wrapper: a function is read twice, to find its end and to run
    it.
    """
    require("plotly", extra="report", wanted_by="a report's page")
    from plotly.offline import get_plotlyjs

    bundle: str = get_plotlyjs()
    start, end = bundle.find('"use strict";var Plotly='), bundle.rfind("window.Plotly = Plotly;")
    licence = bundle[: bundle.find("*/") + 2]
    script = bundle if start < 0 or end < 0 else f"{licence}\n{bundle[start:end]}"
    # HTML forbids control characters; those that are there stand in literals.
    return re.sub(r"[\x00-\x08\x0e-\x1f]", lambda found: f"\\x{ord(found[0]):02x}", script)


def _file(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text("utf-8")
