"""What clients remember, in files of their node: written before the reply leaves, the last two
rounds kept.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from ..core.wire import Payload, pack, unpack
from ..util.files import write
from .messages import name_of, read_sections


class StateFiles:
    """The files of one experiment on one node."""

    def __init__(self, folder: Path, experiment: str) -> None:
        self.folder = folder / experiment

    def load(self, client: int, round: int) -> Payload | None:
        """Return what a client remembers of a round; None if it is not there, or is damaged."""
        try:
            return unpack(self._file(client, round).read_bytes())[1]["state"]
        except Exception:  # safetensors has errors of its own for what a dying disk leaves
            return None

    def save(self, client: int, round: int, state: Payload, before: int) -> None:
        """Write what a client remembers; keep the state it started from, in case the round is asked
        again.
        """
        self._write(self._file(client, round), pack({}, {"state": state}))
        for file in self.folder.glob(f"client-{client}.*.safetensors"):
            if file not in (self._file(client, round), self._file(client, before)):
                file.unlink(missing_ok=True)

    def held(self) -> list[str]:
        """Name the shared payloads that are here."""
        return sorted(
            file.stem.removeprefix("shared-") for file in self.folder.glob("shared-*.safetensors")
        )

    def shared(self, names: Iterable[str]) -> Payload:
        """Return shared payloads; one that is damaged is not there any more."""
        found: Payload = {}
        for name in names:
            file = self.folder / f"shared-{name}.safetensors"
            blob = file.read_bytes() if file.exists() else b""
            if name_of(blob) != name:
                file.unlink(missing_ok=True)
                raise LookupError(name)
            found |= read_sections(blob)
        return found

    def keep_shared(self, blobs: dict[str, bytes], wanted: Iterable[str]) -> None:
        """Write new shared payloads; remove what nobody wants any more."""
        for name, blob in blobs.items():
            self._write(self.folder / f"shared-{name}.safetensors", blob)
        for old in set(self.held()) - set(wanted):
            (self.folder / f"shared-{old}.safetensors").unlink(missing_ok=True)

    def forget(self) -> None:
        """Remove all of it: the experiment is over."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _file(self, client: int, round: int) -> Path:
        return self.folder / f"client-{client}.{round}.safetensors"

    def _write(self, file: Path, content: bytes) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            write(file, content)
        except OSError:
            file.with_name(f".{file.name}.new").unlink(
                missing_ok=True
            )  # on a full disk, half a file is in the way
            raise
