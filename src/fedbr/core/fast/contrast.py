"""The contrast of FedBR and Moon: is a vector closer to one thing or to another?

Its gradient is written out. Autograd would walk through a hundred small operations for it: some
percent of a step of a small model.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

LEAST = 1e-16  # of a squared norm, as in torch.cosine_similarity


def contrast(a: Tensor, far: Tensor, near: Tensor, far_scale: float, near_scale: float) -> Tensor:
    """Return softplus(far_scale * cos(a, far) - near_scale * cos(a, near)).

    Vectors lie along the last dimension.
    """
    value: Tensor = _Contrast.apply(a, far, near, far_scale, near_scale)  # type: ignore[no-untyped-call]
    return value


class _Contrast(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, a: Tensor, far: Tensor, near: Tensor, far_scale: float, near_scale: float
    ) -> Tensor:
        squares = [(v * v).sum(-1) for v in (a, far, near)]
        of_a, of_far, of_near = [s.clamp_min(LEAST).rsqrt() for s in squares]  # one over the norms
        per_far = of_a * of_far * far_scale
        per_near = of_a * of_near * near_scale
        u_far = (a * far).sum(-1) * per_far
        u_near = (a * near).sum(-1) * per_near
        ctx.save_for_backward(a, far, near, *squares, per_far, per_near, u_far, u_near)
        return F.softplus(u_far - u_near)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # create_graph: what was saved below would count as constant
            raise RuntimeError("contrast: the gradient is written out; it has no second derivative")
        # With b, cos(a, b) = a.b / (|a| |b|) changes by a / (|a| |b|) - cos(a, b) b / |b|^2; and so
        # it does with a.
        a, far, near, *squares, per_far, per_near, u_far, u_near = ctx.saved_tensors
        g = grad * (u_far - u_near).sigmoid()
        # A norm that was raised to its least value does not change.
        of_a, of_far, of_near = (g.where(s >= LEAST, 0) / s.clamp_min(LEAST) for s in squares)
        to_far, to_near = ((g * p).unsqueeze(-1) for p in (per_far, per_near))
        needs_a, needs_far, needs_near = ctx.needs_input_grad[:3]
        by_a = by_far = by_near = None
        if needs_a:
            by_a = to_far * far - to_near * near - ((u_far - u_near) * of_a).unsqueeze(-1) * a
        if needs_far:
            by_far = to_far * a - (u_far * of_far).unsqueeze(-1) * far
        if needs_near:
            by_near = (u_near * of_near).unsqueeze(-1) * near - to_near * a
        return by_a, by_far, by_near, None, None
