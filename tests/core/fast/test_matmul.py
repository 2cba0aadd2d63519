"""Products of several clients are those of torch, whoever makes them, and the same everywhere."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import fedbr
from fedbr.core.fast import matmul

SHAPES = [
    (3, 64, 784, 64),
    (2, 128, 130, 128),
    (1, 256, 256, 128),
    (4, 5, 6, 7),
    (2, 1, 2_000_000, 1),
]


def laid(shape: tuple[int, int, int], how: str) -> Tensor:
    clients, rows, columns = shape
    if how == "turned":
        return torch.randn(clients, columns, rows).mT
    if how == "part":
        return torch.randn(clients, rows + 3, columns + 5)[:, 2:-1, 1:-4]
    if how == "shared":
        return torch.randn(1, rows, columns).expand(clients, rows, columns)
    return torch.randn(shape)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("a", ["plain", "turned", "part", "shared"])
@pytest.mark.parametrize("b", ["plain", "turned", "part", "shared"])
def test_products_are_those_of_torch(shape: tuple[int, ...], a: str, b: str) -> None:
    torch.manual_seed(0)
    clients, n, k, m = shape
    left, right, plus = laid((clients, n, k), a), laid((clients, k, m), b), torch.randn(n, 1)
    wanted = torch.bmm(left.double(), right.double())
    close = {"rtol": 1e-4, "atol": 1e-5 * k**0.5}
    before = left.clone(), right.clone()
    with torch.inference_mode():
        torch.testing.assert_close(matmul.multiply(left, right).double(), wanted, **close)
        result = matmul.multiply(left, right, plus)
        torch.testing.assert_close(result.double(), wanted + plus, **close)
        start = torch.randn(clients, n, m)
        total = start.clone()
        matmul.add_product(total, left, right)
        torch.testing.assert_close(total.double(), start + wanted, **close)
    assert torch.equal(left, before[0])
    assert torch.equal(right, before[1])


def test_only_large_plain_products_without_a_gradient_go_to_onednn() -> None:
    large, small = torch.randn(2, 128, 128), torch.randn(2, 64, 64)
    here = matmul._onednn() is not None
    assert not matmul._suits_onednn(large, large)  # a gradient is wanted
    with torch.no_grad():
        assert matmul._suits_onednn(large, large) is here
        assert matmul._suits_onednn(nn.Parameter(large), large) is here
        assert not matmul._suits_onednn(small, small)
        assert not matmul._suits_onednn(large.double(), large.double())
        assert not matmul._suits_onednn(large.to("meta"), large.to("meta"))


def test_without_onednn_torch_multiplies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matmul, "_onednn", lambda: None)
    a = torch.randn(2, 128, 128)
    with torch.no_grad():
        assert torch.equal(matmul.multiply(a, a), torch.bmm(a, a))


def test_bits_do_not_depend_on_workers() -> None:
    """In single precision, with products that are large."""
    x, y = torch.rand(120, 784), torch.arange(120) % 10
    federation = fedbr.Federation.from_arrays(x, y, x[:20], y[:20], clients=4, partition="iid")
    runs = [
        fedbr.train(
            federation,
            "mlp",
            [fedbr.FedBR()],
            rounds=2,
            local_steps=3,
            batch_size=64,
            clients_at_once=2,
            workers=workers,
            evaluate_every=0,
        )
        for workers in (1, 2)
    ]
    assert runs[0].loss == runs[1].loss
    weights = [list(run.model.state_dict().values()) for run in runs]
    assert all(map(torch.equal, *weights))
