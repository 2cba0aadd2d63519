"""Run one architecture with the weights of C clients at once: x [C, B, ...] -> [C, B, ...].

One client runs the plain module. For several, any layer works with ``vmap``; the rules below make
the usual ones fast. While images pass they are [B, C * channels, H, W]: convolutions and norms are
grouped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, vmap

from ..rng import client_generators
from ..wire import State
from .chain import Chain, Layer, linear

Plan = list[tuple[nn.Module | Chain, State]]  # layers in order, each with its stacked weights


class Residual(nn.Module):
    """Add what ``body`` and ``shortcut`` make of the input.

    Several clients run it by its parts, so that the rules reach the layers inside.

    Args:
        body: any module.
        shortcut: by default it returns the input as it is.
    """

    def __init__(self, body: nn.Module, shortcut: nn.Module | None = None) -> None:
        super().__init__()
        self.body = body
        self.shortcut = nn.Identity() if shortcut is None else shortcut

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.body(x) + self.shortcut(x)
        return out


def plan(module: nn.Module, weights: State, prefix: str, clients: int) -> Plan:
    """List the layers to run; a single client needs no list.

    Neighbouring linear layers and ReLUs become one chain.

    Args:
        module: the architecture.
        weights: [C, ...] each.
        prefix: what comes before the module's own names in the keys of ``weights``.
        clients: C.
    """
    if clients == 1:
        return [(module, _own(weights, prefix))]
    layers: Plan = []
    links: list[Layer] = []  # of the chain so far
    for layer, own in _layers(module, weights, prefix):
        kind = type(layer)
        if kind is nn.Linear and _trains(own):
            links.append((own["weight"], own["bias"], False))
        elif kind is nn.ReLU and links:
            weight, bias, _ = links[-1]
            links[-1] = (weight, bias, True)
        elif kind is not nn.Identity:
            if links:
                layers.append((Chain(links), {}))
                links = []
            layers.append((layer, own))
    if links:
        layers.append((Chain(links), {}))
    return layers


def _layers(module: nn.Module, weights: State, prefix: str) -> Iterator[tuple[nn.Module, State]]:
    """Return the modules inside of containers, each with its own weights."""
    if type(module) is not nn.Sequential:
        yield module, _own(weights, prefix)
        return
    # named_children would leave out a layer that is there for a second time.
    for name, part in module._modules.items():
        assert part is not None
        yield from _layers(part, weights, f"{prefix}{name}.")


def _own(weights: State, prefix: str) -> State:
    return {k[len(prefix) :]: v for k, v in weights.items() if k.startswith(prefix)}


def _trains(own: State) -> bool:
    return all(k in own and own[k].requires_grad for k in ("weight", "bias"))


def run(layers: Plan, x: Tensor) -> Tensor:
    """Run a plan on [C, B, ...]."""
    clients = len(x)
    if clients == 1:
        for layer, weights in layers:
            assert isinstance(layer, nn.Module)  # one client has no chains
            x = run_alone(layer, weights, x)
        return x
    x, merged = _run(layers, x, False, clients)
    return _split(x, clients) if merged else x


def _run(layers: Plan, x: Tensor, merged: bool, clients: int) -> tuple[Tensor, bool]:
    """Run a plan on [C, B, ...], or on merged images, [B, C * channels, H, W].

    Returns:
        The output, and whether it is merged.
    """
    for layer, weights in layers:
        kind = type(layer)
        if isinstance(layer, Chain):
            x, merged = layer(_split(x, clients) if merged else x), False
        elif kind is Residual:
            assert isinstance(layer, Residual)
            x, merged = _run_residual(layer, weights, x, merged, clients)
        elif kind in POINTWISE:
            x = layer(x)
        elif kind in IMAGE_RULES and (merged or x.dim() == 5):
            x, merged = (x if merged else _merge(x)), True
            x = IMAGE_RULES[kind](layer, weights, x, clients)
        else:
            x, merged = (_split(x, clients) if merged else x), False
            x = RULES.get(kind, _any)(layer, weights, x)
    return x, merged


def _run_residual(
    layer: Residual, weights: State, x: Tensor, merged: bool, clients: int
) -> tuple[Tensor, bool]:
    """Run both parts; body first, as the module does, which matters for layers that draw."""
    body = plan(layer.body, weights, "body.", clients)
    shortcut = plan(layer.shortcut, weights, "shortcut.", clients)
    out, out_merged = _run(body, x, merged, clients)
    other, other_merged = _run(shortcut, x, merged, clients)
    if out_merged and not other_merged:
        other = _merge(other)
    elif other_merged and not out_merged:
        other = _split(other, clients)
    return out + other, out_merged


def join(parts: Sequence[Tensor]) -> Tensor:
    """Join samples, [C, n, ...] each, in the order in memory that the first of them has."""
    if _features_first(parts[0]):
        return torch.cat([p.mT for p in parts], dim=2).mT
    return torch.cat(list(parts), dim=1)


def cut(whole: Tensor, sizes: list[int]) -> list[Tensor]:
    """Undo ``join``; the gradient, too, is put together in the order that memory has."""
    if _features_first(whole):
        return [part.mT for part in torch.split(whole.mT, sizes, dim=2)]
    return list(torch.split(whole, sizes, dim=1))


def _features_first(x: Tensor) -> bool:
    """Say whether x is what linear layers of several clients make.

    To turn it round takes longer than to copy it.
    """
    return x.dim() == 3 and x.stride(2) != 1


def _merge(x: Tensor) -> Tensor:
    return x.transpose(0, 1).flatten(1, 2)


def _split(x: Tensor, clients: int) -> Tensor:
    return x.view(len(x), clients, -1, *x.shape[2:]).transpose(0, 1)


def run_alone(layer: nn.Module, weights: State, x: Tensor) -> Tensor:
    """Run one client, [1, B, ...], by the plain module.

    It does what functional_call does, which looks for the places of the weights anew in every call:
    that costs a small model more than its arithmetic.
    """
    if layer not in _PLACES:
        _PLACES[layer] = _find_places(layer)
    places = _PLACES[layer]
    before = [holder[name] for holder, name, _ in places]
    # Not [0]: the backward of squeeze is a view, that of an index a copy into zeros.
    given = [weights[key].squeeze(0) for _, _, key in places]
    try:
        for (holder, name, _), tensor in zip(places, given, strict=True):
            holder[name] = tensor
        out: Tensor = layer(x.squeeze(0))
        if layer.training:
            for (holder, name, key), tensor in zip(places, given, strict=True):
                if holder[name] is not tensor:  # a buffer that the module has replaced
                    weights[key].data.copy_(holder[name])
    finally:
        for (holder, name, _), tensor in zip(places, before, strict=True):
            holder[name] = tensor
    return out.unsqueeze(0)


# Where a module keeps a tensor, by which name, and under which key it is in ``weights``.
Places = list[tuple[dict[str, Any], str, str]]
_PLACES: WeakKeyDictionary[nn.Module, Places] = WeakKeyDictionary()


def _find_places(module: nn.Module) -> Places:
    tensors = (*module.named_parameters(), *module.named_buffers())
    keys = {id(tensor): key for key, tensor in tensors}  # one key, also for tied weights
    places: Places = []
    for part in module.modules():
        for holder in (part._parameters, part._buffers):
            for name, tensor in holder.items():
                if tensor is not None:
                    places.append((holder, name, keys[id(tensor)]))
    return places


def _any(layer: nn.Module, weights: State, x: Tensor) -> Tensor:
    out: Tensor = vmap(lambda w, sample: functional_call(layer, w, (sample,)))(weights, x)
    return out


def _linear(layer: nn.Module, w: State, x: Tensor) -> Tensor:
    if x.dim() != 3 or not {"weight", "bias"} <= w.keys():
        return _any(layer, w, x)
    return linear(x, w["weight"], w["bias"])


def _flatten(layer: nn.Module, w: State, x: Tensor) -> Tensor:
    assert isinstance(layer, nn.Flatten)
    return x.flatten(2) if makes_flat(layer) else _any(layer, w, x)


def makes_flat(layer: nn.Flatten) -> bool:
    """Say whether it leaves one dimension of a sample."""
    return (layer.start_dim, layer.end_dim) == (1, -1)


def _conv(layer: nn.Module, w: State, x: Tensor, clients: int) -> Tensor:
    assert isinstance(layer, nn.Conv2d)
    if layer.padding_mode != "zeros":
        return _merge(_any(layer, w, _split(x, clients)))
    weight, bias = w["weight"].flatten(0, 1), _flat(w, "bias")
    groups = clients * layer.groups
    return F.conv2d(x, weight, bias, layer.stride, layer.padding, layer.dilation, groups)


def _group_norm(layer: nn.Module, w: State, x: Tensor, clients: int) -> Tensor:
    assert isinstance(layer, nn.GroupNorm)
    groups = clients * layer.num_groups
    return F.group_norm(x, groups, _flat(w, "weight"), _flat(w, "bias"), layer.eps)


def _flat(w: State, key: str) -> Tensor | None:
    """Return a view of all clients' values as one vector, if there are any."""
    return w[key].flatten() if key in w else None


