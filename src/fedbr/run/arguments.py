"""Check the arguments that the functions of the Python interface have in common."""

from __future__ import annotations

import copy
from collections.abc import Iterable

from torch import nn

from .. import models
from ..core.model import FedModel
from ..core.rng import torch_stream
from ..data import Federation
from ..util.errors import InputError, unknown
from ..util.tables import Options


def check_federation(federation: object, workers: object) -> None:
    """Refuse what is not a federation, or not a number of processes."""
    if not isinstance(federation, Federation):
        raise InputError(
            f"federation: {type(federation).__name__} is not a federation; make one with "
            "fedbr.Federation.from_arrays"
        )
    if not isinstance(workers, int) or workers < 1:
        raise InputError(f"workers = {workers!r}: must be a whole number of at least 1")


def check_options(
    function: str, model: nn.Module | str, options: Options, parameters: Iterable[str]
) -> None:
    """Refuse arguments that neither a function nor the model has.

    Args:
        function: the name of the function.
        options: the arguments that are none of its parameters.
        parameters: the names of its parameters.
    """
    if isinstance(model, str) and ":" in model:
        return  # a factory of the user's checks its own arguments
    allowed = {*parameters} - {"model_options"}
    if isinstance(model, str) and model in models.MODELS:
        allowed |= models.MODELS[model].model_fields.keys()
    for name in options:
        if name not in allowed:
            raise unknown(f"{function}: argument", name, allowed)


def starting_model(
    model: nn.Module | str, options: Options, federation: Federation, seed: int
) -> FedModel:
    """Build a model by its name, or copy the user's own module."""
    with torch_stream(seed, "model"):
        if isinstance(model, str):
            return models.build(model, options, federation.shape, federation.num_classes)
        return models.adopt(copy.deepcopy(model), federation.shape)
