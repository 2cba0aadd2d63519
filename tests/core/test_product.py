"""Products of several clients are the products, whichever library makes them and however matrices lie in memory."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

import fedbr
from fedbr.core import product

LIBRARIES = ["OpenBLAS", "PyTorch"]


@pytest.fixture(params=LIBRARIES)
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Either library, also where the processor would choose the other."""
    monkeypatch.setattr(product, "_is_amd", lambda: request.param == "OpenBLAS")
    product._openblas.cache_clear()
    if product.maker().partition(" ")[0] != request.param:
        pytest.skip("scipy-openblas64 has no library for this system")
    yield request.param
    product._openblas.cache_clear()


def numbers(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


LAYOUTS = {
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
SIZES = [(1, 1, 1), (5, 1, 4), (1, 7, 1), (1, 6, 9), (8, 3, 1), (10, 64, 33), (64, 200, 31), (130, 70, 90)]


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("second", LAYOUTS)
@pytest.mark.parametrize("first", LAYOUTS)
def test_every_layout_gives_the_product(library: str, first: str, second: str, size: tuple[int, int, int]) -> None:
    n, k, m = size
    a, b = LAYOUTS[first](n, k), LAYOUTS[second](k, m)
    before = a.clone(), b.clone()
    wanted = a.double() @ b.double()
    found = product.multiply(a, b)
    assert found.shape == wanted.shape
    assert found.is_contiguous()
    scale = (a.double().abs() @ b.double().abs()).clamp_min(1e-30)  # what rounding is relative to
    assert ((found - wanted).abs() / scale).max() < 1e-6 + k * 6e-8
    row = numbers(3, n, 1)
    torch.testing.assert_close(product.multiply(a, b, row), (wanted + row).float(), rtol=1e-5, atol=1e-4)
    assert torch.equal(a, before[0])
    assert torch.equal(b, before[1])


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


def test_a_client_gets_what_it_would_get_alone(library: str) -> None:
    a, b = numbers(7, 64, 100), numbers(7, 30, 100).mT
    together = product.multiply(a, b)
    alone = torch.cat([product.multiply(x[None], y[None]) for x, y in zip(a, b, strict=True)])
    assert torch.equal(together, alone)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_other_numbers_are_pytorchs(library: str, dtype: torch.dtype) -> None:
    a, b = numbers(2, 4, 3).to(dtype), numbers(2, 3, 5).to(dtype)
    assert torch.equal(product.multiply(a, b), torch.bmm(a, b))
    assert product.multiply(a.to("meta"), b.to("meta")).shape == (2, 4, 5)


@pytest.mark.parametrize("size", [(0, 3, 4), (2, 0, 4), (2, 3, 0)])
def test_nothing_times_something(library: str, size: tuple[int, int, int]) -> None:
    n, k, m = size
    assert torch.equal(product.multiply(torch.ones(3, n, k), torch.ones(3, k, m)), torch.zeros(3, n, m))


def test_what_is_not_a_number_stays_none(library: str) -> None:
    a, b = numbers(2, 20, 30), numbers(2, 30, 40)
    a[0, 3, 4], a[1, 5, 6] = float("nan"), float("inf")
    found = product.multiply(a, b)
    assert found[0, 3].isnan().all()
    assert not found[1, 5].isfinite().any()
    assert found.isfinite().sum() == 2 * 20 * 40 - 2 * 40


@pytest.mark.skipif(not product._is_amd() or find_spec("scipy_openblas64") is None, reason="not on this processor")
def test_amds_processors_have_openblas() -> None:
    """Without this a library that no longer loads would only be felt."""
    product._openblas.cache_clear()
    kernels = product.KERNELS[torch.backends.cpu.get_cpu_capability()]
    assert product.maker() == f"OpenBLAS ({kernels})"


def test_it_can_be_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(product, "_is_amd", lambda: True)
    monkeypatch.setenv("FEDBR_PRODUCTS", "torch")
    product._openblas.cache_clear()
    assert product.maker() == "PyTorch"
    product._openblas.cache_clear()


@pytest.mark.parametrize("place", [None, "nowhere"])
def test_where_the_library_is_missing_pytorch_multiplies(
    place: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = None if place is None else SimpleNamespace(submodule_search_locations=[str(tmp_path / place)])
    monkeypatch.setattr(product, "_is_amd", lambda: True)
    monkeypatch.setattr(product, "find_spec", lambda name: found)
    product._openblas.cache_clear()
    a, b = numbers(2, 4, 3), numbers(2, 3, 5)
    assert torch.equal(product.multiply(a, b), torch.bmm(a, b))
    assert product.maker() == "PyTorch"
    product._openblas.cache_clear()


LOADED = """
import os
import numpy
from threadpoolctl import threadpool_info
mine = lambda: [(i["filepath"], i["architecture"], i["num_threads"]) for i in threadpool_info()
                if i["internal_api"] == "openblas" and "scipy_openblas64/lib" not in i["filepath"]]
before = mine(), dict(os.environ)
from fedbr.core import product
print(product.maker())
assert (mine(), dict(os.environ)) == before
"""


@pytest.mark.parametrize("setting", [{}, {"OPENBLAS_CORETYPE": "Nehalem", "OPENBLAS_NUM_THREADS": "2"}], ids=str)
def test_numpy_and_the_environment_stay_as_they_are(setting: dict[str, str]) -> None:
    told = {k: v for k, v in os.environ.items() if not k.startswith(("OPENBLAS", "FEDBR"))} | setting
    done = subprocess.run([sys.executable, "-c", LOADED], env=told, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    product._openblas.cache_clear()
    assert done.stdout.strip() == product.maker()  # ours does not depend on what NumPy's is told


def test_runs_agree_to_single_precision(federation: fedbr.Federation, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {}
    for name in LIBRARIES:
        monkeypatch.setattr(product, "_is_amd", lambda name=name: name == "OpenBLAS")
        product._openblas.cache_clear()
        if product.maker().partition(" ")[0] == name:
            short = {"rounds": 1, "local_steps": 3, "batch_size": 8, "lr": 0.05, "cohort": 2}
            run = fedbr.train(federation, "mlp", [fedbr.FedBR(), fedbr.FedProx()], **short)
            found[name] = run.model.state_dict()
    product._openblas.cache_clear()
    if len(found) < 2:
        pytest.skip("scipy-openblas64 has no library for this system")
    ours, theirs = found.values()
    for key, value in ours.items():
        torch.testing.assert_close(value, theirs[key], rtol=1e-4, atol=1e-6)
    assert any(not torch.equal(value, theirs[key]) for key, value in ours.items())  # two libraries were at work
