"""Files as data sets come: folders, archives, IDX, CIFAR records, images; and a cache of what was made of them."""

from __future__ import annotations

import gzip
import hashlib
import io
import math
import os
import re
import shutil
import stat
import sys
import tarfile
import tempfile
import threading
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import chain, takewhile
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple, Self

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray
from safetensors import SafetensorError

from ..core.errors import InputError

Bytes = NDArray[np.uint8]
Arrays = dict[str, NDArray[Any]]
Members = dict[str, Callable[[], bytes]]  # name inside the archive -> how to read it
Progress = Callable[[int, int], None]  # done, total

ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz")
IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
DECODERS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "PPM")  # not EPS, which would start another program
CACHE_VERSION = "1"  # part of every key: raise it when the meaning of what is stored changes
CHECKSUM = "fedbr-crc32"  # beside the arrays, since safetensors has none
GZIP = b"\x1f\x8b"
CIFAR_SHAPE = (3, 32, 32)

_IN_MEMORY = 2**29  # bytes of a decompressed tar; a larger one goes to a temporary file without a name
_CHUNK = 2**20
_MEMBER = re.compile(r"(\.zip|\.tar|\.tar\.gz|\.tgz)!/", re.IGNORECASE)


class Tree:
    """A read-only view of a folder and the archives in it, or of one archive; hidden files are left out.

    Archives are read in place, when first needed. A member is named after its archive: ``a.zip!/inner/name``.
    """

    def __init__(self, path: Path, files: Mapping[str, Path], archives: Mapping[str, Path]) -> None:
        self.path = path
        self._files, self._archives = files, archives
        self._open = ExitStack()
        self._listed: dict[str, Members] = {}

    @classmethod
    def open(cls, path: Path | str, hint: str = "") -> Self:
        """Look at a folder or an archive; in a folder only archives whose name matches ``hint`` are seen."""
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
        # One level of sub-folders: an archive that lies deeper is part of the data, not its wrapping.
        archives = {name: file for name, file in found.items() if _is_archive(name) and name.count("/") < 2}
        files = {name: file for name, file in found.items() if name not in archives}
        return cls(root, files, {name: f for name, f in archives.items() if re.search(hint, name, re.IGNORECASE)})

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
        """All names; every archive that matches the hint is listed, for which a tar.gz is decompressed."""
        return [
            *self._files,
            *(f"{archive}!/{inner}" for archive in self._archives for inner in self._members(archive)),
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
        """Return the one name that is, or ends in, the first of these that exists; files go before members."""
        return self._find(self.files, endings) or self._find(self.names, endings)  # opens no archive without need

    def _find(self, names: list[str], endings: Iterable[str]) -> str | None:
        for ending in endings:
            found = [name for name in names if name == ending or name.endswith("/" + ending)]
            if len(found) > 1:
                raise InputError(f"{self.path}: has {ending} more than once ({found[0]}, {found[1]}); name one folder")
            if found:
                return found[0]
        return None

    def need(self, *endings: str) -> str:
        """Find, or say what is missing."""
        found = self.find(*endings)
        if found is None:
            raise InputError(f"{self.path}: has no {' or '.join(endings)}")
        return found

    def contents(self, pattern: str = "") -> Iterator[bytes | str]:
        """Yield names and bytes of what lies on disk, archives unopened: parts of a key for ``cached``."""
        for name, path in {**self._files, **self._archives}.items():
            if re.search(pattern, name, re.IGNORECASE):
                yield name
                with _refusing(name), path.open("rb") as file:
                    while chunk := file.read(_CHUNK):
                        yield chunk

    def _members(self, archive: str) -> Members:
        if archive not in self._listed:
            listing = _zip if archive.lower().endswith(".zip") else _tar
            with _refusing(archive):
                members = listing(archive, self._archives[archive], self._open)
            self._listed[archive] = {inner: read for inner, read in members.items() if not _hidden(inner)}
        return self._listed[archive]


def _is_archive(name: str) -> bool:
    return name.lower().endswith(ARCHIVES)


def _hidden(name: str) -> bool:
    return any(part.startswith(".") or part == "__MACOSX" for part in name.split("/"))


def _walk(folder: Path, above: frozenset[Path] = frozenset()) -> Iterator[Path]:
    """Yield the files below a folder in the order of their names; links are followed, but not in circles."""
    real = folder.resolve()
    if real in above:
        return
    with _refusing(str(folder)):
        entries = sorted((e for e in folder.iterdir() if not _hidden(e.name)), key=lambda e: natural(e.name))
        folders = {entry for entry in entries if entry.is_dir()}
    for entry in entries:
        if entry in folders:
            yield from _walk(entry, above | {real})
        elif entry.is_file():
            yield entry


@contextmanager
def _refusing(what: str) -> Iterator[None]:
    """Turn whatever the file system and the archive modules raise into one line that names the file."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # the modules raise almost anything on damaged archives
        reason = (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__
        raise InputError(f"{what}: cannot be read ({' '.join(reason.split())})") from error


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
        raise InputError(f"{archive}: ends at byte {size} without the directory of a zip: cut short?") from error
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
    """Return a tar in which one can seek; a compressed one is decompressed once, whatever is read of it."""
    packed = file.read(len(GZIP)) == GZIP  # by content: some servers decompress on the way
    file.seek(0)
    if not packed:
        return file
    whole = stack.enter_context(tempfile.SpooledTemporaryFile(_IN_MEMORY))  # noqa: SIM115 - the stack closes it
    try:
        shutil.copyfileobj(gzip.GzipFile(fileobj=file), whole, _CHUNK)
    except EOFError as error:
        raise InputError(f"{archive}: ends at byte {file.tell()}, in the middle of its compressed data") from error
    except (zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{archive}: damaged before byte {file.tell()} ({error})") from error
    whole.seek(0)
    return whole


def read_idx(name: str, blob: bytes, dimensions: int | None = None) -> Bytes:
    """Read an IDX file of bytes (MNIST), gzip or plain; the header says how many records there are."""
    content, where = (_gunzip(name, blob), " when decompressed") if blob[:2] == GZIP else (blob, "")

    def check_length(least: int, expected: str) -> None:
        if len(content) < least:
            raise InputError(f"{name}: ends at byte {len(content)}{where}, {expected} expected")

    check_length(4, "at least 8")
    if content[:2] != b"\0\0":
        raise InputError(f"{name}: bytes 0 and 1 are {content[0]} and {content[1]}, must be 0: not an IDX file")
    if content[2] != 8:
        raise InputError(f"{name}: byte 2 is {content[2]}, must be 8: not an IDX file of bytes")
    if content[3] == 0 or dimensions not in (None, content[3]):
        raise InputError(f"{name}: byte 3 is {content[3]}, must be {dimensions or 'at least 1'}: the dimensions")
    start = 4 + 4 * content[3]
    check_length(start, f"at least {start}")
    shape = tuple(int(n) for n in np.frombuffer(content[4:start], ">u4"))
    end = start + math.prod(shape)
    check_length(end, str(end))
    if len(content) > end:
        raise InputError(f"{name}: goes on after byte {end}{where}, where {' × '.join(map(str, shape))} bytes end")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape).copy()  # not a view: writable


def _gunzip(name: str, blob: bytes) -> bytes:
    """Decompress; what is cut short comes back as far as it goes, since its header tells what is missing."""
    try:
        return gzip.decompress(blob)
    except EOFError:
        return zlib.decompressobj(wbits=31).decompress(blob)
    except (zlib.error, gzip.BadGzipFile) as error:
        unpack, position = zlib.decompressobj(wbits=31), 0
        try:  # once more in small steps, to know where
            for position in range(0, len(blob), 1024):
                unpack.decompress(blob[position : position + 1024])
        except zlib.error:
            pass
        raise InputError(f"{name}: damaged near byte {position} ({error})") from error


def read_cifar(name: str, blob: bytes, label_bytes: int, maximum: int | Sequence[int] = 255) -> tuple[Bytes, Bytes]:
    """Read CIFAR records: x [n, 3, 32, 32] and labels [n, label_bytes]; ``maximum`` is the largest label (of each)."""
    record = label_bytes + math.prod(CIFAR_SHAPE)
    count, rest = divmod(len(blob), record)
    if rest or not count:
        raise InputError(
            f"{name}: ends at byte {len(blob)}, its last whole record (of {record} bytes) at byte {count * record}"
        )
    table = np.frombuffer(blob, np.uint8).reshape(count, record)
    labels = table[:, :label_bytes].copy()
    limits = np.broadcast_to(maximum, label_bytes)
    for row, column in np.argwhere(labels > limits)[:1]:
        at = f"record {row}, byte {row * record + column}"
        raise InputError(f"{name}: {at}: label {labels[row, column]}, at most {limits[column]} expected")
    return table[:, label_bytes:].reshape(count, *CIFAR_SHAPE).copy(), labels


def read_images(
    tree: Tree,
    names: Sequence[str],
    size: int,
    mode: Literal["RGB", "L"] = "RGB",
    progress: Progress | None = None,
) -> Bytes:
    """Decode images to [n, 3 or 1, size, size]; those of another size are resized (bilinear, all pixels count)."""
    x = np.empty((len(names), len(mode), size, size), np.uint8)
    for i, name in enumerate(names):
        x[i] = _pixels(name, tree.read(name), size, mode)
        if progress and ((i + 1) % 100 == 0 or i + 1 == len(names)):
            progress(i + 1, len(names))
    return x


def _pixels(name: str, blob: bytes, size: int, mode: str) -> Bytes:
    from PIL import Image  # a data set without images need not wait for it

    try:
        with Image.open(io.BytesIO(blob), formats=DECODERS) as image:
            if image.mode.startswith("I"):  # 16 bits a pixel, which convert would cut off at 255
                wide = np.asarray(image).astype(np.int64)
                plain = Image.fromarray(
                    (wide >> 8 if image.mode != "I" or wide.max() > 255 else wide).clip(0, 255).astype(np.uint8)
                )
            else:
                plain = image.convert("RGBA") if "transparency" in image.info else image
            plain = plain.convert(mode)  # before resizing: a palette cannot be interpolated
            if plain.size != (size, size):
                plain = plain.resize((size, size), Image.Resampling.BILINEAR)
            return np.asarray(plain).reshape(size, size, len(mode)).transpose(2, 0, 1)
    except Exception as error:  # the decoders raise almost anything on damaged files
        why = re.sub(r" ?<[^>]*>", "", " ".join(str(error).split()))
        raise InputError(f"{name}: not an image that can be read ({why})") from error


class Item(NamedTuple):
    """A file of a class, and of a client where the folders say so."""

    client: str | None
    label: str
    name: str


class ClassFolders(NamedTuple):
    """What folders say about their files; everything is in natural order."""

    items: list[Item]
    classes: list[str]
    clients: list[str]


def class_folders(names: Iterable[str]) -> ClassFolders:
    """Recognise <class>/<image> and <client>/<class>/<image>, below any number of common folders."""
    images = [name for name in names if name.lower().endswith(IMAGES) and not _hidden(name)]
    folders = [_MEMBER.sub("/", name).split("/")[:-1] for name in images]  # an archive is a folder too
    levels = zip(
        *(parts[:-1] for parts in folders), strict=False
    )  # the innermost is a class even if it is the only one
    common = sum(1 for _ in takewhile(lambda level: len(set(level)) == 1, levels))
    depths = [len(parts) - common for parts in folders]
    if images and set(depths) not in ({1}, {2}):
        (usual, _), *others = Counter(depths).most_common()
        odd = min(others, key=lambda pair: pair[1])[0] if others else usual
        raise InputError(
            f"{images[depths.index(odd)]}: lies {odd} folders deep{f', others {usual}' if others else ''}; "
            "all images must be <class>/<image>, or all <client>/<class>/<image>"
        )
    items = [
        Item(parts[-2] if depth == 2 else None, parts[-1], name)
        for name, parts, depth in zip(images, folders, depths, strict=True)
    ]
    items.sort(key=lambda item: (natural(item.client or ""), natural(item.label), natural(item.name)))
    classes = sorted({item.label for item in items}, key=natural)
    return ClassFolders(items, classes, sorted({i.client for i in items if i.client is not None}, key=natural))


def natural(text: str) -> tuple[tuple[str | int, ...], str]:
    """Return a sort key by which 'a10' comes after 'a9'."""
    parts = re.split(r"([0-9]+)", text)  # text and numbers by turns, so that keys can be compared
    return tuple(int(part) if i % 2 else part for i, part in enumerate(parts)), text


def cache_folder() -> Path:
    """Return $FEDBR_CACHE, or else our folder where the platform keeps such things."""
    if own := os.environ.get("FEDBR_CACHE"):
        return Path(own).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "fedbr"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "fedbr" / "cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fedbr"


def cached(key_parts: Iterable[bytes | str], make: Callable[[], Arrays]) -> Arrays:
    """Return what ``make`` makes, from disk if it was made before from the same parts."""
    digest = hashlib.sha256()
    for part in chain([CACHE_VERSION], key_parts):
        content = part.encode("utf-8", "surrogateescape") if isinstance(part, str) else part
        digest.update(f"{type(part).__name__} {len(content)} ".encode())  # so that parts cannot run together
        digest.update(content)
    path = cache_folder() / f"{digest.hexdigest()}.safetensors"
    arrays = _load(path)
    if arrays is None:
        # safetensors writes the memory as it lies there, whatever the strides.
        arrays = {k: np.asarray(a, a.dtype.newbyteorder("="), order="C") for k, a in make().items()}
        _store(path, arrays)
    return arrays


def _checksum(arrays: Arrays) -> NDArray[np.uint32]:
    total = 0
    for key, array in sorted(arrays.items()):
        total = zlib.crc32(f"{key} {array.dtype.str} {array.shape}".encode(), total)
        total = zlib.crc32(array.reshape(-1).view(np.uint8).data, total)
    return np.array(total, np.uint32)


def _load(path: Path) -> Arrays | None:
    try:
        arrays = dict(safetensors.numpy.load_file(path))
        return arrays if arrays.pop(CHECKSUM) == _checksum(arrays) else None
    except Exception:  # not there, or damaged in whatever way
        return None


def _store(path: Path, arrays: Arrays) -> None:
    temporary = path.with_name(f".{path.stem}-{os.getpid()}-{threading.get_ident()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            safetensors.numpy.save_file({**arrays, CHECKSUM: _checksum(arrays)}, temporary)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except (OSError, SafetensorError):
        pass  # a cache that cannot be written only costs time
