"""What travels between server and clients, and what both remember: tensors in named sections.

Both have one byte format, that of safetensors.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

State = dict[str, Tensor]  # flat, tensors only: everything stored or sent has this type
Payload = dict[str, State]  # one section per owner: "model", "fedcm", "shared/fedbr", ...

SHARED = "shared/"  # sections that a client keeps until it is sent new ones


@dataclass(frozen=True)
class Reply:
    """What a client sends to the server."""

    client: int
    num_examples: int
    payload: Payload
    metrics: dict[str, float] = field(default_factory=dict)


def nbytes(payload: Payload) -> int:
    """Count the bytes of all tensors.

    >>> nbytes({"model": {"bias": torch.zeros(3)}})
    12
    """
    return sum(t.nbytes for section in payload.values() for t in section.values())


def pack(header: Any, payloads: Mapping[str, Payload]) -> bytes:
    """Write a header and named payloads as safetensors.

    A tensor that occurs twice is written once.

    Args:
        header: anything that JSON can say.
        payloads: by their owners, such as "server" or "client/3".
    """
    tensors: State = {}
    names: dict[int, str] = {}  # id of a tensor -> the name under which it is stored
    storages: set[int] = set()  # safetensors expects every tensor to have its own
    layout: dict[str, dict[str, dict[str, str]]] = {}
    for who, payload in payloads.items():
        sections = layout.setdefault(who, {})
        for section, state in payload.items():
            keys = sections.setdefault(section, {})
            for key, tensor in state.items():
                name = names.setdefault(id(tensor), str(len(names)))
                if name not in tensors:
                    tensors[name] = _alone(tensor, storages)
                keys[key] = name
    metadata = {"header": json.dumps(header), "layout": json.dumps(layout)}
    return safetensors.torch.save(tensors, metadata)


def unpack(blob: bytes) -> tuple[Any, dict[str, Payload]]:
    """Read what ``pack`` wrote."""
    tensors = safetensors.torch.load(blob)
    length = int.from_bytes(blob[:8], "little")
    metadata = json.loads(blob[8 : 8 + length])["__metadata__"]
    payloads: dict[str, Payload] = {}
    for who, sections in json.loads(metadata["layout"]).items():
        payloads[who] = _read_sections(sections, tensors.__getitem__)
    return json.loads(metadata["header"]), payloads


def read_part(path: Path, who: str) -> Payload:
    """Read one payload of a file that holds what ``pack`` wrote; the rest is not read."""
    with safetensors.safe_open(path, "pt") as file:
        sections = json.loads(file.metadata()["layout"])[who]
        return _read_sections(sections, file.get_tensor)


def _read_sections(
    sections: Mapping[str, Mapping[str, str]], read: Callable[[str], Tensor]
) -> Payload:
    """Return the tensors of a payload from the names under which they are stored."""
    return {
        section: {key: read(name) for key, name in keys.items()}
        for section, keys in sections.items()
    }


def _alone(tensor: Tensor, storages: set[int]) -> Tensor:
    """Return the tensor with storage of its own."""
    tensor = tensor.detach().cpu()
    where = tensor.untyped_storage().data_ptr()
    shared = tensor.untyped_storage().nbytes() != tensor.nbytes or where in storages
    storages.add(where)
    if shared or not tensor.is_contiguous():
        return tensor.clone(memory_format=torch.contiguous_format)
    return tensor
