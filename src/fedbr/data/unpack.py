"""Archives, unpacked once into the cache folder.

What is in an archive is kept in one file, one member behind the other: nothing that an archive
says can make a file lie anywhere else, and ten thousand small images are no ten thousand files.
"""

from __future__ import annotations

import atexit
import gzip
import hashlib
import json
import os
import re
import shutil
import stat
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple

from ..util.errors import InputError
from .cache import cache_folder

ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz")
MEMBER = re.compile(r"(\.zip|\.tar|\.tar\.gz|\.tgz)!/", re.IGNORECASE)
GZIP = b"\x1f\x8b"
CONTENT, INDEX = "content", "names.json"

ALWAYS_ALLOWED = 2**30  # bytes that an archive may unpack to, however small it is
RATIO = 100  # times its own size that a larger one may
CHUNK = 2**20


def is_archive(name: str) -> bool:
    """Say whether a file is an archive, by its name.

    >>> is_archive("PACS.ZIP"), is_archive("train.gz")
    (True, False)
    """
    return name.lower().endswith(ARCHIVES)


def is_hidden(name: str) -> bool:
    """Say whether a file, or a folder above it, is one that people do not mean.

    >>> is_hidden("a/.git/x"), is_hidden("__MACOSX/x"), is_hidden("a/b.png")
    (True, True, False)
    """
    return any(part.startswith(".") or part == "__MACOSX" for part in name.split("/"))


@contextmanager
def explain_errors(what: str) -> Iterator[None]:
    """Turn whatever the file system and the archive modules raise into one line."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # the modules raise almost anything on damaged archives
        reason = error.strerror if isinstance(error, OSError) else None
        reason = reason or str(error) or type(error).__name__
        line = " ".join(f"{what}: cannot be read ({reason})".split())  # names may have line breaks
        raise InputError(line) from error


class Member(NamedTuple):
    """A part of the file with the content of an archive."""

    start: int
    size: int


@dataclass(frozen=True)
class Unpacked:
    """What an archive has in it."""

    folder: Path
    members: Mapping[str, Member]

    def read(self, name: str) -> bytes:
        """Return the content of a member; KeyError if there is none of this name."""
        member = self.members[name]
        with (self.folder / CONTENT).open("rb") as file:
            file.seek(member.start)
            return file.read(member.size)


def unpack(archive: Path, name: str) -> Unpacked:
    """Unpack an archive, unless that was done before; hidden files and links are left out.

    Args:
        archive: the file.
        name: of the archive, for messages.

    Raises:
        InputError: it is damaged, its files would lie outside of it or take up too much.
    """
    with explain_errors(name):
        with archive.open("rb") as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
        folder = cache_folder() / "unpacked" / content
        return _read_index(folder) or _unpack_into(folder, archive, name)


def _read_index(folder: Path) -> Unpacked | None:
    """Return what was unpacked before; None: that is not there, or not all of it."""
    try:
        members = json.loads((folder / INDEX).read_text("utf-8"))
        unpacked = Unpacked(folder, {name: Member(*place) for name, place in members.items()})
        end = max((member.start + member.size for member in unpacked.members.values()), default=0)
        return unpacked if (folder / CONTENT).stat().st_size == end else None
    except (OSError, ValueError, TypeError, AttributeError):
        return None


class _Writer:
    """Writes members one behind the other, and remembers where they are."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file
        self.members: dict[str, Member] = {}

    def add(self, name: str, content: IO[bytes]) -> None:
        start = self.file.tell()
        shutil.copyfileobj(content, self.file)
        self.members[name] = Member(start, self.file.tell() - start)


def _unpack_into(folder: Path, archive: Path, name: str) -> Unpacked:
    """Unpack into a new folder, which gets its name when everything is in it."""
    new = _make_folder(folder.parent)
    try:
        with (new / CONTENT).open("wb") as file:
            writer = _Writer(file)
            if archive.name.lower().endswith(".zip"):
                _unpack_zip(archive, name, writer)
            else:
                _unpack_tar(archive, name, writer)
            file.flush()
            os.fsync(file.fileno())
        (new / INDEX).write_text(json.dumps(writer.members), "utf-8")
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise
    if folder.exists() and _read_index(folder) is None:  # somebody deleted a part of it
        shutil.rmtree(folder, ignore_errors=True)
    try:
        return Unpacked(new.rename(folder), writer.members)
    except OSError:  # another process was faster, or the cache cannot be written
        atexit.register(shutil.rmtree, new, ignore_errors=True)
        return Unpacked(new, writer.members)


