"""Can clients of this model train together? By trying two of them against the plain module."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ..rng import layer_streams
from ..wire import State
from .stacked import plan, run, run_alone


def obstacle(module: nn.Module, x: Tensor) -> str | None:
    """Say why clients cannot train together (None: they can), by trying two against the plain
    module.
    """
    weights = {
        k: torch.stack([v.detach(), v.detach() * 1.5 + 0.1 if v.is_floating_point() else v])
        for k, v in (*module.named_parameters(), *module.named_buffers())
    }
    keys = [k for k, p in module.named_parameters() if p.requires_grad]
    for key in keys:
        weights[key].requires_grad_()
    singles = [{k: v[i : i + 1].clone() for k, v in weights.items()} for i in (0, 1)]
    try:
        with layer_streams(0, 0, [0, 1], x.device):
            together = run(plan(module, weights, "", 2), torch.stack([x, x]))
        alone = torch.cat(
            [_alone(module, single, x[None], client) for client, single in enumerate(singles)]
        )
        wanted = [weights[k] for k in keys]
        grads = [_gradients(out, wanted) for out in (together, alone)]
        buffers = [
            (weights[k], torch.cat([single[k] for single in singles]))
            for k, _ in module.named_buffers()
        ]
        same = (
            _close([together], [alone]) and _close(*grads) and all(_same(a, b) for a, b in buffers)
        )
    except (
        Exception
    ) as error:  # whatever a layer does under vmap, the plain module may still do alone
        if "randomness error mode" in str(error):
            return "a layer draws random numbers (dropout)"
        return f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
    if same:
        return None
    return "two clients together do not give what each gives alone (something in the model draws, counts or branches)"


def _alone(module: nn.Module, weights: State, x: Tensor, client: int) -> Tensor:
    with layer_streams(0, 0, [client], x.device):
        return run_alone(module, weights, x)


def _gradients(out: Tensor, wanted: list[Tensor]) -> tuple[Tensor, ...]:
    if not wanted:
        return ()
    # A sum of squares would not do: after a norm layer it is constant, and its gradient is all
    # rounding.
    weights = torch.linspace(0.5, 7.5, out.numel(), dtype=out.dtype).sin().view_as(out)
    return torch.autograd.grad(
        (out * weights).sum(), wanted, allow_unused=True, materialize_grads=True
    )


def _close(some: Sequence[Tensor], others: Sequence[Tensor]) -> bool:
    """Compare to float32 precision, relative to the largest of all."""
    if any(a.shape != b.shape for a, b in zip(some, others, strict=True)):
        return False
    scale = max((float(b.detach().abs().max()) for b in others if b.numel()), default=0.0)
    return all(
        bool(((a - b).abs() <= 1e-3 * scale + 1e-6).all())
        for a, b in zip(some, others, strict=True)
    )


def _same(a: Tensor, b: Tensor) -> bool:
    """Compare what modules remember, which need not be numbers."""
    return (
        _close([a], [b])
        if a.is_floating_point() and bool(b.isfinite().all())
        else torch.equal(a, b)
    )
