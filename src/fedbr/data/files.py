"""Where the files of data sets lie, and a folder with archives as one tree of files."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import platformdirs

from ..util.errors import InputError, NoFiles
from .unpack import ARCHIVES, Unpacked, explain_errors, is_archive, is_hidden, unpack

PAGES = (b"<!doctype", b"<html", b"<?xml")  # how web pages begin


def data_folder() -> Path:
    """Return our folder where the platform keeps what is to stay: downloads go there."""
    folder = platformdirs.user_data_path("fedbr", appauthor=False)
    return folder / "data" if sys.platform == "win32" else folder


def old_data_folder() -> Path:
    """Return the folder of version 0.1, which did not know of $XDG_DATA_HOME on macOS."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "fedbr"
    return data_folder()


def choose_folder(path: str = "") -> Path:
    """Return the folder that is named, or $FEDBR_DATA, or the one for downloads."""
    return Path(path or os.environ.get("FEDBR_DATA") or data_folder()).expanduser()


class Tree:
    """A read-only view of a folder and the archives in it, or of one archive.

    Hidden files are left out. Archives are unpacked (into the cache) when they are first needed. A
    member is named after its archive: ``a.zip!/inner/name``.
    """

    def __init__(
        self,
        path: Path,
        files: Mapping[str, Path],
        archives: Mapping[str, Path],
        hint: str = "",
        closed: Sequence[str] = (),
    ) -> None:
        self.path = path
        self._files, self._archives = files, archives
        self._hint, self._closed = hint, closed
        self._unpacked: dict[str, Unpacked] = {}

    @classmethod
    def open(cls, path: Path | str, hint: str = "") -> Self:
        """Look at a folder or an archive.

        Args:
            path: the folder or the archive.
            hint: a regular expression; other archives of a folder are left alone.

        Raises:
            InputError: there is no such place, or it is neither.
        """
        root = Path(path).expanduser()
        with explain_errors(str(root)):
            exists = root.exists()
        if not exists:
            raise InputError(f"{root}: there is no such file or folder")
        if not root.is_dir():
            if not is_archive(root.name):
                raise InputError(f"{root}: neither a folder nor an archive ({', '.join(ARCHIVES)})")
            return cls(root, {}, {root.name: root})
        files: dict[str, Path] = {}
        archives: dict[str, Path] = {}
        closed = []
        for file in _walk(root):
            name = file.relative_to(root).as_posix()
            # Down to one sub-folder: an archive that lies deeper is part of the data.
            if not is_archive(name) or name.count("/") > 1:
                files[name] = file
            elif re.search(hint, name, re.IGNORECASE):
                archives[name] = file
            else:
                closed.append(name)
        return cls(root, files, archives, hint, closed)

    @property
    def files(self) -> list[str]:
        """The names of the files that lie in the folder itself; unpacks no archive."""
        return list(self._files)

    @property
    def names(self) -> list[str]:
        """All names, for which every archive that matches the hint is unpacked."""
        names = self.files
        for archive in self._archives:
            names += [f"{archive}!/{inner}" for inner in self._unpack(archive).members]
        return names

    def read(self, name: str) -> bytes:
        """Return the content of a file or of a member.

        Raises:
            InputError: there is none of that name, or it cannot be read.
        """
        archive, _, inner = name.partition("!/")
        with explain_errors(name):
            if name in self._files:
                return self._files[name].read_bytes()
            if archive in self._archives and inner in self._unpack(archive).members:
                return self._unpack(archive).read(inner)
        raise InputError(f"{name}: not in {self.path}")

    def find(self, *endings: str) -> str | None:
        """Return the one name that is, or ends in, the first of these that exists.

        Files go before members: no archive is unpacked without need.
        """
        return self._find(self.files, endings) or self._find(self.names, endings)

    def _find(self, names: list[str], endings: Iterable[str]) -> str | None:
        for ending in endings:
            matches = [name for name in names if f"/{name}".endswith(f"/{ending}")]
            if len(matches) > 1:
                raise InputError(
                    f"{self.path}: has {ending} more than once ({matches[0]}, {matches[1]}); "
                    "name one folder"
                )
            if matches:
                return matches[0]
        return None

    def need(self, *endings: str) -> str:
        """Return what ``find`` does.

        Raises:
            NoFiles: there is no such name.
        """
        name = self.find(*endings)
        if name is None:
            raise NoFiles(f"{self.path}: has no {' or '.join(endings)}{self._closed_archives()}")
        return name

    def _closed_archives(self) -> str:
        """Return the end of a line on what is missing: archives that might have it."""
        if not self._closed:
            return ""
        names = ", ".join(self._closed[:3]) + (", ..." if len(self._closed) > 3 else "")
        if len(self._closed) == 1:
            return f"; {names} was not opened: its name has no {self._hint!r}"
        return f"; {names} were not opened: their names have no {self._hint!r}"

    def _unpack(self, archive: str) -> Unpacked:
        if archive not in self._unpacked:
            self._unpacked[archive] = unpack(self._archives[archive], archive)
        return self._unpacked[archive]


