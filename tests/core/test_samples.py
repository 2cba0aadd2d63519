"""Samples as the model sees them; what is stored stays as it is."""

from __future__ import annotations

import pytest
import torch

from fedbr.core.samples import Samples

INDEXES = [slice(1, 3), torch.tensor([1, 2]), torch.tensor([[2, 0], [1, 1]])]


@pytest.mark.parametrize("index", INDEXES, ids=["slice", "index", "table"])
@pytest.mark.parametrize("stored", [torch.uint8, torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1.0, 0.5, torch.tensor([[[2.0]], [[3.0]]])])
@pytest.mark.parametrize("shift", [0.0, -1.0])
def test_scale_and_shift(
    index: torch.Tensor | slice, stored: torch.dtype, scale: float | torch.Tensor, shift: float
) -> None:
    x = torch.arange(3 * 2 * 4 * 4).view(3, 2, 4, 4).to(stored)
    samples = Samples(x, torch.zeros(3, dtype=torch.long), scale, shift)
    for dtype in (torch.float32, torch.float64):
        before = x.clone()
        seen = samples.see(index, dtype)
        assert seen.dtype == dtype
        assert torch.equal(seen, before[index].to(dtype) * scale + shift)
        assert torch.equal(x, before)
