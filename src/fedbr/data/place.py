"""Where the files of data sets lie."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ..util.errors import InputError, NoFiles
from .archives import Tree

PAGES = (b"<!doctype", b"<html", b"<?xml")  # how web pages begin


def data_folder() -> Path:
    """Return our folder where the platform keeps what is to stay: downloads go there."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "fedbr"
    if sys.platform == "win32":
        return (
            Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
            / "fedbr"
            / "data"
        )
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "fedbr"


def place(path: str = "") -> Path:
    """Return the folder that is named, or $FEDBR_DATA, or the one for downloads."""
    return Path(path or os.environ.get("FEDBR_DATA") or data_folder()).expanduser()


@contextmanager
def opened(
    path: str, name: str, hint: str, has: Callable[[Tree], bool] = lambda tree: True
) -> Iterator[Tree]:
    """Look into the first place that ``has`` the files of a data set; what is wrong is said with
    what helps.
    """
    help_ = f"see fedbr data get {name}, or say where the files are: data.path or $FEDBR_DATA"
    if name == "folder":
        help_ = "images in <class>/<image> or <client>/<class>/<image> are wanted"
    root = place(path)
    if not root.exists():
        if not path and root == data_folder():
            raise NoFiles(f"{name}: nothing was downloaded into {root} yet; {help_}")
        what = "data.path" if path else "$FEDBR_DATA"
        raise NoFiles(f"{what} = {str(root)!r}: there is no such file or folder; {help_}")
    with _tree(root, name, hint, help_) as tree:
        if path or root == data_folder() or has(tree):
            yield tree
            return
    if data_folder().exists():
        with _tree(data_folder(), name, hint, help_) as tree:
            if has(tree):
                yield tree
                return
    raise NoFiles(
        f"$FEDBR_DATA = {str(root)!r} has no files of {name}, nor has {data_folder()}; {help_}"
    )


@contextmanager
def _tree(root: Path, name: str, hint: str, help_: str) -> Iterator[Tree]:
    with Tree.open(root, hint) as tree:
        try:
            yield tree
        except InputError as error:
            raise type(error)(_explained(str(error), tree.path, name, help_)) from error


def _explained(error: str, root: Path, name: str, help_: str) -> str:
    """Add to what is wrong with a file where it lies and what can be done."""
    if error.startswith(("data.path = ", f"{root}: ")):  # about the place as a whole
        return f"{error}; {help_}" if " has no " in error else error
    folder = root if root.is_dir() else root.parent
    if name == "folder":
        return str(folder / error)
    file = folder / error.partition(": ")[0].partition("!/")[0]
    remedy = f"move it away and see fedbr data get {name}"
    if _is_page(file):
        return f"{file}: a web page, not what its name says; {remedy}"
    return f"{folder / error}; if it is damaged, {remedy}"


def _is_page(file: Path) -> bool:
    try:
        with file.open("rb") as opened:
            return opened.read(512).lstrip().lower().startswith(PAGES)
    except OSError:
        return False