def _walk(folder: Path, above: frozenset[Path] = frozenset()) -> Iterator[Path]:
    """Yield the files below a folder in natural order; links are followed, but not in circles."""
    real = folder.resolve()
    if real in above:
        return
    with explain_errors(str(folder)):
        entries = [entry for entry in folder.iterdir() if not is_hidden(entry.name)]
        entries.sort(key=lambda entry: natural_key(entry.name))
        folders = {entry for entry in entries if entry.is_dir()}
    for entry in entries:
        if entry in folders:
            yield from _walk(entry, above | {real})
        elif entry.is_file():
            yield entry


def natural_key(text: str) -> tuple[tuple[str | int, ...], str]:
    """Return a sort key by which 'a10' comes after 'a9'.

    >>> sorted(["a10", "a9", "b1"], key=natural_key)
    ['a9', 'a10', 'b1']
    """
    parts = re.split(r"([0-9]+)", text)  # text and numbers by turns, so that keys can be compared
    return tuple(int(part) if i % 2 else part for i, part in enumerate(parts)), text


@contextmanager
def open_files(
    path: str, name: str, hint: str, has: Callable[[Tree], bool] = lambda tree: True
) -> Iterator[Tree]:
    """Look into the first place that has the files of a data set.

    Args:
        path: the place that a recipe names; it is then the only one.
        name: what ``fedbr data get`` calls the files.
        hint: what the names of their archives have in them.
        has: says whether the files are there.

    Yields:
        The files of that place.

    Raises:
        NoFiles: no place has them; the message says where they were looked for and what helps.
    """
    advice = f"see fedbr data get {name}, or say where the files are: data.path or $FEDBR_DATA"
    if name == "folder":
        advice = "expected images in <class>/<image> or <client>/<class>/<image>"
    first, downloads = choose_folder(path), [data_folder(), old_data_folder()]
    if not first.exists() and first != data_folder():
        key = "data.path" if path else "$FEDBR_DATA"
        raise NoFiles(f"{key} = {str(first)!r}: there is no such file or folder; {advice}")
    places = [first]
    if not path:
        places = list(dict.fromkeys([first, *downloads]))  # each once
    existing = [place for place in places if place.exists()]
    if not existing:
        raise NoFiles(f"{name}: nothing was downloaded into {first} yet; {advice}")
    for place in existing:
        with _explain_errors(Tree.open(place, hint), name, advice) as tree:
            if places == [first] or has(tree):
                yield tree
                return
    raise NoFiles(
        f"$FEDBR_DATA = {str(first)!r} has no files of {name}, nor has {data_folder()}; {advice}"
    )


@contextmanager
def _explain_errors(tree: Tree, name: str, advice: str) -> Iterator[Tree]:
    try:
        yield tree
    except InputError as error:
        raise type(error)(_explain(str(error), tree.path, name, advice)) from error


def _explain(error: str, root: Path, name: str, advice: str) -> str:
    """Add to what is wrong with a file where it lies and what can be done."""
    if error.startswith(("data.path = ", f"{root}: ")):  # about the place as a whole
        return f"{error}; {advice}" if " has no " in error else error
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
