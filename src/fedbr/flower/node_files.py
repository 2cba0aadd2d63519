"""What a node keeps on its disk: its clients' memory, and what the server shares with all."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from ..backends.memory import StateFiles
from ..core.wire import Payload
from ..util.errors import RunError
from ..util.files import write
from .messages import name_of, read_sections


class NodeFiles:
    """The files of one experiment on one node.

    A client's memory is written before its reply leaves. The last two rounds are kept, in case the
    server never gets the reply and asks for the round again.

    Args:
        folder: of the experiment, on the disk of the node.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._states = StateFiles(folder)

    def load(self, client: int, round: int) -> Payload | None:
        """Return what a client remembers of a round; None if it is not there, or is damaged."""
        with suppress(RunError):
            return self._states.load(client, round)
        return None

    def save(self, client: int, round: int, state: Payload, before: int) -> None:
        """Write what a client remembers, and remove what it remembered of older rounds.

        Args:
            client: its number.
            round: the one that it has trained in.
            state: what it remembers.
            before: the round that it started from, whose file stays.
        """
        self._states.save(client, round, state)
        keep = (self._states.path(client, round), self._states.path(client, before))
        for file in self.folder.glob(f"client-{client}.*.safetensors"):
            if file not in keep:
                file.unlink(missing_ok=True)

    def held(self) -> frozenset[str]:
        """Return the names of the shared payloads that are here."""
        files = self.folder.glob("shared-*.safetensors")
        return frozenset(file.stem.removeprefix("shared-") for file in files)

    def shared(self, names: Iterable[str]) -> Payload:
        """Read shared payloads.

        Raises:
            LookupError: one is missing, or was damaged and is removed.
        """
        payload: Payload = {}
        for name in names:
            file = self._shared_file(name)
            blob = file.read_bytes() if file.exists() else b""
            if name_of(blob) != name:
                file.unlink(missing_ok=True)
                raise LookupError(name)
            payload |= read_sections(blob)
        return payload

    def keep_shared(self, blobs: Mapping[str, bytes], names: Iterable[str]) -> None:
        """Write new shared payloads, and remove old ones.

        Args:
            blobs: new payloads by name.
            names: of all that are in use; others are removed.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        for name, blob in blobs.items():
            file = self._shared_file(name)
            try:
                write(file, blob)
            except OSError:  # on a full disk, half a file would stay in the way
                file.with_name(f".{file.name}.new").unlink(missing_ok=True)
                raise
        for old in self.held() - set(names):
            self._shared_file(old).unlink(missing_ok=True)

    def forget(self) -> None:
        """Remove all of it: the experiment is over."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _shared_file(self, name: str) -> Path:
        return self.folder / f"shared-{name}.safetensors"
