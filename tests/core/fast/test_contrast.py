"""The written-out gradient of the contrast is that of the formula."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fedbr.core.fast.contrast import contrast


def plain(a: Tensor, far: Tensor, near: Tensor, far_scale: float, near_scale: float) -> Tensor:
    to_far, to_near = (F.cosine_similarity(a, b, dim=-1) for b in (far, near))
    return torch.log1p(torch.exp(far_scale * to_far - near_scale * to_near))


def vectors(*shape: int) -> list[Tensor]:
    torch.manual_seed(1)
    return [torch.randn(*shape, dtype=torch.float64, requires_grad=True) for _ in range(3)]


@pytest.mark.parametrize("scales", [(2.0, 2.0), (0.0, 1.0), (1.5, 0.0), (30.0, 0.1)])
@pytest.mark.parametrize("shape", [(7,), (4, 1), (2, 3, 5)])
def test_value_and_gradient_are_those_of_the_formula(
    shape: tuple[int, ...], scales: tuple[float, float]
) -> None:
    v = vectors(*shape)
    result, expected = contrast(*v, *scales), plain(*v, *scales)
    assert torch.allclose(result, expected, rtol=1e-12)
    weights = torch.linspace(0.5, 2, result.numel(), dtype=torch.float64).view_as(
        result
    )  # not one gradient for all
    grads = [torch.autograd.grad((out * weights).sum(), v) for out in (result, expected)]
    for ours, theirs in zip(*grads, strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-9, atol=1e-12)


def test_constants_may_be_constant() -> None:
    a, far, near = vectors(2, 5)
    value = contrast(a, far.detach(), near.detach(), 2.0, 1.0).sum()
    (grad,) = torch.autograd.grad(value, [a])
    (expected,) = torch.autograd.grad(plain(a, far, near, 2.0, 1.0).sum(), [a])
    assert torch.allclose(grad, expected)


def test_no_vector_is_too_short() -> None:
    """Features that are all zero (a dead ReLU) have no direction: the value is that of a right
    angle.
    """
    a, far, near = vectors(2, 4)
    with torch.no_grad():
        a[0] = 0
        far[0] *= 1e-12
        far[1] *= 3e-9
        near[1] *= 3e-9
    value = contrast(a, far, near, 2.0, 2.0)
    assert value[0].item() == pytest.approx(torch.log(torch.tensor(2.0)).item())
    result = torch.autograd.grad(value.sum(), [a, far, near])
    expected = torch.autograd.grad(_as_autograd_sees_it(a, far, near).sum(), [a, far, near])
    for ours, theirs in zip(result, expected, strict=True):
        assert ours.isfinite().all()
        assert torch.allclose(ours, theirs)


def _as_autograd_sees_it(a: Tensor, far: Tensor, near: Tensor) -> Tensor:
    of_a, of_far, of_near = ((v * v).sum(-1).clamp_min(1e-16).rsqrt() for v in (a, far, near))
    return F.softplus(
        2 * (a * far).sum(-1) * of_a * of_far - 2 * (a * near).sum(-1) * of_a * of_near
    )


def test_a_second_derivative_is_refused() -> None:
    a, far, near = vectors(2, 5)
    (first,) = torch.autograd.grad(contrast(a, far, near, 2.0, 1.0).sum(), [a], retain_graph=True)
    assert not first.requires_grad
    with pytest.raises(RuntimeError, match="no second derivative"):
        torch.autograd.grad(contrast(a, far, near, 2.0, 1.0).sum(), [a], create_graph=True)


def test_large_similarities_do_not_overflow() -> None:
    a = vectors(3, 4)[0].float()
    assert contrast(a, a, -a, 500.0, 500.0).isfinite().all()
