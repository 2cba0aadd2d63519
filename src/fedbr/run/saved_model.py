"""Models that a run has trained: made ready for use, and read back from ``model.safetensors``."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from pathlib import Path

import safetensors
import torch
from torch import Tensor

from .. import models
from ..core.method_checks import without_neutral
from ..core.model import FedModel
from ..core.spec import Spec
from ..core.wire import State
from ..methods import build as build_method
from ..recipe.schema import MEMORY
from ..util.errors import InputError
from ..util.tables import Json


def load_model(path: str | Path, client: int | None = None, own_code: bool = False) -> FedModel:
    """Read a ``model.safetensors`` of a result folder.

    Args:
        path: the file.
        client: one of the models that each client kept for itself.
        own_code: import and call what the file names as "package.module:name", a model or methods
            of one's own; a file from somebody else could name anything.

    Returns:
        The model with its trained weights, in evaluation mode.

    Raises:
        InputError: the file was not written by fedbr, names code, or has a model that was given in
            Python.

    >>> import tempfile
    >>> import fedbr
    >>> short = ["train.rounds=1", "train.local_steps=1"]
    >>> with tempfile.TemporaryDirectory() as out:
    ...     results = fedbr.run_recipe("digits", out, overrides=short, methods=["fedavg"])
    ...     model = load_model(f"{out}/runs/FedAvg-0/model.safetensors")
    >>> model.predict(torch.zeros(2, 1, 8, 8)).shape
    torch.Size([2])
    """
    file = _read_file(Path(path))
    weights = _choose_weights(file.weights, client)
    facts = file.facts
    if facts["name"] == MEMORY:
        raise InputError(
            f"path = {str(path)!r}: its model was given in Python, not by name; make it again and "
            "load the weights: module.load_state_dict(safetensors.torch.load_file(path))"
        )
    names = [facts["name"], *(method["name"] for method in facts["methods"])]
    code = [name for name in names if ":" in name]
    if code and not own_code:
        raise InputError(
            f"path = {str(path)!r}: names code, {', '.join(code)}, that would be imported and "
            "called; if it is yours, pass own_code=True"
        )
    model = _build(facts)
    model = model.to(next(iter(weights.values())).dtype)
    model.load_state_dict(weights)
    add_facts(model, facts)
    return model.eval()


def add_facts(model: FedModel, facts: Json) -> None:
    """Let a model see bytes as it did in training, and know what classes are called."""
    scale, shift = _as_tensor(facts["scale"]), _as_tensor(facts["shift"])
    model.bytes_seen_as = (scale, shift)
    model.class_names = facts["class_names"]
    model.sample_shape = tuple(map(int, facts["shape"]))


def finish_model(model: FedModel, weights: State) -> FedModel:
    """Return the model as it is after training, without the modules that methods added."""
    final = copy.deepcopy(model)
    final.set_weights(weights)
    final.extras.clear()
    return final.eval()


@dataclass(frozen=True)
class _ModelFile:
    facts: Json  # what it takes to build the model
    weights: State


def _read_file(path: Path) -> _ModelFile:
    try:
        if path.is_dir():
            raise IsADirectoryError("a folder")
        with safetensors.safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            if "fedbr" not in metadata:
                raise ValueError("it does not say of what model")
            facts = json.loads(metadata["fedbr"])
            weights = {}
            for name in file.keys():  # noqa: SIM118 (a file is no dict)
                weights[name] = file.get_tensor(name)
    except (OSError, safetensors.SafetensorError, ValueError) as error:
        raise InputError(
            f"path = {str(path)!r}: not a model.safetensors, as DIR/runs/LABEL-SEED of a result "
            f"folder has ({error})"
        ) from error
    return _ModelFile(facts, weights)


def _choose_weights(weights: State, client: int | None) -> State:
    """Choose a client's own weights from a file that has one model for each."""
    by_client: dict[int, State] = {}
    for name, value in weights.items():
        owner, _, key = name.partition(".")
        if owner.startswith("client"):
            number = int(owner.removeprefix("client"))
            by_client.setdefault(number, {})[key] = value
    if not by_client:
        if client is not None:
            raise InputError(f"client = {client}: there is one model for all; leave it out")
        return weights
    if client not in by_client:
        raise InputError(
            f"client = {client}: every client has a model of its own; one of 0 to {max(by_client)}"
        )
    return by_client[client]


def _build(facts: Json) -> FedModel:
    """Build a model as its methods have changed it, with weights of no meaning."""
    shape, num_classes = tuple(map(int, facts["shape"])), int(facts["num_classes"])
    model = models.build(facts["name"], facts["options"], shape, num_classes)
    spec = Spec(
        shape=shape,
        num_classes=num_classes,
        num_clients=1,
        clients_per_round=1,
        local_steps=1,
        batch_size=1,
        lr=1.0,
    )
    for table in facts["methods"]:
        options = {key: value for key, value in table.items() if key != "name"}
        for method in without_neutral([build_method(table["name"], options)]):
            model = method.rebuild(model, spec)
    return model


def _as_tensor(value: float | list[float]) -> float | Tensor:
    return torch.tensor(value) if isinstance(value, list) else value
