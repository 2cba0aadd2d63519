"""The image models: sizes counted by hand, second implementations, several clients at once, and
what is refused.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

import fedbr
from fedbr import models
from fedbr.core.fast.selfcheck import find_obstacle
from fedbr.core.fast.stacked import plan, run
from fedbr.core.rng import torch_stream

TINY: dict[str, dict[str, Any]] = {
    "vgg11": {"width": 0.01},
    "cct": {"width": 1 / 16, "layers": 2, "heads": 2},
    "resnet18-gn": {"width": 0.01},
    "resnet20-gn": {"width": 0.01},
}
SHAPE = (3, 16, 16)
every = pytest.mark.parametrize("name", TINY)
resnets = pytest.mark.parametrize("name", ["resnet18-gn", "resnet20-gn"])


def tiny(
    name: str, shape: tuple[int, ...] = SHAPE, classes: int = 3, **options: Any
) -> fedbr.FedModel:
    with torch_stream(0, "model"):
        return models.build(name, TINY[name] | options, shape, classes)


def size(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


# ----------------------------------------------------------------------------------------
# architecture


def test_the_table() -> None:
    assert list(models.MODELS) == ["cnn", "mlp", "vgg11", "cct", "resnet18-gn", "resnet20-gn"]


@pytest.mark.parametrize(
    ("name", "classes", "parameters", "features"),
    [
        ("vgg11", 10, 9_225_610, 512),
        ("cct", 10, 3_760_139, 256),
        ("cct", 100, 3_783_269, 256),
        ("resnet18-gn", 10, 11_173_962, 512),
        ("resnet20-gn", 10, 272_474, 64),
    ],
)
def test_full_width(name: str, classes: int, parameters: int, features: int) -> None:
    model = models.build(name, {}, (3, 32, 32), classes)
    assert size(model) == parameters
    assert model.num_features == features
    models.check(model, (3, 32, 32), classes)
    assert f"{parameters:,}" in (models.MODELS[name].__doc__ or "")


def test_counted_by_hand() -> None:
    widths = [3, 64, 128, 256, 256, 512, 512, 512, 512]
    vgg = sum(9 * i * o + o for i, o in pairwise(widths))
    assert size(models.build("vgg11", {}, (3, 32, 32), 10).encoder) == vgg
    norm, d = 2 * 256, 256
    layer = norm + 3 * d * d + (d * d + d) + norm + (d * 2 * d + 2 * d) + (2 * d * d + d)
    assert (
        size(models.build("cct", {}, (3, 32, 32), 10).encoder)
        == 27 * d + 256 * d + 7 * layer + norm + d + 1
    )
    for name, stages, blocks in (
        ("resnet18-gn", (64, 128, 256, 512), 2),
        ("resnet20-gn", (16, 32, 64), 3),
    ):
        total, inputs = 27 * stages[0] + 2 * stages[0], stages[0]
        for outputs in stages:
            total += (inputs * outputs + 2 * outputs) if outputs != inputs else 0  # the shortcut
            total += (
                9 * inputs * outputs + (2 * blocks - 1) * 9 * outputs**2 + 2 * blocks * 2 * outputs
            )
            inputs = outputs
        assert size(models.build(name, {}, (3, 32, 32), 10).encoder) == total


def images(model: nn.Module, shape: tuple[int, ...]) -> list[tuple[int, int]]:
    """List the sizes of the images that convolutions and pools put out."""
    seen: list[tuple[int, int]] = []
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d | nn.MaxPool2d):
            layer.register_forward_hook(lambda _, __, out: seen.append(tuple(out.shape[2:])))
    model.eval()(torch.zeros(1, *shape))
    return seen


@pytest.mark.parametrize(
    ("size", "pooled"),
    [
        (64, [32, 16, 8, 4, 2]),
        (32, [16, 8, 4, 2, 1]),
        (28, [14, 7, 3, 1, 1]),
        (16, [8, 4, 2, 1, 1]),
    ],
)
def test_the_pools_of_vgg11(size: int, pooled: list[int]) -> None:
    model = tiny("vgg11", (1, size, size))
    kinds = [type(layer).__name__ for layer in model.encoder]
    once, twice = ["Conv2d", "ReLU", "MaxPool2d"], ["Conv2d", "ReLU", "Conv2d", "ReLU", "MaxPool2d"]
    assert kinds == [*once, *once, *twice, *twice, *twice, "AdaptiveAvgPool2d", "Flatten"]
    outputs = images(model, (1, size, size))
    assert [outputs[i] for i in (1, 3, 6, 9, 12)] == [(p, p) for p in pooled]


@pytest.mark.parametrize("shape", [(3, 16, 40), (1, 17, 31), (1, 33, 16)])
def test_vgg11_on_images_that_are_not_square(shape: tuple[int, ...]) -> None:
    models.check(tiny("vgg11", shape), shape, 3)


@resnets
def test_only_the_stages_of_a_resnet_halve_the_image(name: str) -> None:
    stages = len(models.MODELS[name].stages)  # type: ignore[attr-defined]
    sides = [side for side, _ in images(tiny(name, (3, 32, 32)), (3, 32, 32))]
    assert set(sides) == {32 // 2**i for i in range(stages)}
    assert sides[0] == 32  # no stride and no pool before the first block


def resnet_by_hand(
    model: fedbr.FedModel, stages: int, blocks: int, groups: int, x: Tensor
) -> Tensor:
    """Take the weights in the order in which a reader of the paper would want them."""
    weights = iter(p for key, p in model.named_parameters() if key.startswith("encoder."))

    def conv(x: Tensor, stride: int) -> Tensor:
        kernel, scale, shift = next(weights), next(weights), next(weights)
        x = F.conv2d(x, kernel, None, stride, kernel.shape[-1] // 2)
        parts = x.reshape(len(x), groups, -1)
        parts = (parts - parts.mean(-1, keepdim=True)) / (
            parts.var(-1, correction=0, keepdim=True) + 1e-5
        ).sqrt()
        return parts.view_as(x) * scale[:, None, None] + shift[:, None, None]

    x = conv(x, 1).relu()
    for stage in range(stages):
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            body = conv(conv(x, stride).relu(), 1)
            x = (body + (conv(x, stride) if stride == 2 else x)).relu()
    assert next(weights, None) is None
    return x.mean((2, 3))


@pytest.mark.parametrize("groups", [1, 2, 4])
@resnets
def test_resnets_are_those_of_a_second_implementation(name: str, groups: int) -> None:
    model = tiny(name, groups=groups).double()
    spec: Any = models.MODELS[name]
    randomise(model)
    x = torch.randn(4, *SHAPE, dtype=torch.float64)
    assert torch.allclose(
        model(x).features, resnet_by_hand(model, len(spec.stages), spec.blocks, groups, x)
    )


def cct_by_hand(model: fedbr.FedModel, layers: int, heads: int, x: Tensor) -> Tensor:
    w = iter(p for key, p in model.named_parameters() if key.startswith("encoder."))

    def norm(x: Tensor) -> Tensor:
        return F.layer_norm(x, x.shape[-1:], next(w), next(w))

    def linear(x: Tensor) -> Tensor:
        return x @ next(w).T + next(w)

    x = F.max_pool2d(F.conv2d(x, next(w), padding=1).relu(), 3, 2, 1)
    x = x.permute(0, 2, 3, 1).flatten(1, 2) + next(w)
    for _ in range(layers):
        inner, qkv = norm(x), next(w)
        parts = [
            (inner @ rows.T).chunk(heads, dim=-1) for rows in qkv.chunk(3)
        ]  # q, k, v of every head
        mixed = [
            torch.softmax(torch.einsum("bnd,bmd->bnm", q, k) / math.sqrt(q.shape[-1]), -1) @ v
            for q, k, v in zip(*parts, strict=True)
        ]
        x = norm(x + linear(torch.cat(mixed, dim=-1)))
        x = x + linear(F.gelu(linear(x)))
    x = norm(x)
    worth = linear(x).squeeze(-1).softmax(dim=1)
    assert next(w, None) is None
    return torch.einsum("bn,bnd->bd", worth, x)


@pytest.mark.parametrize(("layers", "heads", "ratio"), [(1, 1, 2), (2, 2, 2), (3, 4, 0.5)])
def test_the_transformer_is_that_of_a_second_implementation(
    layers: int, heads: int, ratio: float
) -> None:
    model = tiny("cct", (3, 8, 11), layers=layers, heads=heads, mlp_ratio=ratio).double()
    randomise(model)
    x = torch.randn(4, 3, 8, 11, dtype=torch.float64)
    assert torch.allclose(model(x).features, cct_by_hand(model, layers, heads, x))


def randomise(model: nn.Module) -> None:
    """Give every weight a value of its own; fresh norms and biases would hide mistakes."""
    torch.manual_seed(0)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(0.3 * torch.randn_like(p) + (1.0 if p.dim() == 1 else 0.0))


def test_how_weights_start() -> None:
    torch.manual_seed(0)
    cct = models.build("cct", {"layers": 1}, (3, 32, 32), 10)
    stds = {key: float(p.detach().std()) for key, p in cct.named_parameters() if p.dim() > 1}
    positions = next(key for key in stds if key.endswith("positions"))
    assert stds.pop(positions) == pytest.approx(0.2, rel=0.02)
    assert stds.pop("encoder.0.weight") == pytest.approx(math.sqrt(2 / 27), rel=0.05)
    assert list(stds.values()) == pytest.approx([0.02] * len(stds), rel=0.1)
    assert {
        key: float(p.sum()) for key, p in cct.named_parameters() if key.endswith("bias") and p.any()
    } == {}
    for name in ("vgg11", "resnet20-gn"):
        model = models.build(name, {}, (3, 32, 32), 10)
        for layer in model.modules():
            if isinstance(layer, nn.Conv2d):
                wanted = math.sqrt(2 / (layer.in_channels * layer.kernel_size[0] ** 2))
                assert float(layer.weight.detach().std()) == pytest.approx(wanted, rel=0.15)
                assert layer.bias is None or not layer.bias.any()


def test_the_signal_reaches_the_end_of_vgg11() -> None:
    """With PyTorch's own first weights the features of different images would be alike to four
    digits.
    """
    torch.manual_seed(0)
    model = models.build("vgg11", {"width": 0.25}, (3, 32, 32), 10)
    features = model(torch.randn(16, 3, 32, 32)).features.detach()
    assert float(features.std(dim=0).mean()) > 0.1


# ----------------------------------------------------------------------------------------
# options


@every
@pytest.mark.parametrize("width", [0.01, 0.1, 0.33])
def test_any_width(name: str, width: float) -> None:
    models.check(models.build(name, {"width": width}, SHAPE, 5), SHAPE, 5)


@every
def test_width_multiplies(name: str) -> None:
    half, full = (models.build(name, {"width": w}, (3, 32, 32), 10) for w in (0.5, 1))
    assert half.num_features == full.num_features // 2
    assert size(half) == pytest.approx(size(full) / 4, rel=0.05)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("vgg11", {"width": 0.05}),
        ("cct", {"layers": 3}),
        ("cct", {"heads": 4}),
        ("cct", {"width": 1 / 8}),
        ("cct", {"mlp_ratio": 1}),
        ("cct", {"dropout": 0.1}),
        ("resnet18-gn", {"groups": 4}),
        ("resnet20-gn", {"groups": 4}),
        ("resnet20-gn", {"width": 1}),
    ],
)
def test_every_option_makes_another_model(name: str, change: dict[str, Any]) -> None:
    one, other = tiny(name), tiny(name, **change)
    assert models.fingerprint(one) != models.fingerprint(other)
    assert models.fingerprint(one) == models.fingerprint(tiny(name))
    x = torch.randn(2, *SHAPE)
    assert not torch.allclose(one.train()(x).logits, other.train()(x).logits)


@every
def test_the_same_stream_gives_the_same_weights(name: str) -> None:
    first, second = tiny(name).weights(), tiny(name).weights()
    assert all(torch.equal(first[key], second[key]) for key in first)


# ----------------------------------------------------------------------------------------
# refusals


@every
@pytest.mark.parametrize("shape", [(64,), (8, 8), (3, 3, 16, 16)])
def test_samples_that_are_no_images(name: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(
        fedbr.InputError, match=rf"'{name}': expected images of shape \(channels, height, width\)"
    ):
        tiny(name, shape)


@pytest.mark.parametrize("shape", [(3, 15, 15), (1, 8, 8), (3, 32, 15)])
def test_images_too_small_for_the_pools(shape: tuple[int, ...]) -> None:
    with pytest.raises(
        fedbr.InputError, match=rf"at least 16 x 16 pixels, not {shape[1]} x {shape[2]}; .* 'cnn'"
    ):
        tiny("vgg11", shape)


@pytest.mark.parametrize("name", ["cct", "resnet18-gn", "resnet20-gn"])
@pytest.mark.parametrize("shape", [(3, 8, 8), (1, 7, 5), (1, 2, 2)])
def test_the_others_take_small_images(name: str, shape: tuple[int, ...]) -> None:
    models.check(tiny(name, shape), shape, 3)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        (
            "resnet18-gn",
            {"groups": 3},
            r"model.groups = 3: .*\(64, 128, 256, 512\); allowed: 1, 2, 4, 8, 16, 32, 64",
        ),
        (
            "resnet20-gn",
            {"groups": 32},
            r"model.groups = 32: .*\(16, 32, 64\); allowed: 1, 2, 4, 8, 16",
        ),
        ("resnet20-gn", {"groups": 0}, "model.groups"),
        ("vgg11", {"width": 0}, "model.width"),
        ("cct", {"heads": 0}, "model.heads"),
        ("cct", {"dropout": 1}, "model.dropout"),
        ("cct", {"depth": 3}, "depth"),
    ],
)
def test_wrong_options(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(fedbr.InputError, match=message):
        models.build(name, options, (3, 32, 32), 10)


# ----------------------------------------------------------------------------------------
# many clients


@every
def test_clients_together_are_as_alone(name: str) -> None:
    """Features, gradients, and the second derivatives of FedMix."""
    model = tiny(name).double().train()
    torch.manual_seed(0)
    weights = {
        key: torch.stack([p + 0.1 * torch.randn_like(p) for _ in range(2)])
        .detach()
        .requires_grad_()
        for key, p in model.encoder.named_parameters()
    }
    x = torch.randn(2, 3, *SHAPE, dtype=torch.float64, requires_grad=True)
    together = run(plan(model.encoder, weights, "", 2), x)
    alone = torch.stack(
        [
            functional_call(model.encoder, {k: v[i] for k, v in weights.items()}, (x[i],))
            for i in (0, 1)
        ]
    )
    assert torch.allclose(together, alone, rtol=1e-10, atol=1e-10)
    direction = torch.randn_like(x)
    found: list[list[Tensor]] = []
    for out in (together, alone):
        slope, *first = torch.autograd.grad(
            out.sin().sum(), [x, *weights.values()], create_graph=True
        )
        second = torch.autograd.grad((slope * direction).sum(), [*weights.values()])
        assert float(second[0].abs().max()) > 1e-3
        found.append([t.detach() for t in (slope, *first, *second)])
    for a, b in zip(*found, strict=True):
        assert torch.allclose(a, b, rtol=1e-8, atol=1e-9 * max(1.0, float(b.abs().max())))


@every
def test_nothing_keeps_clients_from_training_together(name: str) -> None:
    x = torch.linspace(-1, 1, 3 * math.prod(SHAPE)).view(3, *SHAPE)
    assert find_obstacle(tiny(name).train().encoder, x) is None


def federation(shape: tuple[int, ...] = SHAPE) -> fedbr.Federation:
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(3), 8)
    x = rng.normal(0, 1, (3, *shape))[y] + rng.normal(0, 0.5, (len(y), *shape))
    return fedbr.Federation.from_arrays(
        x, y, x[::2], y[::2], clients=2, partition="lda", alpha=1.0, seed=0
    )


SHORT: dict[str, Any] = {
    "rounds": 1,
    "local_steps": 2,
    "batch_size": 4,
    "dtype": "float64",
    "evaluate_every": 0,
}


@every
@pytest.mark.parametrize("method", [fedbr.FedMix, fedbr.FedBR])
def test_methods_train_them(name: str, method: type[fedbr.Method]) -> None:
    alone, together = (
        fedbr.train(federation(), name, [method()], clients_at_once=c, **SHORT, **TINY[name])
        for c in (1, 2)
    )
    assert np.isfinite(alone.loss).all()
    assert alone.loss == pytest.approx(together.loss, rel=1e-9)
    start = tiny(name).double().weights()
    for key, one in alone.model.weights().items():
        assert torch.allclose(one, together.model.weights()[key], rtol=1e-8, atol=1e-10)
        # A softmax does not notice what is added to all: the bias of the pooling has no gradient.
        assert key.endswith("worth.bias") or not torch.equal(one, start[key]), key


def test_dropout_trains_one_client_at_a_time_and_says_so() -> None:
    options = {**TINY["cct"], **SHORT, "clients_at_once": 2, "dropout": 0.2}
    with pytest.warns(RuntimeWarning, match="clients train one at a time"):
        first = fedbr.train(federation(), "cct", **options)
    with pytest.warns(RuntimeWarning, match="clients train one at a time"):
        assert fedbr.train(federation(), "cct", **options).loss == first.loss
