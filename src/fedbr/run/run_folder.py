"""The folder of one run: a line per round, and checkpoints that survive any kill."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

from ..backends.base import Backend
from ..backends.memory import ClientMemory
from ..core.records import RoundRecord, RunRecord
from ..core.server import Server
from ..core.snapshot import Snapshot
from ..core.wire import State, pack, read_part, unpack
from ..util.errors import RunError
from ..util.files import dump, read_json, reading, write
from ..util.tables import Json
from .store import RunStore, Weights

FILES = (
    "model.safetensors",
    "checkpoint.safetensors",
    "checkpoint.json",
    "metrics.jsonl",
    "run.json",
)


class RunFolder(RunStore):
    """A run in a folder of its own.

    Its files are read once, when they are first needed; what this process writes is not read again.

    Args:
        path: the folder, which is made with the first file.
        rounds: how many the run has when it is finished.
    """

    def __init__(self, path: Path, rounds: int) -> None:
        super().__init__(rounds)
        self.path = path
        self.forget()

    def __str__(self) -> str:
        return str(self.path)

    @property
    def record(self) -> RunRecord:
        """What is known of the run beside its rounds."""
        if self._record is None:
            file = self.path / "run.json"
            with reading(file):
                self._record = RunRecord.from_json(read_json(file, {}))
        return self._record

    @property
    def rounds(self) -> Sequence[RoundRecord]:
        """The rounds that are done; a line that a kill cut short is left out."""
        if self._rounds is None:
            self._rounds = self._read_rounds()
        return self._rounds

    def _has_model(self) -> bool:
        return (self.path / "model.safetensors").exists()

    def forget(self) -> None:
        self._record = self._rounds = None

    def note(self, **facts: Any) -> None:
        super().note(**facts)
        self.path.mkdir(parents=True, exist_ok=True)
        write(self.path / "run.json", dump(self.record.to_json()))

    def append(self, record: RoundRecord) -> None:
        super().append(record)
        with (self.path / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(record.to_json()) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def memory(self) -> ClientMemory:
        return ClientMemory(self.path / "memory")

    def checkpoint(self, round: int, server: Server, backend: Backend) -> None:
        """Replace the checkpoint, which names files of ``memory`` that do not change any more."""
        snapshot = server.snapshot()
        memory = backend.states
        clients = {"clients": sorted(memory.here), "filed": sorted(memory.filed.items())}
        payloads = snapshot.payloads()
        payloads |= {f"client/{client}": state for client, state in memory.here.items()}
        content = pack({"round": round, **clients, **snapshot.to_json()}, payloads)
        write(self.path / "checkpoint.safetensors", content)
        summary = json.dumps({"round": round, **clients})
        write(self.path / "checkpoint.json", summary + "\n")
        super().checkpoint(round, server, backend)

    def resume(self, server: Server, backend: Backend) -> int:
        """Go on from the checkpoint; drop what came after it.

        Returns:
            The last round that is done.

        Raises:
            RunError: files of the run are damaged or not there.
        """
        file = self.path / "checkpoint.safetensors"
        rounds, done = self.rounds, 0
        if file.exists() or len(rounds) > 1:  # a first round may be done without a checkpoint yet
            with reading(file, f"without which the {len(rounds)} rounds that are done are lost"):
                header, payloads = unpack(file.read_bytes())
                server.restore(Snapshot.from_json(header, payloads))
                here = {client: payloads[f"client/{client}"] for client in header["clients"]}
                filed = header.get("filed", [])
                is_version_1 = any(not isinstance(place, int) for _, place in filed)
                if is_version_1:
                    backend.states.restore_version_1(here, filed)
                else:
                    backend.states.restore(here, filed)
            done = header["round"]
        kept = [record for record in rounds if record.round <= done]
        if [record.round for record in kept] != list(range(1, done + 1)):
            raise RunError(
                f"{self.path}: the checkpoint is at round {done}, but metrics.jsonl lacks rounds "
                "before it"
            )
        lines = [json.dumps(record.to_json()) + "\n" for record in kept]
        write(self.path / "metrics.jsonl", "".join(lines))
        self._rounds = kept
        return done

    def weights(self) -> Weights | None:
        if self._playing is not None:
            return super().weights()
        file = self.path / "checkpoint.safetensors"
        if not file.exists():
            return None
        with reading(file):
            common = read_part(file, "server")["model"]
        return Weights(common, self._read_personal())

    def _read_personal(self) -> list[State]:
        """Read the models that clients keep for themselves, once the run is finished."""
        file = self.path / "model.safetensors"
        if not file.exists():
            return []
        with reading(file):
            tensors = safetensors.torch.load_file(file)
        models: dict[int, State] = {}
        for name, value in tensors.items():
            owner, _, key = name.partition(".")
            if owner.startswith("client"):
                models.setdefault(int(owner.removeprefix("client")), {})[key] = value
        return [models[client] for client in sorted(models)]

    def save_model(self, weights: Weights, facts: Json) -> None:
        """Write the global model, or each client's own, without what methods added for training."""
        models = {f"client{i}.": model for i, model in enumerate(weights.personal)}
        if not models:
            models = {"": weights.common}
        tensors = {}
        for prefix, model in models.items():
            for key, value in model.items():
                if not key.startswith("extras."):
                    plain = value.clone(memory_format=torch.contiguous_format)
                    tensors[prefix + key] = plain
        content = safetensors.torch.save(tensors, {"fedbr": json.dumps(facts)})
        write(self.path / "model.safetensors", content)
        self._playing = None

    def clear(self) -> None:
        """Remove what fedbr wrote, nothing else.

        The record is marked first, so that what a kill leaves behind is removed next time.
        """
        if self.path.exists():
            write(self.path / "run.json", dump(RunRecord(cleared=True).to_json()))
        ClientMemory(self.path / "memory").tidy()
        with contextlib.suppress(OSError):
            (self.path / "memory").rmdir()
        for name in FILES:
            (self.path / name).unlink(missing_ok=True)
            (self.path / f".{name}.new").unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # somebody else's file is in it
            self.path.rmdir()
        self.forget()

    def _read_rounds(self) -> list[RoundRecord]:
        file = self.path / "metrics.jsonl"
        if not file.exists():
            return []
        rounds = []
        for text in file.read_text("utf-8").splitlines():
            try:
                line = json.loads(text)
            except json.JSONDecodeError:
                break
            if not isinstance(line, dict) or "round" not in line:
                break
            with reading(file):
                rounds.append(RoundRecord.from_json(line))
        return rounds
