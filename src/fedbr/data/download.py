"""Fetch the official files of a data set, when asked and only then: resumed, and checked before
they get their name.
"""

from __future__ import annotations

import gzip
import hashlib
import http.client
import re
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ..util.errors import InputError, RunError, unknown

Progress = Callable[[int, int], None]  # bytes done, bytes in all

TIMEOUT = 30.0  # seconds without a byte
TRIES = 3  # in a row that gain nothing
PAUSE = 0.5  # seconds before the second try, doubled before each further one
CHUNK = 2**16


@dataclass(frozen=True)
class Remote:
    """A file that somebody publishes."""

    name: str
    size: int
    md5: str
    addresses: Sequence[str]  # tried in turn
    content_md5: str = ""  # of what the gzip file holds: a copy that was compressed anew is as good


def _mnist(name: str, size: int, md5: str, content_md5: str) -> Remote:
    mirrors = (
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
    )
    return Remote(name, size, md5, tuple(mirror + name for mirror in mirrors), content_md5)


def _cifar(name: str, size: int, md5: str) -> Remote:
    return Remote(name, size, md5, (f"https://www.cs.toronto.edu/~kriz/{name}",))


SOURCES: Mapping[str, Sequence[Remote]] = {
    "mnist": (
        _mnist(
            "train-images-idx3-ubyte.gz",
            9912422,
            "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "6bbc9ace898e44ae57da46a324031adb",
        ),
        _mnist(
            "train-labels-idx1-ubyte.gz",
            28881,
            "d53e105ee54ea40749a09fcbcd1e9432",
            "a25bea736e30d166cdddb491f175f624",
        ),
        _mnist(
            "t10k-images-idx3-ubyte.gz",
            1648877,
            "9fb629c4189551a2d022fa330f9573f3",
            "2646ac647ad5339dbf082846283269ea",
        ),
        _mnist(
            "t10k-labels-idx1-ubyte.gz",
            4542,
            "ec29112dd5afa0611ce80d1b7f02629c",
            "27ae3e4e09519cfbb04c329615203637",
        ),
    ),
    "cifar10": (_cifar("cifar-10-binary.tar.gz", 170052171, "c32a1d4ab5d03f1284b67883e8d87530"),),
    "cifar100": (_cifar("cifar-100-binary.tar.gz", 168513733, "03b5dce01913d631647c71ecec9e9cb8"),),
}
BY_HAND = {
    "pacs": "has no stable official address: get it from the Domain Generalization project page "
    "(https://domaingeneralization.github.io, Data) and put it into {target} as <domain>/<class>/<image> with the "
    "domains art_painting, cartoon, photo and sketch, unpacked or as one .zip or .tar.gz",
}


class _Broken(Exception):
    """The connection failed; another try may help."""


class _Refused(Exception):
    """The address does not have the file; another try will not help."""


def get(
    name: str,
    target: Path,
    progress: Progress | None = None,
    sources: Mapping[str, Sequence[Remote]] = SOURCES,
) -> list[Path]:
    """Bring the official files of a data set into a folder, those that are not there yet; return
    their paths.
    """
    if name in BY_HAND:
        raise InputError(f"{name}: {BY_HAND[name].format(target=target)}")
    if name not in sources:
        raise unknown("data set", name, [*sources, *BY_HAND])
    remotes = sources[name]
    total = sum(remote.size for remote in remotes)
    try:
        with _folder(target):
            there = {remote.name: _find(remote, target) for remote in remotes}
            missing = [remote for remote in remotes if there[remote.name] is None]
            for i, remote in enumerate(missing):
                before = total - sum(r.size for r in missing[i:])
                try:
                    _fetch(remote, target, partial(_tick, progress, before, total))
                except _Broken as error:
                    raise RunError(f"{name}: {error}; {_advice(missing[i:], target)}") from error
    except OSError as error:
        raise InputError(
            f"{error.filename or target}: cannot be used ({error.strerror or error})"
        ) from error
    if progress:
        progress(total, total)
    return [there[remote.name] or target / remote.name for remote in remotes]


@contextmanager
def _folder(target: Path) -> Iterator[None]:
    """Make a folder; if then something fails, no empty one stays."""
    new = [folder for folder in (target, *target.parents) if not folder.exists()]
    target.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        with suppress(OSError):  # not empty: what is there helps the next time
            for folder in new:
                folder.rmdir()
        raise


def _tick(progress: Progress | None, before: int, total: int, done: int) -> None:
    if progress:
        progress(before + done, total)


