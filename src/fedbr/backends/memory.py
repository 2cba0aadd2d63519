"""What clients remember between rounds: small states stay in memory, large ones go to files."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from pathlib import Path

from ..core.wire import Payload, nbytes, pack, read_part, unpack
from ..util.files import reading, write

LITTLE = 2**26  # bytes; up to these, everything stays in memory (and in the checkpoint)


class StateFiles:
    """One file for every client and round, which does not change once it is written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, client: int, round: int) -> Path:
        """Return the file of what a client remembered after a round."""
        return self.folder / f"client-{client}.{round}.safetensors"

    def save(self, client: int, round: int, state: Payload) -> None:
        """Write what a client remembers; leave no half of a file if the disk is full."""
        self.folder.mkdir(parents=True, exist_ok=True)
        file = self.path(client, round)
        try:
            write(file, pack({}, {"state": state}))
        except OSError:
            file.with_name(f".{file.name}.new").unlink(missing_ok=True)
            raise

    def load(self, client: int, round: int) -> Payload:
        """Read what a client remembered after a round.

        Raises:
            RunError: the file is not there, or damaged.
        """
        file = self.path(client, round)
        with reading(file, f"which holds the memory of client {client}"):
            return unpack(file.read_bytes())[1]["state"]

    def prune(self, newest: Mapping[int, int]) -> None:
        """Remove files that are not the newest of their client, and half-written ones.

        Args:
            newest: the round of each client's newest file.
        """
        keep = {self.path(client, round) for client, round in newest.items()}
        for pattern in ("*.safetensors", ".*.safetensors.new"):
            for file in set(self.folder.glob(pattern)) - keep:
                file.unlink()


class ClientMemory(MutableMapping[int, Payload]):
    """What each client remembers, a mapping from clients to payloads.

    ``spill`` moves large payloads to files; a checkpoint names the files.

    Args:
        folder: where the files are; None: in a temporary folder, which ends with the process.

    >>> memory = ClientMemory()
    >>> memory[3] = {"feddyn": {}}
    >>> 3 in memory, len(memory)
    (True, 1)
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.here: dict[int, Payload] = {}
        self.filed: dict[int, int] = {}  # client -> the round of its file
        self._folder = folder
        self._temporary: tempfile.TemporaryDirectory[str] | None = None

    def __getitem__(self, client: int) -> Payload:
        if client in self.here:
            return self.here[client]
        round = self.filed[client]
        return self._files().load(client, round)

    def __setitem__(self, client: int, state: Payload) -> None:
        self.filed.pop(client, None)
        self.here[client] = state

    def __delitem__(self, client: int) -> None:
        if client not in self:
            raise KeyError(client)
        self.here.pop(client, None)
        self.filed.pop(client, None)

    def __iter__(self) -> Iterator[int]:
        yield from (*self.here, *self.filed)

    def __len__(self) -> int:
        return len(self.here) + len(self.filed)

    def spill(self, round: int) -> None:
        """Move what is in memory to files, if it is large; older files stay until ``tidy``."""
        if sum(map(nbytes, self.here.values())) <= LITTLE:
            return
        for client, state in self.here.items():
            self._files().save(client, round, state)
            self.filed[client] = round
        self.here = {}

    def restore(self, here: dict[int, Payload], filed: Iterable[tuple[int, int]]) -> None:
        """Go on from a checkpoint, and drop what came after it.

        Args:
            here: the payloads that are in the checkpoint.
            filed: the clients whose payloads are in files, and the rounds of these.
        """
        self.here, self.filed = here, dict(filed)
        self.tidy()

    def restore_version_1(
        self, here: dict[int, Payload], filed: Iterable[tuple[int, tuple[int, int]]]
    ) -> None:
        """Go on from a checkpoint of version 0.1, whose files have many clients each.

        Its files stay until the next checkpoint.
        """
        self.here, self.filed = here, {}
        for client, (number, _) in filed:
            file = self._files().folder / f"{number}.safetensors"
            with reading(file, f"which holds the memory of client {client}"):
                self.here[client] = read_part(file, str(client))

    def tidy(self) -> None:
        """Remove files that no checkpoint needs any more."""
        if self._folder is not None:
            self._files().prune(self.filed)

    def _files(self) -> StateFiles:
        if self._folder is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="fedbr-")
            self._folder = Path(self._temporary.name)
        return StateFiles(self._folder)
