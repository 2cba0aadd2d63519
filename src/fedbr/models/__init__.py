"""The models: one file each, and the table by which recipes name them.

A file builds a network for samples of some shape. How it is trained, by which methods, and where
its weights are kept is not known here. To add one: a file beside these, and a line in MODELS.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from itertools import combinations
from typing import Any

import torch
from torch import Tensor, nn

from ..core.method import trained
from ..core.model import FedModel
from ..util.errors import InputError, locate_errors, unknown
from ..util.imports import import_object
from ..util.validation import validate
from .base import ModelSpec
from .cct import CCT
from .cnn import CNN
from .mlp import MLP
from .resnet18_gn import ResNet18GN
from .resnet20_gn import ResNet20GN
from .vgg11 import VGG11

MODELS: dict[str, type[ModelSpec]] = {
    cls.name: cls for cls in (CNN, MLP, VGG11, CCT, ResNet18GN, ResNet20GN)
}


def build(
    name: str, options: Mapping[str, object], shape: tuple[int, ...], num_classes: int
) -> FedModel:
    """Make a model by its name in the table, or by "package.module:factory".

    Args:
        name: of the model.
        options: the parameters of the model.
        shape: of one sample.
        num_classes: how many outputs it has.

    Raises:
        InputError: the name or an option is unknown, or the model cannot be built for such samples.

    >>> build("mlp", {"hidden": [5]}, (4,), num_classes=3).num_features
    5
    """
    if ":" in name:
        return adopt(_call_factory(name, options, shape, num_classes), shape)
    if name not in MODELS:
        raise unknown("model.name", name, MODELS)
    return validate(MODELS[name], options, "model").build(shape, num_classes)


def adopt(module: nn.Module, shape: tuple[int, ...]) -> FedModel:
    """Make a FedModel of a user's module.

    It is a FedModel, has an ``encoder`` and a ``classifier``, or is a Sequential that ends in a
    linear layer.

    Raises:
        InputError: it is none of these, or cannot run on samples of this shape.

    >>> adopt(nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)), (4,)).num_features
    5
    """
    if isinstance(module, FedModel):
        if type(module).forward is not FedModel.forward:
            raise InputError(
                f"model = {type(module).__name__}: has its own forward; put that into the encoder"
            )
        return module
    if not isinstance(module, nn.Module):
        raise InputError(
            f"model: {type(module).__name__} where a module is expected, such as fedbr.FedModel"
        )
    if type(module) is nn.Sequential and len(module) > 1 and isinstance(module[-1], nn.Linear):
        last = module[-1]
        return FedModel(module[:-1], last.in_features, last.out_features, last)
    encoder, classifier = getattr(module, "encoder", None), getattr(module, "classifier", None)
    if not isinstance(encoder, nn.Module) or not isinstance(classifier, nn.Module):
        raise InputError(
            f"model = {type(module).__name__}: needs a feature extractor and a classifier; "
            "wrap it as fedbr.FedModel(encoder, num_features, num_classes)"
        )
    return _join(module, encoder, classifier, shape)


def _join(
    module: nn.Module, encoder: nn.Module, classifier: nn.Module, shape: tuple[int, ...]
) -> FedModel:
    """Make a FedModel of the two parts of a module, if it does nothing else."""
    name = type(module).__name__
    dtype = next(module.parameters(), torch.empty(0)).dtype
    x = torch.linspace(-1, 1, 2 * math.prod(shape)).view(2, *shape).to(dtype)
    was_training = module.training
    try:
        with torch.no_grad():
            module.eval()
            features = encoder(x)
            logits = output = classifier(features)
            if type(module).forward is not nn.Module.forward:
                output = module(x)
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        raise InputError(
            f"model = {name}: cannot run on samples of shape {shape} ({_first_line(error)})"
        ) from error
    module.train(was_training)
    has_shape = isinstance(output, Tensor) and output.shape == logits.shape
    if not has_shape or not torch.allclose(output, logits, atol=1e-5):
        raise InputError(
            f"model = {name}: its forward is not classifier(encoder(x)); put what is between them "
            "into the encoder, or wrap it as "
            "fedbr.FedModel(encoder, num_features, num_classes, classifier)"
        )
    return FedModel(encoder, features.shape[-1], logits.shape[-1], classifier)


def fingerprint(model: FedModel) -> str:
    """Return a short hash of the architecture.

    Layers, their settings and code, and the shapes of weights are in it; what methods add is not.
    """
    lines = []
    for name, module in model.named_modules():
        kind = type(module)
        lines.append(f"{name}: {kind.__name__}({module.extra_repr()}){_code(kind)}")
    for name, value in model.state_dict().items():
        lines.append(f"{name}: {tuple(value.shape)}")
    lines = [line for line in lines if not line.startswith("extras")]
    return sha256("\n".join(lines).encode()).hexdigest()[:16]


def _code(kind: type[nn.Module]) -> str:
    """Return the source of a user's layer, if there is one: only it shows what its forward does."""
    if kind.__module__.partition(".")[0] in ("torch", "fedbr"):
        return ""
    with suppress(OSError, TypeError):
        return f" {inspect.getsource(kind)}"
    return ""


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _call_factory(
    name: str, options: Mapping[str, object], shape: tuple[int, ...], num_classes: int
) -> Any:
    """Call a user's factory."""
    factory = import_object(name, "model.name")
    try:
        with locate_errors():
            return factory(shape, num_classes, **options)
    except TypeError as error:
        named = [f"{key}={value!r}" for key, value in options.items()]
        arguments = ", ".join([str(shape), str(num_classes), *named])
        raise InputError(f"model.name = {name!r}: called with ({arguments}): {error}") from error


