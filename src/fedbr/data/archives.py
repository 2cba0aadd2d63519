"""Folders and archives, read in place: what a data set's files are called and what is in them."""

from __future__ import annotations

import gzip
import re
import shutil
import stat
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Self

from ..util.errors import InputError, NoFiles

Members = dict[str, Callable[[], bytes]]  # name inside the archive -> how to read it

ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz")
MEMBER = re.compile(r"(\.zip|\.tar|\.tar\.gz|\.tgz)!/", re.IGNORECASE)
GZIP = b"\x1f\x8b"

_IN_MEMORY = (
    2**29
)  # bytes of a decompressed tar; a larger one goes to a temporary file without a name
_CHUNK = 2**20


class Tree:
    """A read-only view of a folder and the archives in it, or of one archive; hidden files are left
    out.

    Archives are read in place, when first needed. A member is named after its archive:
    ``a.zip!/inner/name``.
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
        self._open = ExitStack()
        self._listed: dict[str, Members] = {}

    @classmethod
    def open(cls, path: Path | str, hint: str = "") -> Self:
        """Look at a folder or an archive; in a folder only archives whose name matches ``hint`` are
        seen.
        """
        root = Path(path).expanduser()
        with _refusing(str(root)):
            there = root.exists()
        if not there:
            raise InputError(f"{root}: there is no such file or folder")
        if not root.is_dir():
            if not _is_archive(root.name):
                raise InputError(f"{root}: neither a folder nor an archive ({', '.join(ARCHIVES)})")
            return cls(root, {}, {root.name: root})
        found = {file.relative_to(root).as_posix(): file for file in _walk(root)}
        # One level of sub-folders: an archive that lies deeper is part of the data, not its
        # wrapping.
        archives = {
            name: file for name, file in found.items() if _is_archive(name) and name.count("/") < 2
        }
        files = {name: file for name, file in found.items() if name not in archives}
        seen = {
            name: file for name, file in archives.items() if re.search(hint, name, re.IGNORECASE)
        }
        return cls(root, files, seen, hint, [name for name in archives if name not in seen])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the archives; they are opened anew if asked again."""
        self._open.close()
        self._listed.clear()

    @property
    def files(self) -> list[str]:
        """The names of the files that lie in the folder itself; opens no archive."""
        return list(self._files)

    @property
    def names(self) -> list[str]:
        """All names; every archive that matches the hint is listed, for which a tar.gz is
        decompressed.
        """
        return [
            *self._files,
            *(
                f"{archive}!/{inner}"
                for archive in self._archives
                for inner in self._members(archive)
            ),
        ]

    def read(self, name: str) -> bytes:
        """Return the content of a file or of a member."""
        with _refusing(name):
            if name in self._files:
                return self._files[name].read_bytes()
            archive, _, inner = name.partition("!/")
            if archive in self._archives and inner in self._members(archive):
                return self._members(archive)[inner]()
        raise InputError(f"{name}: not in {self.path}")

    def find(self, *endings: str) -> str | None:
        """Return the one name that is, or ends in, the first of these that exists; files go before
        members.
        """
        return self._find(self.files, endings) or self._find(
            self.names, endings
        )  # opens no archive without need

    def _find(self, names: list[str], endings: Iterable[str]) -> str | None:
        for ending in endings:
            found = [name for name in names if name == ending or name.endswith("/" + ending)]
            if len(found) > 1:
                raise InputError(
                    f"{self.path}: has {ending} more than once ({found[0]}, {found[1]}); name one folder"
                )
            if found:
                return found[0]
        return None

    def need(self, *endings: str) -> str:
        """Find, or say what is missing."""
        found = self.find(*endings)
        if found is None:
            raise NoFiles(f"{self.path}: has no {' or '.join(endings)}{self.unopened}")
        return found

    @property
    def unopened(self) -> str:
        """The end of a line that says what is missing: archives that might have it, but for their
        names.
        """
        if not self._closed:
            return ""
        names = ", ".join(self._closed[:3]) + (", ..." if len(self._closed) > 3 else "")
        verb, whose = (
            ("was", "its name has") if len(self._closed) == 1 else ("were", "their names have")
        )
        return f"; {names} {verb} not opened: {whose} no {self._hint!r}"

    def _members(self, archive: str) -> Members:
        if archive not in self._listed:
            listing = _zip if archive.lower().endswith(".zip") else _tar
            with _refusing(archive):
                members = listing(archive, self._archives[archive], self._open)
            self._listed[archive] = {
                inner: read for inner, read in members.items() if not hidden(inner)
            }
        return self._listed[archive]