def _advice(missing: Sequence[Remote], target: Path) -> str:
    wanted = " ".join(remote.addresses[0] for remote in missing)
    return f"try again, or download {wanted} and put {'it' if len(missing) == 1 else 'them'} into {target}"


def _find(remote: Remote, target: Path) -> Path | None:
    """Return where the file is: in the folder, or in one below it."""
    paths = [
        path
        for path in (target / remote.name, *sorted(target.glob(f"*/{remote.name}")))
        if path.exists()
    ]
    if not paths:
        return None
    path = paths[0]
    found = md5(path)
    if found != remote.md5 and not (
        remote.content_md5 and _content_md5(path) == remote.content_md5
    ):
        # Not ours to overwrite: it may be a part of the data set that somebody made.
        raise InputError(
            f"{path}: not the official file (MD5 {found}, {remote.md5} expected); move it away first"
        )
    return path


def md5(path: Path) -> str:
    """Return the checksum by which files are published."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _content_md5(path: Path) -> str:
    try:
        content = gzip.decompress(path.read_bytes())
    except (EOFError, zlib.error, gzip.BadGzipFile):
        return ""
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def _fetch(remote: Remote, target: Path, tick: Callable[[int], None]) -> None:
    """Download one file into its .part, from wherever it comes, and name it when its checksum is
    right.
    """
    part = target / f"{remote.name}.part"
    addresses, reason = list(remote.addresses), "no address"
    furthest, failures = _size(part), 0
    while addresses and failures < TRIES:
        if failures:
            time.sleep(PAUSE * 2 ** (failures - 1))
        failures += 1
        for address in tuple(addresses):
            start = _size(part)
            try:
                _transfer(address, remote, part, tick)
            except _Refused as error:
                addresses.remove(address)
                reason = str(error)
            except _Broken as error:
                reason = str(error)
            else:
                found = md5(part)
                if found == remote.md5:
                    part.replace(target / remote.name)
                    return
                part.unlink()
                reason = f"{address} has MD5 {found}, {remote.md5} expected"
                if not start:  # else the fault may lie in what was there before
                    addresses.remove(address)
            if _size(part) > furthest:
                furthest, failures = _size(part), 0
    if not _size(part):
        part.unlink(missing_ok=True)
    raise _Broken(reason)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _transfer(address: str, remote: Remote, part: Path, tick: Callable[[int], None]) -> None:
    """Download what is still missing in the .part file."""
    done = _size(part)
    if done == remote.size:
        return
    response = _ask(address, done if done < remote.size else 0)
    with response:
        done, total = _offered(address, response)
        if total not in (None, remote.size):
            raise _Refused(f"{address} has {total} bytes, {remote.size} expected")
        if done not in (0, _size(part)):
            raise _Refused(f"{address} sends from byte {done}, which was not asked")
        with part.open(
            "ab" if done else "wb"
        ) as file:  # a server that ignores the range starts over
            tick(done)
            while done < remote.size and (chunk := _read(address, response)):
                file.write(chunk[: remote.size - done])
                done = min(done + len(chunk), remote.size)
                tick(done)
    if done < remote.size:
        raise _Broken(f"{address}: the connection broke at byte {done} of {remote.size}")


def _ask(address: str, start: int) -> http.client.HTTPResponse:
    headers = {"User-Agent": "fedbr", "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    try:
        response: http.client.HTTPResponse = urllib.request.urlopen(
            urllib.request.Request(address, headers=headers), timeout=TIMEOUT
        )
        return response
    except urllib.error.HTTPError as error:
        error.close()
        kind = _Broken if error.code >= 500 or error.code in (408, 429) else _Refused
        raise kind(f"{address} answers {error.code} {error.reason}") from error
    except (OSError, http.client.HTTPException) as error:
        raise _Broken(_why(address, error)) from error


def _offered(address: str, response: http.client.HTTPResponse) -> tuple[int, int | None]:
    """Return the byte at which the answer starts, and the size of the whole file if it is told."""
    if response.status == 206:
        found = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", ""))
        if not found:
            raise _Refused(f"{address} sends a part without saying which")
        return int(found[1]), int(found[2]) if found[2] != "*" else None
    length = response.headers.get("Content-Length", "")
    return 0, int(length) if length.isdecimal() else None


def _read(address: str, response: http.client.HTTPResponse) -> bytes:
    try:
        return response.read1(CHUNK)
    except (OSError, http.client.HTTPException) as error:  # kept apart from the errors of the disk
        raise _Broken(_why(address, error)) from error


def _why(address: str, error: Exception) -> str:
    reason = getattr(error, "reason", None) or error
    text = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
    return f"{address} cannot be reached ({' '.join(text.split())})"
