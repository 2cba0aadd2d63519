"""What is published of a data set: where it can be got, how much it is, by what it is known."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .source import Source


def md5_of(path: Path) -> str:
    """Return the checksum by which files are published."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


@dataclass(frozen=True)
class RemoteFile:
    """A file that somebody publishes."""

    name: str
    size: int
    md5: str
    addresses: Sequence[str]  # tried in turn
    content_md5: str = ""  # of what a gzip file holds: a copy that was compressed anew is as good


@dataclass(frozen=True)
class Published:
    """The official files of a data set, as ``fedbr data get`` and ``check`` know them."""

    name: str
    files: Sequence[RemoteFile] = ()
    records: tuple[int, int] = (0, 0)  # training, test
    by_hand: str = ""  # where there is no stable address: how to get them into {target}

    def compare(self, path: str) -> bool | None:
        """Say whether the checksums of the files are the published ones.

        Args:
            path: the place that a recipe names; empty: where data lie.

        Returns:
            None if what is here is unpacked, and only the archive's checksum is published.
        """
        return None

    def shortfall(self, path: str, source: Source) -> str:
        """Say how much of what is published is there; nothing if it is all."""
        parts = (source.train, source.test)
        counts = list(zip(map(len, parts), self.records, strict=True))
        if all(count == whole for count, whole in counts):
            return ""
        train, test = (f"{count:,} of {whole:,}" for count, whole in counts)
        return f"{train} training and {test} test records"

    def verdict(self, path: str, source: Source) -> str:
        """Say whether the files are the published ones, and how much of them is there."""
        same = self.compare(path)
        if same:
            return "official, complete: the checksums are the published ones"
        if missing := self.shortfall(path, source):
            return f"not the official files: {missing}"
        if same is None:
            return (
                "as many records as the official files; they are unpacked, and only the archive's "
                "checksum is published"
            )
        return "not the official files: as many records, but another checksum"