def check(model: FedModel, shape: tuple[int, ...], num_classes: int) -> None:
    """Check that features and logits are what methods count on.

    Args:
        model: what is to be trained.
        shape: of one sample.
        num_classes: how many logits are expected.

    Raises:
        InputError: there is nothing to train, parts share weights, or shapes do not fit.
    """
    if not trained(model):
        raise InputError("model: has no weights to train")
    _check_sharing(model)
    x: Any = torch.zeros(2, *shape, dtype=next(model.parameters()).dtype)
    model.eval()
    count = model.num_features
    features = _run(model.encoder, x, shape)
    _check_shape("features", features, count, f" (num_features = {count})")
    logits = _run(model.classifier, features, shape)
    _check_shape("logits", logits, num_classes, "")


def _check_sharing(model: FedModel) -> None:
    """Refuse parts that share weights, and a module that stands in several places."""
    parts = {"encoder": model.encoder, "classifier": model.classifier}
    parts |= {f"{name}'s own module": module for name, module in model.extras.items()}
    weights = {}
    for name, part in parts.items():
        weights[name] = {id(parameter) for parameter in part.parameters()}
    for first, second in combinations(parts, 2):
        if weights[first] & weights[second]:
            raise InputError(f"model: {first} and {second} share weights; give each its own")
    places: dict[int, list[str]] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        if list(module.parameters(recurse=False)):
            places.setdefault(id(module), []).append(name)
    for names in places.values():
        if len(names) > 1:
            raise InputError(
                f"model: {' and '.join(names)} are one module; make two that share weights "
                "(second.weight = first.weight)"
            )


def _run(part: nn.Module, x: Any, shape: tuple[int, ...]) -> Any:
    try:
        with torch.no_grad():
            return part(x)
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        raise InputError(
            f"model: cannot run on samples of shape {shape} ({_first_line(error)})"
        ) from error


def _check_shape(name: str, values: Any, width: int, why: str) -> None:
    if isinstance(values, Tensor) and tuple(values.shape) == (2, width):
        return
    form = f"type {type(values).__name__}"
    if isinstance(values, Tensor):
        form = f"shape {tuple(values.shape)}"
    raise InputError(f"model: {name} of 2 samples have {form}; expected (2, {width}){why}")
