"""What the Python interface is given: checked in one place for all its functions."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any

from torch import nn

from .. import models
from ..core.model import FedModel
from ..core.rng import torch_stream
from ..data import Federation
from ..util.errors import InputError, unknown


def check_federation(federation: object, workers: object) -> None:
    """Refuse what is not a federation, or not a number of processes."""
    if not isinstance(federation, Federation):
        raise InputError(
            f"federation: {type(federation).__name__} is not one; make it with fedbr.Federation.from_arrays"
        )
    if not isinstance(workers, int) or workers < 1:
        raise InputError(f"workers = {workers!r}: must be a whole number of at least 1")


def check_options(
    what: str, model: nn.Module | str, options: Mapping[str, Any], known: Iterable[str]
) -> None:
    """Refuse arguments that neither a function nor the model has.

    what: the function. known: its own arguments.
    """
    named: Mapping[str, Any] = {}
    if isinstance(model, str) and model in models.MODELS:
        named = models.MODELS[model].model_fields
    if isinstance(model, str) and ":" in model:
        return  # a factory of the user's takes what it likes
    allowed = {*known, *named} - {"model_options"}
    if strangers := [name for name in options if name not in allowed]:
        raise unknown(f"{what}: argument", strangers[0], allowed)


def starting_model(
    model: nn.Module | str, options: Mapping[str, Any], federation: Federation, seed: int
) -> FedModel:
    """Build a model by its name, or adopt a copy of the user's own."""
    with torch_stream(seed, "model"):
        if isinstance(model, str):
            return models.build(model, options, federation.shape, federation.num_classes)
        return models.adopt(copy.deepcopy(model), federation.shape)