def _make_folder(parent: Path) -> Path:
    """Make an empty folder in the cache, or somewhere else if that cannot be written."""
    with suppress(OSError):
        parent.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=".", dir=parent))
    return Path(tempfile.mkdtemp(prefix="fedbr-"))


def _plain_name(name: str, inner: str) -> str:
    """Return the name of a member in plain form; refuse one that points out of the archive."""
    parts = inner.replace("\\", "/").split("/")
    if parts[0] == "" or ".." in parts or re.match("[A-Za-z]:[/\\\\]", inner):
        raise InputError(f"{name}: refused, since its member {inner!r} points out of the archive")
    return "/".join(part for part in parts if part not in ("", "."))


def _check_size(name: str, archive: Path, total: int) -> None:
    size = archive.stat().st_size
    if total > max(ALWAYS_ALLOWED, RATIO * size):
        raise InputError(
            f"{name}: refused, since its {size:,} bytes unpack to more than {RATIO} times as many"
        )


def _unpack_zip(archive: Path, name: str, writer: _Writer) -> None:
    try:
        opened = zipfile.ZipFile(archive)
    except zipfile.BadZipFile as error:
        size = archive.stat().st_size
        raise InputError(
            f"{name}: ends at byte {size} without the directory of a zip: cut short?"
        ) from error
    with opened:
        _check_size(name, archive, sum(info.file_size for info in opened.infolist()))
        for info in opened.infolist():
            inner = _plain_name(name, info.filename)
            is_link = stat.S_ISLNK(info.external_attr >> 16)
            if info.is_dir() or is_link or is_hidden(inner):
                continue
            with explain_errors(f"{name}!/{inner}"), opened.open(info) as content:
                writer.add(inner, content)


def _unpack_tar(archive: Path, name: str, writer: _Writer) -> None:
    near = Path(writer.file.name).parent  # where there is room for it
    with archive.open("rb") as file, tempfile.TemporaryFile(dir=near) as whole:
        packed = file.read(len(GZIP)) == GZIP  # by content: some servers decompress on the way
        file.seek(0)
        if packed:
            _decompress(archive, name, file, whole)
        plain = whole if packed else file
        with tarfile.TarFile(fileobj=plain) as tar:
            _unpack_members(archive, name, tar, writer)
            # tarfile takes a broken header for the end: only a block of zeros is one.
            plain.seek(tar.offset)
            if plain.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
                raise InputError(f"{name}: damaged or cut short at byte {tar.offset} of the tar")


def _decompress(archive: Path, name: str, file: IO[bytes], whole: IO[bytes]) -> None:
    content = gzip.GzipFile(fileobj=file)
    try:
        while chunk := content.read(CHUNK):
            whole.write(chunk)
            _check_size(name, archive, whole.tell())
    except EOFError as error:
        raise InputError(
            f"{name}: ends at byte {file.tell()}, in the middle of its compressed data"
        ) from error
    except (zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{name}: damaged before byte {file.tell()} ({error})") from error
    whole.seek(0)


def _unpack_members(archive: Path, name: str, tar: tarfile.TarFile, writer: _Writer) -> None:
    total = 0
    for info in tar:
        inner = _plain_name(name, info.name)
        total += info.size
        _check_size(name, archive, total)  # a sparse file may say any size
        if is_hidden(inner):
            continue
        if info.islnk():
            target = _plain_name(name, info.linkname)
            if target in writer.members:  # a second name of the same file
                writer.members[inner] = writer.members[target]
        elif info.isreg() and (content := tar.extractfile(info)) is not None:
            with explain_errors(f"{name}!/{inner}"):
                writer.add(inner, content)