def _batch_norm(layer: nn.Module, w: State, x: Tensor, clients: int) -> Tensor:
    """Channels of different clients are different channels: each client has its own statistics."""
    assert isinstance(layer, nn.BatchNorm2d | nn.BatchNorm1d)
    of_batch = layer.training or layer.running_mean is None
    if layer.training and "num_batches_tracked" in w:
        w["num_batches_tracked"] += 1
    mean, variance = _flat(w, "running_mean"), _flat(w, "running_var")  # updated in their place
    scale, shift = _flat(w, "weight"), _flat(w, "bias")
    return F.batch_norm(x, mean, variance, scale, shift, of_batch, layer.momentum or 0.0, layer.eps)


def _batch_norm_of_features(layer: nn.Module, w: State, x: Tensor) -> Tensor:
    if x.dim() != 3:
        return _any(layer, w, x)
    out = _batch_norm(layer, w, x.transpose(0, 1).flatten(1), len(x))
    return out.view(len(out), len(x), -1).transpose(0, 1)


def _dropout(layer: nn.Module, w: State, x: Tensor) -> Tensor:
    """Let every client draw what it would draw alone."""
    assert isinstance(layer, nn.Dropout | nn.Dropout2d)
    if not layer.training or layer.p == 0:
        return x
    if layer.p == 1:
        return x * 0
    if type(layer) is nn.Dropout:
        shape = x.shape[1:]
    else:  # whole channels
        shape = torch.Size((*x.shape[1:3], *[1] * (x.dim() - 3)))
    kept = [
        x.new_empty(shape).bernoulli_(1 - layer.p, generator=generator)
        for generator in client_generators()
    ]
    return x * (torch.stack(kept) / (1 - layer.p))


def _pool(layer: nn.Module, w: State, x: Tensor, clients: int) -> Tensor:
    out: Tensor = layer(x)
    return out


POINTWISE = {nn.ReLU, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid, nn.LeakyReLU, nn.ELU}
IMAGE_RULES: dict[type, Callable[[nn.Module, State, Tensor, int], Tensor]] = {
    nn.Conv2d: _conv,
    nn.GroupNorm: _group_norm,
    nn.BatchNorm2d: _batch_norm,
    nn.MaxPool2d: _pool,
    nn.AvgPool2d: _pool,
    nn.AdaptiveAvgPool2d: _pool,
}
RULES: dict[type, Callable[[nn.Module, State, Tensor], Tensor]] = {
    nn.Linear: _linear,
    nn.Flatten: _flatten,
    nn.BatchNorm1d: _batch_norm_of_features,
    nn.Dropout: _dropout,
    nn.Dropout2d: _dropout,
}