def _is_archive(name: str) -> bool:
    return name.lower().endswith(ARCHIVES)


def hidden(name: str) -> bool:
    return any(part.startswith(".") or part == "__MACOSX" for part in name.split("/"))


def _walk(folder: Path, above: frozenset[Path] = frozenset()) -> Iterator[Path]:
    """Yield the files below a folder in the order of their names; links are followed, but not in
    circles.
    """
    real = folder.resolve()
    if real in above:
        return
    with _refusing(str(folder)):
        entries = sorted(
            (e for e in folder.iterdir() if not hidden(e.name)), key=lambda e: natural(e.name)
        )
        folders = {entry for entry in entries if entry.is_dir()}
    for entry in entries:
        if entry in folders:
            yield from _walk(entry, above | {real})
        elif entry.is_file():
            yield entry


@contextmanager
def _refusing(what: str) -> Iterator[None]:
    """Turn whatever the file system and the archive modules raise into one line that names the
    file.
    """
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # the modules raise almost anything on damaged archives
        reason = (
            (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__
        )
        line = " ".join(f"{what}: cannot be read ({reason})".split())  # names may have line breaks
        raise InputError(line) from error


def _inner(archive: str, name: str) -> str:
    """Return the name of a member in plain form; refuse one that points out of the archive."""
    parts = name.replace("\\", "/").split("/")
    if parts[0] == "" or ".." in parts or re.match("[A-Za-z]:[/\\\\]", name):
        raise InputError(f"{archive}: refused, since its member {name!r} points out of the archive")
    return "/".join(part for part in parts if part not in ("", "."))


def _zip(archive: str, path: Path, stack: ExitStack) -> Members:
    try:
        opened = stack.enter_context(zipfile.ZipFile(path))
    except zipfile.BadZipFile as error:
        size = path.stat().st_size
        raise InputError(
            f"{archive}: ends at byte {size} without the directory of a zip: cut short?"
        ) from error
    members: Members = {}
    for info in opened.infolist():
        name = _inner(archive, info.filename)
        if not info.is_dir() and not stat.S_ISLNK(info.external_attr >> 16):
            members[name] = partial(opened.read, info)
    return members


def _tar(archive: str, path: Path, stack: ExitStack) -> Members:
    file = _decompressed(archive, stack.enter_context(path.open("rb")), stack)
    tar = stack.enter_context(tarfile.TarFile(fileobj=file))
    members: Members = {}
    for info in tar:
        name = _inner(archive, info.name)
        if info.isreg():
            members[name] = partial(_member, tar, info)
        elif info.islnk() and (target := _inner(archive, info.linkname)) in members:
            members[name] = members[target]  # a second name of the same file
    # tarfile takes a broken header for the end: only a block of zeros is one.
    file.seek(tar.offset)
    if file.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
        raise InputError(f"{archive}: damaged or cut short at byte {tar.offset} of the tar")
    return members


def _member(tar: tarfile.TarFile, info: tarfile.TarInfo) -> bytes:
    content = tar.extractfile(info)
    return content.read() if content else b""


def _decompressed(archive: str, file: IO[bytes], stack: ExitStack) -> IO[bytes]:
    """Return a tar in which one can seek; a compressed one is decompressed once, whatever is read
    of it.
    """
    packed = file.read(len(GZIP)) == GZIP  # by content: some servers decompress on the way
    file.seek(0)
    if not packed:
        return file
    whole = stack.enter_context(tempfile.SpooledTemporaryFile(_IN_MEMORY))  # noqa: SIM115 - the stack closes it
    try:
        shutil.copyfileobj(gzip.GzipFile(fileobj=file), whole, _CHUNK)
    except EOFError as error:
        raise InputError(
            f"{archive}: ends at byte {file.tell()}, in the middle of its compressed data"
        ) from error
    except (zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{archive}: damaged before byte {file.tell()} ({error})") from error
    whole.seek(0)
    return whole


def natural(text: str) -> tuple[tuple[str | int, ...], str]:
    """Return a sort key by which 'a10' comes after 'a9'."""
    parts = re.split(r"([0-9]+)", text)  # text and numbers by turns, so that keys can be compared
    return tuple(int(part) if i % 2 else part for i, part in enumerate(parts)), text
