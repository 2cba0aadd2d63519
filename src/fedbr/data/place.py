"""Where the files of data sets lie."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..core.errors import InputError
from .archives import Tree
from .cache import cache_folder


def place(path: str = "") -> Path:
    """Return the folder that is named, or $FEDBR_DATA, or the one where downloads go."""
    if path or os.environ.get("FEDBR_DATA"):
        return Path(path or os.environ["FEDBR_DATA"]).expanduser()
    return cache_folder() / "data"


@contextmanager
def opened(path: str, name: str, hint: str) -> Iterator[Tree]:
    """Look into the place of a data set; what is missing there is said with the ways to get it."""
    root = place(path)
    help_ = f"see fedbr data get {name}, or say where the files are: data.path or $FEDBR_DATA"
    if name == "folder":
        help_ = "images in <class>/<image> or <client>/<class>/<image> are wanted"
    if not root.exists():
        raise InputError(f"data.path = {str(root)!r}: there is no such file or folder; {help_}")
    with Tree.open(root, hint) as tree:
        try:
            yield tree
        except InputError as error:
            raise InputError(f"{error}; {help_}" if " has no " in str(error) else str(error)) from error
