"""What clients remember between their rounds: in memory while it is little, in files when it is
much.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, MutableMapping
from pathlib import Path

from ..core.wire import Payload, nbytes, pack, read_part
from ..util.files import reading, write

LITTLE = 2**26  # bytes; as long as there is less, everything is in memory (and in the checkpoint)


class ClientMemory(MutableMapping[int, Payload]):
    """A payload by client. Those of a round are written together, to a file that is never changed.

    A file goes when nobody's newest state is in it; one of which little is left is merged into the
    next.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.here: dict[int, Payload] = {}
        self.filed: dict[
            int, tuple[int, int]
        ] = {}  # client -> the number of the file, and the bytes it has there
        self._folder = folder
        self._temporary: tempfile.TemporaryDirectory[str] | None = None

    def __getitem__(self, client: int) -> Payload:
        if client in self.here:
            return self.here[client]
        file = self._file(self.filed[client][0])
        with reading(file, f"which holds the memory of client {client}"):
            return read_part(file, str(client))

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

    def spill(self) -> None:
        """Move what is in memory to a new file, if it is much; the old files stay until ``tidy``."""
        if sum(map(nbytes, self.here.values())) <= LITTLE:
            return
        self._merge()
        number = max(self._numbers(), default=0) + 1
        write(
            self._file(number),
            pack({}, {str(client): state for client, state in self.here.items()}),
        )
        for client, state in self.here.items():
            self.filed[client] = number, nbytes(state)
        self.here = {}

    def restore(
        self, here: dict[int, Payload], filed: Iterable[tuple[int, tuple[int, int]]]
    ) -> None:
        """Go on from a checkpoint; what came after it is dropped."""
        self.here, self.filed = here, {client: (number, size) for client, (number, size) in filed}
        self.tidy()

    def tidy(self) -> None:
        """Remove files in which nobody's newest state is: call it when no checkpoint needs them any
        more.
        """
        for number in set(self._numbers()) - {number for number, _ in self.filed.values()}:
            self._file(number).unlink()
        for half in self._folder.glob(".*.safetensors.new") if self._folder else ():
            half.unlink()

    def _merge(self) -> None:
        """Take what is left of the oldest files back, until most of what is stored is alive."""
        for number in sorted({number for number, _ in self.filed.values()}):
            stored = sum(self._file(n).stat().st_size for n in {n for n, _ in self.filed.values()})
            if stored <= 2 * sum(size for _, size in self.filed.values()):
                return
            for client in [c for c, (n, _) in self.filed.items() if n == number]:
                self[client] = self[client]

    def _file(self, number: int) -> Path:
        if self._folder is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="fedbr-")
            self._folder = Path(self._temporary.name)
        self._folder.mkdir(parents=True, exist_ok=True)
        return self._folder / f"{number}.safetensors"

    def _numbers(self) -> list[int]:
        if self._folder is None or not self._folder.exists():
            return []
        return [
            int(file.stem) for file in self._folder.glob("*.safetensors") if file.stem.isdigit()
        ]
