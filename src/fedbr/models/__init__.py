"""The models: one file each, and the table by which recipes name them."""

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
from ..util.errors import InputError, at_its_place, unknown
from ..util.imports import import_object
from ..util.validation import validated
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
    name: str, options: Mapping[str, Any], shape: tuple[int, ...], num_classes: int
) -> FedModel:
    """Make a model by its name in the table, or by "package.module:factory"."""
    if ":" in name:
        return adopt(_made(name, options, shape, num_classes), shape)
    if name not in MODELS:
        raise unknown("model.name", name, MODELS)
    return validated(MODELS[name], options, "model").build(shape, num_classes)


def adopt(module: nn.Module, shape: tuple[int, ...]) -> FedModel:
    """Accept a user's module: a FedModel, or a ``classifier`` (of a Sequential the last layer) on
    an ``encoder``.
    """
    if isinstance(module, FedModel):
        if type(module).forward is not FedModel.forward:
            raise InputError(
                f"model = {type(module).__name__}: has its own forward; put that into the encoder"
            )
        return module
    if not isinstance(module, nn.Module):
        raise InputError(
            f"model: {type(module).__name__} where a module is wanted, such as fedbr.FedModel"
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
    x = (
        torch.linspace(-1, 1, 2 * math.prod(shape))
        .view(2, *shape)
        .to(next(module.parameters(), torch.empty(0)).dtype)
    )
    was_training = module.training
    try:
        with torch.no_grad():
            module.eval()
            features = encoder(x)
            logits = classifier(features)
            whole = module(x) if type(module).forward is not nn.Module.forward else logits
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise InputError(
            f"model = {type(module).__name__}: cannot run on samples of shape {shape} ({reason})"
        ) from error
    module.train(was_training)
    if (
        not isinstance(whole, Tensor)
        or whole.shape != logits.shape
        or not torch.allclose(whole, logits, atol=1e-5)
    ):
        raise InputError(
            f"model = {type(module).__name__}: its forward is not classifier(encoder(x)); put what is between them "
            "into the encoder, or wrap it as fedbr.FedModel(encoder, num_features, num_classes, classifier)"
        )
    return FedModel(encoder, features.shape[-1], logits.shape[-1], classifier)


def fingerprint(model: FedModel) -> str:
    """Return a short hash of the architecture: its layers, their settings and code, the shapes of
    their weights.
    """
    layers = [
        f"{n}: {type(m).__name__}({m.extra_repr()}){_code(type(m))}"
        for n, m in model.named_modules()
    ]
    shapes = [f"{k}: {tuple(v.shape)}" for k, v in model.state_dict().items()]
    own = [
        line for line in layers + shapes if not line.startswith("extras")
    ]  # not what methods add
    return sha256("\n".join(own).encode()).hexdigest()[:16]


def _code(kind: type[nn.Module]) -> str:
    """Return the source of a user's layer, as far as it can be found: what its forward does shows
    nowhere else.
    """
    if kind.__module__.partition(".")[0] in ("torch", "fedbr"):
        return ""
    with suppress(OSError, TypeError):
        return f" {inspect.getsource(kind)}"
    return ""


def _made(name: str, options: Mapping[str, Any], shape: tuple[int, ...], num_classes: int) -> Any:
    """Call a user's factory."""
    factory = import_object(name, "model.name")
    try:
        with at_its_place():
            return factory(shape, num_classes, **options)
    except TypeError as error:
        said = ", ".join(
            [str(shape), str(num_classes), *(f"{k}={v!r}" for k, v in options.items())]
        )
        raise InputError(f"model.name = {name!r}: called with ({said}): {error}") from error


def check(model: FedModel, shape: tuple[int, ...], num_classes: int) -> None:
    """Try the model on one sample: are features and logits what the methods will count on?"""
    if not trained(model):
        raise InputError("model: has no weights to train")
    parts = {"encoder": model.encoder, "classifier": model.classifier} | {
        f"{name}'s own module": module for name, module in model.extras.items()
    }
    for (a, first), (b, second) in combinations(parts.items(), 2):
        if {id(p) for p in first.parameters()} & {id(p) for p in second.parameters()}:
            raise InputError(f"model: {a} and {b} share weights; give each its own")
    places: dict[int, list[str]] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        if any(True for _ in module.parameters(recurse=False)):
            places.setdefault(id(module), []).append(name)
    if twice := next((names for names in places.values() if len(names) > 1), None):
        raise InputError(
            f"model: {' and '.join(twice)} are one module; make two that share weights (second.weight = first.weight)"
        )
    dtype = next(model.parameters()).dtype
    found: Any = torch.zeros(2, *shape, dtype=dtype)
    model.eval()
    for part, wanted, key in (
        (model.encoder, model.num_features, "num_features"),
        (model.classifier, num_classes, ""),
    ):
        name = "logits" if part is model.classifier else "features"
        try:
            with torch.no_grad():
                found = part(found)
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise InputError(f"model: cannot run on samples of shape {shape} ({reason})") from error
        if not isinstance(found, Tensor) or tuple(found.shape) != (2, wanted):
            made = (
                f"shape {tuple(found.shape)}"
                if isinstance(found, Tensor)
                else f"type {type(found).__name__}"
            )
            said = f" ({key} = {wanted})" if key else ""
            raise InputError(
                f"model: {name} of 2 samples have {made}; expected (2, {wanted}){said}"
            )
