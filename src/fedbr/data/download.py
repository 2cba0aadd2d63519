"""Download the published files of a data set, when asked and only then."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pooch
from requests import HTTPError, RequestException, Response
from requests.exceptions import ChunkedEncodingError

from ..util.errors import InputError, RunError
from .published import Published, RemoteFile, md5_of

Progress = Callable[[int, int], None]  # bytes done, bytes in all

TIMEOUT = 30.0  # seconds without a byte
TRIES = 3  # that gain nothing, of each address
CHUNK = 2**16  # bytes that are written together


def get(published: Published, target: Path, progress: Progress | None = None) -> list[Path]:
    """Download the files of a data set that are not in a folder yet.

    An interrupted download goes on where it stopped, and a file gets its name when its checksum is
    the published one. A file that is there already is not touched.

    Args:
        published: the files.
        target: the folder.
        progress: is called with the bytes so far and in all.

    Returns:
        Where the files are.

    Raises:
        InputError: nothing can be downloaded, the folder cannot be used, or it has another file of
            that name.
        RunError: no address delivers the file; the message says how to go on.
    """
    if published.by_hand:
        raise InputError(f"{published.name}: {published.by_hand.format(target=target)}")
    files = published.files
    total = sum(file.size for file in files)
    try:
        with _folder(target):
            existing = {file.name: _find(file, target) for file in files}
            missing = [file for file in files if existing[file.name] is None]
            for i, file in enumerate(missing):
                before = total - sum(rest.size for rest in missing[i:])
                try:
                    _fetch(file, target, partial(_report, progress, before, total))
                except ValueError as error:
                    advice = _advice(missing[i:], target)
                    raise RunError(f"{published.name}: {error}; {advice}") from error
    except OSError as error:
        raise InputError(
            f"{error.filename or target}: cannot be used ({error.strerror or error})"
        ) from error
    _report(progress, total, total, 0)
    return [existing[file.name] or target / file.name for file in files]


def _report(progress: Progress | None, before: int, total: int, done: int) -> None:
    if progress:
        progress(before + done, total)


def _advice(missing: Sequence[RemoteFile], target: Path) -> str:
    addresses = " ".join(file.addresses[0] for file in missing)
    them = "it" if len(missing) == 1 else "them"
    return f"try again, or download {addresses} and put {them} into {target}"


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


def _find(file: RemoteFile, target: Path) -> Path | None:
    """Return where a file is: in the folder, or in one below it."""
    candidates = [target / file.name, *sorted(target.glob(f"*/{file.name}"))]
    path = next((path for path in candidates if path.exists()), None)
    if path is None:
        return None
    md5 = md5_of(path)
    same_content = file.content_md5 and _content_md5(path) == file.content_md5
    if md5 != file.md5 and not same_content:
        # Not ours to overwrite: it may be a part of the data set that somebody made.
        raise InputError(
            f"{path}: not the official file (MD5 {md5}, {file.md5} expected); move it away first"
        )
    return path


def _content_md5(path: Path) -> str:
    try:
        content = gzip.decompress(path.read_bytes())
    except (EOFError, zlib.error, gzip.BadGzipFile):
        return ""
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def _fetch(file: RemoteFile, target: Path, report: Callable[[int], None]) -> None:
    """Download a file from the first of its addresses that delivers it.

    Raises ValueError, with what is wrong with the last of them, if none does.
    """
    pooch.get_logger().setLevel("WARNING")  # it announces every file
    reason = "no address"
    for address in file.addresses:
        downloader = pooch.create(
            target,
            base_url="",
            registry={file.name: f"md5:{file.md5}"},
            urls={file.name: address},
            retry_if_failed=TRIES - 1,
        )
        part = _Part(file, target / f"{file.name}.part", report)
        furthest = -1
        while part.size > furthest:  # as long as it gets on
            furthest = part.size
            try:
                downloader.fetch(file.name, downloader=part)
                return
            except (ValueError, RequestException) as error:
                reason = _reason(address, error)
            finally:
                part.remove_if_empty()
    raise ValueError(reason)


def _reason(address: str, error: Exception) -> str:
    """Say in one line why an address does not deliver."""
    if isinstance(error, HTTPError) and error.response is not None:
        return f"{address} answers {error.response.status_code} {error.response.reason}"
    if not isinstance(error, RequestException):
        return f"{address}: {' '.join(str(error).split()).rstrip('.')}"
    innermost: BaseException = error  # of those that libraries wrap around each other
    while innermost.__context__ is not None:
        innermost = innermost.__context__
    words = getattr(innermost, "strerror", None) or str(innermost) or type(innermost).__name__
    return f"{address} cannot be reached ({' '.join(str(words).split())})"


class _Part:
    """A file that pooch downloads into; it goes on with what an earlier attempt left."""

    def __init__(self, file: RemoteFile, path: Path, report: Callable[[int], None]) -> None:
        self.file, self.path, self.report = file, path, report

    @property
    def size(self) -> int:
        """Bytes that are there."""
        return self.path.stat().st_size if self.path.exists() else 0

    def __call__(self, url: str, output_file: str, _: object) -> None:
        """Download what is missing, as pooch asks its downloaders to."""
        if self.size > self.file.size:
            self.path.unlink()
        if self.size < self.file.size:
            headers = {"User-Agent": "fedbr", "Accept-Encoding": "identity"}
            if self.size:
                headers["Range"] = f"bytes={self.size}-"
            http = pooch.HTTPDownloader(
                chunk_size=CHUNK, headers=headers, timeout=TIMEOUT, hooks={"response": self._begin}
            )
            with self.path.open("ab") as self._opened, suppress(ChunkedEncodingError):
                http(url, self, None)
        if self.size < self.file.size:
            raise ValueError(f"the connection broke at byte {self.size} of {self.file.size}")
        self.path.replace(output_file)  # of which pooch compares the checksum

    def _begin(self, response: Response, **_: object) -> None:
        """Look at what a server says before its content comes."""
        if response.status_code == 200:  # all of it, whatever was asked for
            self._opened.seek(0)
            self._opened.truncate()
            length = response.headers.get("Content-Length", "")
            if length.isdecimal() and int(length) != self.file.size:
                raise ValueError(f"has {length} bytes, {self.file.size} expected")

    def write(self, chunk: bytes) -> None:
        """Write what comes, but no more than is expected."""
        self._opened.write(chunk[: self.file.size - self._opened.tell()])
        self.report(self._opened.tell())

    def flush(self) -> None:
        self._opened.flush()

    def remove_if_empty(self) -> None:
        if not self.size:
            self.path.unlink(missing_ok=True)
