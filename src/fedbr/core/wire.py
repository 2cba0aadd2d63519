"""What travels between server and clients, what either side remembers, and the one byte format of
both.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
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
    """Client to server."""

    client: int
    num_examples: int
    payload: Payload
    metrics: dict[str, float] = field(default_factory=dict)


def nbytes(payload: Payload) -> int:
    """Count what a message weighs, where it is made."""
    return sum(t.nbytes for section in payload.values() for t in section.values())


def pack(header: Any, payloads: Mapping[str, Payload]) -> bytes:
    """Write a JSON header and named payloads as safetensors; a tensor that occurs twice is written
    once.
    """
    tensors: State = {}
    names: dict[int, str] = {}  # id of a tensor -> the name under which it is stored
    storages: set[int] = set()  # safetensors wants every tensor to have its own
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
    return safetensors.torch.save(
        tensors, {"header": json.dumps(header), "layout": json.dumps(layout)}
    )


def unpack(blob: bytes) -> tuple[Any, dict[str, Payload]]:
    """Read what ``pack`` wrote."""
    tensors = safetensors.torch.load(blob)
    length = int.from_bytes(blob[:8], "little")
    metadata = json.loads(blob[8 : 8 + length])["__metadata__"]
    payloads = {
        who: {
            section: {key: tensors[name] for key, name in keys.items()}
            for section, keys in sections.items()
        }
        for who, sections in json.loads(metadata["layout"]).items()
    }
    return json.loads(metadata["header"]), payloads


def read_part(path: Path, who: str) -> Payload:
    """Read one payload of a file that holds what ``pack`` wrote; the rest is not even looked at."""
    with safetensors.safe_open(path, "pt") as file:
        sections = json.loads(file.metadata()["layout"])[who]
        return {
            section: {k: file.get_tensor(name) for k, name in keys.items()}
            for section, keys in sections.items()
        }


def _alone(tensor: Tensor, storages: set[int]) -> Tensor:
    """Return the tensor with storage of its own."""
    tensor = tensor.detach().cpu()
    where = tensor.untyped_storage().data_ptr()
    shared = tensor.untyped_storage().nbytes() != tensor.nbytes or where in storages
    storages.add(where)
    return (
        tensor.clone(memory_format=torch.contiguous_format)
        if shared or not tensor.is_contiguous()
        else tensor
    )
