"""What is published of the data sets with files, and whether the files that are here are that."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping

from .archives import GZIP
from .download import SOURCES, md5
from .federation import Source
from .sources import cifar, mnist, pacs

RECORDS = {
    "mnist": (60_000, 10_000),
    "cifar10": (50_000, 10_000),
    "cifar100": (50_000, 10_000),
}  # training, test
PACS = {  # images of each class, in the order of pacs.CLASSES; no checksums are published
    "art_painting": (379, 255, 285, 184, 201, 295, 449),
    "cartoon": (389, 457, 346, 135, 324, 288, 405),
    "photo": (189, 202, 182, 186, 199, 280, 432),
    "sketch": (772, 740, 753, 608, 816, 80, 160),
}


def verdict(name: str, path: str, source: Source) -> str:
    """Say whether the files of a data set are the published ones, and how much of them is there."""
    if name == "pacs":
        if some := shortfall(name, path, source):
            return f"not complete: {some}"
        return (
            f"complete: all {sum(map(sum, PACS.values())):,} images (checksums are not published)"
        )
    same = _is_mnist(path) if name == "mnist" else _is_cifar(name, path)
    if same:
        return "official, complete: the checksums are the published ones"
    if some := shortfall(name, path, source):
        return f"not the official files: {some}"
    if same is None:
        return "as many records as the official files; they are unpacked, and only the archive's checksum is published"
    return "not the official files: as many records, but another checksum"


def shortfall(name: str, path: str, source: Source) -> str:
    """Say how much of what is published is there, by its number of records; nothing if it is all."""
    if name == "pacs":
        return _pacs_shortfall(pacs.count(path))
    counts = [
        (len(part), whole)
        for part, whole in zip((source.train, source.test), RECORDS[name], strict=True)
    ]
    if all(count == whole for count, whole in counts):
        return ""
    train, test = (f"{count:,} of {whole:,}" for count, whole in counts)
    return f"{train} training and {test} test records"


def _is_mnist(path: str) -> bool:
    """Compare the four files, plain or gzip, by their content."""
    with mnist.files(path) as tree:
        for remote in SOURCES["mnist"]:
            prefix, kind, *_ = remote.name.split("-")
            content = tree.read(tree.need(*mnist.endings(prefix, kind)))
            content = gzip.decompress(content) if content.startswith(GZIP) else content
            if hashlib.md5(content, usedforsecurity=False).hexdigest() != remote.content_md5:
                return False
    return True


def _is_cifar(name: str, path: str) -> bool | None:
    """Compare the archive; None if there is none."""
    with cifar.files(path, name) as tree:
        archive, inside, _ = tree.need(cifar.FIRST[name]).partition("!/")
        if not inside:
            return None
        return (
            md5(tree.path if tree.path.is_file() else tree.path / archive) == SOURCES[name][0].md5
        )


def _pacs_shortfall(found: Mapping[tuple[str, str], int]) -> str:
    expected = {
        (d, c): n for d, counts in PACS.items() for c, n in zip(pacs.CLASSES, counts, strict=True)
    }
    wrong = [
        f"{d} has {f'{found[d, c]:,} of {n:,}' if found.get((d, c)) else 'no'} {c}"
        for (d, c), n in expected.items()
        if found.get((d, c), 0) != n
    ]
    if not wrong:
        return ""
    more = f", and {len(wrong) - 3} more such" if len(wrong) > 3 else ""
    return f"{sum(found.values()):,} of {sum(expected.values()):,} images; {', '.join(wrong[:3])}{more}"
