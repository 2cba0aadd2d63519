"""Products of several clients are the products, whichever library makes them and however matrices
lie in memory.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

import fedbr
from fedbr.core.fast import product
from fedbr.util.errors import InputError, RunError

KNOWN = torch.backends.cpu.get_cpu_capability() in product.KERNELS


@pytest.fixture(autouse=True)
def anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every test chooses by itself, and so does what comes after it."""
    monkeypatch.delenv(product.SWITCH, raising=False)
    product._openblas.cache_clear()
    yield
    monkeypatch.undo()
    product._openblas.cache_clear()


@pytest.fixture(params=["OpenBLAS", "PyTorch"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Either library, also where the processor or the size would choose the other."""
    monkeypatch.setattr(product, "_is_amd", lambda: request.param == "OpenBLAS")
    monkeypatch.setattr(product, "LARGE", 1)
    if product.maker().partition(" ")[0] != request.param:
        pytest.skip("scipy-openblas64 is not installed, or not for this processor")
    return str(request.param)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count what OpenBLAS is asked."""
    found: list[int] = []
    multiply = product._OpenBLAS.multiply

    def counted(*given: Any) -> Tensor:
        found.append(1)
        return multiply(*given)

    monkeypatch.setattr(product._OpenBLAS, "multiply", counted)
    return found


def numbers(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


LAYOUTS: dict[str, Callable[[int, int], Tensor]] = {
    "as it is": lambda n, m: numbers(3, n, m),
    "turned": lambda n, m: numbers(3, m, n).mT,
    "the same for all": lambda n, m: numbers(n, m).expand(3, n, m),
    "the same for all, turned": lambda n, m: numbers(m, n).expand(3, m, n).mT,
    "some rows": lambda n, m: numbers(3, n + 4, m)[:, 2:-2],
    "some columns": lambda n, m: numbers(3, n, m + 4)[:, :, 3:-1],
    "some columns, turned": lambda n, m: numbers(3, m, n + 2)[:, :, 1:-1].mT,
    "every second column": lambda n, m: numbers(3, n, 2 * m)[:, :, ::2],
    "every second row": lambda n, m: numbers(3, 2 * n, m)[:, ::2],
    "clients inside": lambda n, m: numbers(n, 3, m).transpose(0, 1),
    "one number": lambda n, m: numbers(3, 1, 1).expand(3, n, m),
    "one row": lambda n, m: numbers(3, 1, m).expand(3, n, m),
    "one column": lambda n, m: numbers(3, n, 1).expand(3, n, m),
}
SIZES = [
    (1, 1, 1),
    (5, 1, 4),
    (1, 7, 1),
    (1, 6, 9),
    (8, 3, 1),
    (10, 64, 33),
    (64, 200, 31),
    (130, 70, 90),
]


@torch.no_grad()
@pytest.mark.parametrize("second", LAYOUTS)
@pytest.mark.parametrize("first", LAYOUTS)
def test_every_layout_gives_the_product(
    library: str, first: str, second: str, calls: list[int]
) -> None:
    for n, k, m in SIZES:
        a, b = LAYOUTS[first](n, k), LAYOUTS[second](k, m)
        before = a.clone(), b.clone()
        wanted = a.double() @ b.double()
        found = product.multiply(a, b)
        assert found.shape == wanted.shape
        scale = a.double().abs() @ b.double().abs()  # what rounding is relative to
        assert ((found - wanted).abs() <= (1e-6 + k * 6e-8) * scale).all()
        row = numbers(3, n, 1)
        torch.testing.assert_close(
            product.multiply(a, b, row), (wanted + row).float(), rtol=1e-5, atol=1e-4
        )
        assert torch.equal(a, before[0])
        assert torch.equal(b, before[1])
    assert len(calls) == (2 * len(SIZES) if library == "OpenBLAS" else 0)


@torch.no_grad()
@pytest.mark.parametrize("k", [1, 3, 64, 129, 1000])  # samples in a batch
@pytest.mark.parametrize("size", [(1, 5), (10, 64), (33, 7), (256, 256)], ids=str)
def test_a_product_is_added_where_the_sum_lies(library: str, size: tuple[int, int], k: int) -> None:
    n, m = size
    for a, b in ((numbers(3, n, k), numbers(3, k, m)), (numbers(3, k, n).mT, numbers(3, m, k).mT)):
        for to in (numbers(3, n, m), numbers(3, m, n).mT, numbers(3, n, m + 2)[:, :, 1:-1]):
            wanted, place, version = to + product.multiply(a, b), to.data_ptr(), to._version
            product.add_product(to, a, b)
            torch.testing.assert_close(to, wanted, rtol=1e-5, atol=1e-5 * k**0.5)
            assert to.data_ptr() == place
            assert to._version > version  # autograd notices that a weight has changed


@torch.no_grad()
@pytest.mark.parametrize("library", ["OpenBLAS"], indirect=True)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_a_client_gets_what_it_would_get_alone(library: str, size: tuple[int, int, int]) -> None:
    n, k, m = size
    a, b = numbers(7, n, k), numbers(7, m, k).mT
    alone = torch.cat([product.multiply(x[None], y[None]) for x, y in zip(a, b, strict=True)])
    assert torch.equal(product.multiply(a, b), alone)


@torch.no_grad()
def test_what_is_not_a_number_stays_none(library: str) -> None:
    a, b = numbers(2, 20, 30), numbers(2, 30, 40)
    a[0, 3, 4], a[1, 5, 6] = float("nan"), float("inf")
    found = product.multiply(a, b)
    assert found[0, 3].isnan().all()
    assert not found[1, 5].isfinite().any()
    assert found.isfinite().sum() == 2 * 20 * 40 - 2 * 40


class Special(Tensor):
    """Somebody's own kind of tensor."""


A, B = (2, 4, 3), (2, 3, 5)
OTHERS: dict[str, tuple[Tensor, Tensor]] = {
    "double": (numbers(*A).double(), numbers(*B).double()),
    "half": (numbers(*A).half(), numbers(*B).half()),
    "complex": (numbers(*A).cfloat(), numbers(*B).cfloat()),
    "another device": (numbers(*A).to("meta"), numbers(*B).to("meta")),
    "a kind of its own": (numbers(*A).as_subclass(Special), numbers(*B)),
    "no rows": (numbers(2, 0, 3), numbers(*B)),
    "no columns": (numbers(*A), numbers(2, 3, 0)),
    "nothing to add up": (numbers(2, 4, 0), numbers(2, 0, 5)),
    "one of them on another device": (numbers(*A), numbers(*B).to("meta")),
}


@torch.no_grad()
@pytest.mark.parametrize("what", OTHERS)
def test_all_else_is_pytorchs(library: str, what: str, calls: list[int]) -> None:
    a, b = OTHERS[what]
    found, wanted = product.multiply(a, b), torch.bmm(a, b)
    assert found.shape == wanted.shape
    assert found.is_meta or torch.equal(found, wanted)
    assert not calls


@torch.no_grad()
@pytest.mark.parametrize(
    ("a", "b"),
    [
        (numbers(*A), numbers(*B).double()),
        (numbers(*A).double(), numbers(*B)),
        (numbers(*A), numbers(2, 2, 5)),
        (numbers(*A), numbers(1, 3, 5)),
        (numbers(*A), numbers(3, 5)),
    ],
    ids=["double b", "double a", "another k", "another number of clients", "no clients"],
)
def test_what_does_not_fit_together_is_refused(
    library: str, a: Tensor, b: Tensor, calls: list[int]
) -> None:
    with pytest.raises((RuntimeError, IndexError)):
        product.multiply(a, b)
    with pytest.raises((RuntimeError, IndexError)):
        product.add_product(numbers(2, 4, 5), a, b)
    assert not calls


@torch.no_grad()
def test_a_sum_that_does_not_fit_is_refused(library: str, calls: list[int]) -> None:
    for to in (numbers(2, 4, 5).double(), numbers(2, 4, 4), numbers(1, 4, 5)):
        with pytest.raises(RuntimeError):
            product.add_product(to, numbers(*A), numbers(*B))
    with pytest.raises(RuntimeError):
        product.multiply(numbers(*A), numbers(*B), numbers(2, 4, 1).double())
    assert not calls


def test_autograd_and_those_who_only_trace_get_pytorchs(library: str, calls: list[int]) -> None:
    a, b = numbers(*A).requires_grad_(), numbers(*B)
    assert product.multiply(a, b).requires_grad
    with FakeTensorMode(), torch.no_grad():
        assert product.multiply(torch.ones(*A), torch.ones(*B)).shape == (2, 4, 5)
    with torch.no_grad():
        mapped = torch.func.vmap(product.multiply)(numbers(6, *A), numbers(6, *B))
    assert torch.allclose(mapped, numbers(6, *A) @ numbers(6, *B))
    assert not calls


class Careless(fedbr.Method):
    """Hands something to the model that does not fit."""

    name: ClassVar[str] = "careless"
    what: str

    def loss(
        self, ctx: fedbr.ClientContext, batch: fedbr.Batch, out: fedbr.Output
    ) -> Tensor | None:
        x = {"double": batch.x.double(), "narrow": batch.x[:, :, :5], "few": batch.x[:2]}[self.what]
        return ctx.model(x).logits.sum(dim=(1, 2))


@pytest.mark.parametrize("what", ["double", "narrow", "few"])
def test_a_careless_method_is_told_where(
    library: str, what: str, federation: fedbr.Federation
) -> None:
    with pytest.raises(RunError, match=r"test_product.py.*loss"):
        fedbr.train(
            federation, "mlp", [Careless(what=what)], rounds=1, local_steps=1, clients_at_once=6
        )


@pytest.mark.skipif(
    not (KNOWN and product._is_amd() and find_spec("scipy_openblas64")),
    reason="a processor of somebody else's",
)
def test_amds_processors_have_openblas() -> None:
    """Without this a library that no longer loads would only be felt."""
    assert (
        product.maker() == f"OpenBLAS ({product.KERNELS[torch.backends.cpu.get_cpu_capability()]})"
    )


def test_it_can_be_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(product, "_is_amd", lambda: True)
    monkeypatch.setenv(product.SWITCH, "torch")
    assert product.maker() == "PyTorch"
    product._openblas.cache_clear()
    monkeypatch.setenv(product.SWITCH, "Torch")
    with pytest.raises(InputError, match="FEDBR_PRODUCTS = 'Torch': 'torch'"):
        product.maker()


@pytest.mark.parametrize("content", [None, b"", b"no library"], ids=str)
def test_a_library_that_cannot_be_loaded_is_left(
    content: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "lib" / "libscipy_openblas64_.so"
    if content is not None:
        place.parent.mkdir()
        place.write_bytes(content)
    monkeypatch.setattr(product, "_is_amd", lambda: True)
    monkeypatch.setattr(
        product,
        "find_spec",
        lambda name: SimpleNamespace(submodule_search_locations=[str(tmp_path)]),
    )
    before = dict(os.environ)
    assert product.maker() == "PyTorch"
    assert dict(os.environ) == before


@pytest.mark.parametrize("lacks", ["scipy_openblas_get_corename64_", "scipy_cblas_sgemm64_"])
def test_a_library_of_another_make_is_left(lacks: str, monkeypatch: pytest.MonkeyPatch) -> None:
    names: dict[str, Any] = {
        "scipy_openblas_get_corename64_": lambda: product.KERNELS["AVX2"].encode(),
        "scipy_openblas_get_num_threads64_": lambda: 1,
        "scipy_cblas_sgemm64_": SimpleNamespace(),
    }
    del names[lacks]
    monkeypatch.setattr(product, "_is_amd", lambda: True)
    monkeypatch.setattr(product.ctypes, "CDLL", lambda path: SimpleNamespace(**names))
    assert product.maker() == "PyTorch"


def test_without_the_package_pytorch_multiplies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(product, "_is_amd", lambda: True)
    monkeypatch.setattr(product, "find_spec", lambda name: None)
    assert product.maker() == "PyTorch"


LOADED = """
import os
import sys
import numpy
from threadpoolctl import threadpool_info
if "early" in sys.argv:
    import scipy_openblas64
    scipy_openblas64.get_openblas_config()
def copies(ours):
    return sorted((i["filepath"], i["architecture"], i["num_threads"]) for i in threadpool_info()
                  if i["internal_api"] == "openblas" and ("scipy_openblas64/lib" in i["filepath"]) == ours)
before = copies(False), dict(os.environ)
from fedbr.core import product
product._is_amd = lambda: True
print(product.maker())
assert (copies(False), dict(os.environ)) == before
if "early" not in sys.argv:
    assert [(kernels, threads) for _, kernels, threads in copies(True)] == [(sys.argv[1], 1)]
"""


@pytest.mark.skipif(
    not KNOWN or find_spec("scipy_openblas64") is None, reason="no OpenBLAS for this processor"
)
@pytest.mark.parametrize(
    "setting", [{}, {"OPENBLAS_CORETYPE": "Nehalem", "OPENBLAS_NUM_THREADS": "2"}], ids=str
)
@pytest.mark.parametrize("early", [False, True])
def test_numpy_and_the_environment_stay_as_they_are(setting: dict[str, str], early: bool) -> None:
    kernels = product.KERNELS[torch.backends.cpu.get_cpu_capability()]
    told = {
        k: v for k, v in os.environ.items() if not k.startswith(("OPENBLAS", "FEDBR"))
    } | setting
    line = [sys.executable, "-c", LOADED, kernels, *(["early"] if early else [])]
    done = subprocess.run(line, env=told, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    ours = f"OpenBLAS ({kernels})"
    if not early:
        assert done.stdout.strip() == ours
    elif setting:  # somebody else's, with kernels that we do not want
        assert done.stdout.strip() == "PyTorch"
    else:
        assert done.stdout.strip() in (ours, "PyTorch")


SHORT: dict[str, Any] = {
    "rounds": 2,
    "local_steps": 3,
    "batch_size": 8,
    "lr": 0.05,
    "clients_at_once": 2,
}


def test_runs_agree_to_single_precision(
    federation: fedbr.Federation, monkeypatch: pytest.MonkeyPatch, calls: list[int]
) -> None:
    found = {}
    for switch in ("", "torch"):
        monkeypatch.setattr(product, "_is_amd", lambda: True)
        monkeypatch.setenv(product.SWITCH, switch)
        product._openblas.cache_clear()
        if not switch and product.maker() == "PyTorch":
            pytest.skip("scipy-openblas64 is not installed, or not for this processor")
        calls.clear()
        found[switch] = fedbr.train(
            federation, "mlp", [fedbr.FedBR(), fedbr.FedProx()], **SHORT
        ).model.state_dict()
        assert bool(calls) != bool(switch)  # the projector is large enough
    for key, value in found[""].items():
        torch.testing.assert_close(value, found["torch"][key], rtol=1e-3, atol=1e-5)


def weights(federation: fedbr.Federation, model: str | fedbr.FedModel, **more: Any) -> list[Tensor]:
    return list(
        fedbr.train(federation, model, [fedbr.FedBR()], **SHORT | more).model.state_dict().values()
    )


@pytest.mark.parametrize("switch", ["", "torch"])
def test_workers_multiply_as_their_parent_does(
    federation: fedbr.Federation, monkeypatch: pytest.MonkeyPatch, switch: str
) -> None:
    monkeypatch.setenv(product.SWITCH, switch)
    product.maker()
    monkeypatch.delenv(
        product.SWITCH
    )  # too late for the parent, and the workers must not see another world
    assert all(map(torch.equal, weights(federation, "mlp"), weights(federation, "mlp", workers=2)))


class Turned(nn.Module):
    """Has a weight that does not lie row by row."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.weight = nn.Parameter(torch.randn(6, 33).mT)

    def forward(self, x: Tensor) -> Tensor:
        return (x @ self.weight.mT).relu()


def test_weights_that_lie_turned_train_alike_with_workers(federation: fedbr.Federation) -> None:
    for module in (Turned(), nn.Sequential(nn.Linear(6, 33), nn.ReLU())):
        if isinstance(module, nn.Sequential):
            module[0].weight = nn.Parameter(torch.randn(6, 33).mT)
        model = fedbr.FedModel(module, 33, 4)
        for clients_at_once in (1, 3):
            one, two = (
                weights(federation, model, clients_at_once=clients_at_once, workers=w)
                for w in (1, 2)
            )
            assert all(map(torch.equal, one, two))
